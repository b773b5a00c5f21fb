"""Equipment that demo, benchmarks, attacks, faults and tests share: networks, other programs, workers and reports.

Processes and namespaces themselves are in :mod:`wanderbus.testbed`, because `wanderbus eval` needs them too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""Directory of the project."""
