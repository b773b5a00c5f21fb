"""Every Python block of the documentation is a program: it has a file name, and works as it stands under that name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.readme import ROOT, Block, page_blocks

RUN_S_MAX = 60
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [(page, block) for page in PAGES for block in page_blocks(page) if block.language == "python"]
NEEDS_SPARK = re.compile(r"wanderbus\.pipeline|deltalake|pyspark")
NEEDS_PATTERN = "late.pattern"


def faults(block: Block) -> list[str]:
    """Return what is wrong with a program, without running it."""
    if not block.name.endswith(".py"):
        return ["its first line names no file, as in # hello.py"]
    name = block.name.removesuffix(".py")
    found = [f"{block.name} shadows a module of the standard library"] if name in sys.stdlib_module_names else []
    try:
        compile(block.text, block.name, "exec")
    except SyntaxError as error:
        return [*found, str(error)]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F811,F823", "--quiet", "-"]
    done = subprocess.run(command, input=block.text, capture_output=True, text=True, check=False)
    return found + ([] if done.returncode == 0 else [done.stdout + done.stderr])


def pattern_text() -> str:
    """Return the pattern that docs/patterns.md shows first; its commands and programs read it from a file."""
    return next(
        each.text
        for each in page_blocks(ROOT / "docs" / "patterns.md")
        if each.text.startswith("pattern late_turnaround")
    )


@pytest.mark.parametrize(("page", "block"), PROGRAMS, ids=lambda value: getattr(value, "name", None))
def test_a_program_is_complete_under_its_name(page: Path, block: Block) -> None:
    assert faults(block) == [], page


def test_names_are_given_once() -> None:
    names = [block.name for _, block in PROGRAMS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# operator.py\nprint()\n", "shadows"),
        ("# a.py\nprint(instant_us(1))\n", "instant_us"),
        ("print(1)\n", "names no file"),
        ("# a.py\nasync with bob:\n    pass\n", "async"),
    ],
)
def test_faults_are_seen(text: str, fault: str) -> None:
    block = Block("python", "" if text.startswith("print") else text.split()[1], text)
    assert fault in "".join(faults(block))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("page", "block"),
    [each for each in PROGRAMS if not NEEDS_SPARK.search(each[1].text) and each[0].name != "README.md"],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_program_without_spark_runs(page: Path, block: Block, server: int, light_port: int, tmp_path: Path) -> None:
    text = re.sub(r'(password="\w+")(?!, server)', rf'\1, server="127.0.0.1:{server}"', block.text)
    text = text.replace("5080", str(light_port))
    (tmp_path / block.name).write_text(text, encoding="utf-8")
    (tmp_path / NEEDS_PATTERN).write_text(pattern_text(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, block.name], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert done.returncode == 0, (page, done.stderr)
    rest = done.stdout
    for expected in block.printed:
        _, found, rest = rest.partition(expected)
        assert found, (page, expected, done.stdout)
