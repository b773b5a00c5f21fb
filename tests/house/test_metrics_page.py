"""docs/metrics.md matches the catalogue and the alerts (tools/metrics.py writes it)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_u08_the_page_is_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "metrics.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
