"""docs/cli.md equals the output of --help (tools/cli_reference.py writes it)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_command_line_reference_is_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "cli_reference.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_of_do_has_help(root: Path) -> None:
    for command in ("demo", "test", "check", "sim", "fuzz", "bench", "fmt"):
        done = subprocess.run([str(root / "do"), command, "--help"], capture_output=True, text=True, check=False)
        assert f"./do {command}" in done.stdout
