"""One server alone, now and before the work on domains: the same script runs with both sources, in turns.

The script is :mod:`bench.domain_single_rate`. The earlier sources come from the repository, by ``git archive``.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from harness.reporting import progress

BEFORE: Final = "8fc46d7"
"""The last commit without domains of several servers."""

_ROOT: Final = Path(__file__).resolve().parents[1]
_SCRIPT: Final = Path(__file__).resolve().with_name("domain_single_rate.py")


def compared(turns: int, events: int) -> list[dict[str, Any]]:
    """Return the rates of each turn, now and before; an empty list without the earlier sources."""
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        if not _extract(Path(name)):
            return []
        sources = {"before": Path(name) / "src", "now": _ROOT / "src"}
        rows = []
        for turn in range(turns):
            # The second of a pair may run on a warmer machine, so they change places.
            progress(f"one server, turn {turn + 1} of {turns}")
            order = ("before", "now") if turn % 2 else ("now", "before")
            rows.append({which: _run(sources[which], events) for which in order})
        return rows


def _extract(directory: Path) -> bool:
    """Write the earlier sources into a directory; return False without git, or without that commit."""
    try:
        command = ["git", "-C", str(_ROOT), "archive", "--format=tar", BEFORE, "src"]
        archive = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory)
    return True


def _run(source: Path, events: int) -> float:
    # Without the directory of the script, whose modules have common names.
    argv = [sys.executable, "-P", str(_SCRIPT), str(events)]
    done = subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(source)})
    found: float = json.loads(done.stdout)
    return found
