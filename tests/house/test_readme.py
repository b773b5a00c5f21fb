"""The README works when it is followed literally: its programs run, its commands exist and succeed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.readme import README, Block, blocks, readme_blocks, walk

RUN_S_MAX = 60
WALK_S_MAX = 300

PROGRAMS = [block for block in readme_blocks() if block.name.endswith(".py")]


def test_extraction() -> None:
    text = "a\n```python\n# one.py\nprint(1)  # prints 1\n```\n```\npicture\n```\n```sh\n# no.py\n```\n"
    assert blocks(text) == [
        Block("python", "one.py", "# one.py\nprint(1)  # prints 1\n"),
        Block("", "", "picture\n"),
        Block("sh", "", "# no.py\n"),
    ]
    assert blocks(text)[0].printed == ["1"]


def test_every_block_is_run_or_a_picture() -> None:
    """A block in another language, or without a file name, would not be tested."""
    for block in readme_blocks():
        assert block.language in ("sh", "") or block.name, f"name the file in the first line of:\n{block.text}"
    names = [block.name for block in readme_blocks() if block.name]
    assert len(names) == len(set(names))


def test_every_program_is_run_by_a_shell_block() -> None:
    shell = "".join(block.text for block in readme_blocks() if block.language == "sh")
    for block in readme_blocks():
        assert block.name in shell, f"no shell block uses {block.name}"


def test_the_first_screen_shows_what_it_is() -> None:
    """A picture, a program of about ten lines and the two commands come before anything else."""
    text = README.read_text(encoding="utf-8")
    picture, program = readme_blocks()[:2]
    assert picture.language == ""
    assert program.language == "python"
    assert len(program.text.splitlines()) <= 14
    assert text[: text.index("## A first program")].count("\n") <= 75


def test_commands_of_readme_exist(root: Path) -> None:
    usage = subprocess.run([str(root / "do"), "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  (\w+) ", usage, re.MULTILINE))
    named = set(re.findall(r"\./do (\w+)", README.read_text(encoding="utf-8")))
    assert {"demo", "test"} <= named <= known


@pytest.mark.integration
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_of_readme_runs(program: Block, server: int, tmp_path: Path) -> None:
    file = tmp_path / program.name
    file.write_text(re.sub(r"\b5060\b", str(server), program.text), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    rest = done.stdout
    for expected in program.printed:
        _, found, rest = rest.partition(expected)
        assert found, f"{expected!r} was not printed, or not in its place:\n{done.stdout}"


@pytest.mark.integration
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2: a network of its own")
def test_readme_followed_literally(tmp_path: Path) -> None:
    done = walk(README, tmp_path, WALK_S_MAX)
    assert done.returncode == 0, done.stderr
