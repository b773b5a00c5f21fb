"""docs/configuration.md and the sample files are what the structs say (tools/configuration.py writes them)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_page_and_the_samples_are_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "configuration.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
