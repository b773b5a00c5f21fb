"""docs/cli.md equals the output of --help (tools/cli_reference.py writes it)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from wanderbus.cli.config import STRUCTS
from wanderbus.settings.writing import sample


def test_command_line_reference_is_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "cli_reference.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_of_do_has_help(root: Path) -> None:
    for command in ("demo", "test", "check", "sim", "fuzz", "bench", "fmt"):
        done = subprocess.run([str(root / "do"), command, "--help"], capture_output=True, text=True, check=False)
        assert f"./do {command}" in done.stdout


def test_help_and_samples_cite_nothing_of_ours(root: Path) -> None:
    shown = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    for kind in STRUCTS.values():
        shown += sample(kind)
    assert re.findall(r"\b(?:SPEC [A-Z]\S*|DESIGN \d\S*|decision \d+|X\d{1,2}\b)", shown) == []


def test_errors_cite_nothing_of_ours(modules: dict[Path, ast.Module]) -> None:
    raised = [
        (str(path), text.value)
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and node.exc is not None
        for text in ast.walk(node.exc)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert raised
    assert [each for each in raised if re.search(r"SPEC [A-Z]|DESIGN \d|decision \d", each[1])] == []
