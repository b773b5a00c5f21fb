"""docs/REQUIREMENTS.md has one row for every requirement, and every file and test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

COUNTS = {
    **{"A": 17, "B": 13, "C": 22, "D": 14, "E": 10, "F": 11, "G": 26, "H": 11, "I": 8, "J": 13, "K": 8},
    **{"L": 7, "M": 5, "N": 3, "O": 3, "P": 3, "Q": 7, "R": 8, "S": 8, "T": 11, "U": 19},
}
IDS = [f"{section}-{number:02}" for section, count in COUNTS.items() for number in range(1, count + 1)]
IDS += ["X41", "X42"]
NOT_YET = "not yet"
ROW = re.compile(r"^\| (\w-?\d\d) \| (.+) \| (.+) \| (.+) \|$")


@pytest.fixture(scope="module")
def rows(root: Path) -> list[tuple[str, str, str, str]]:
    """The rows of the table: id, content, files, tests."""
    lines = (root / "docs" / "REQUIREMENTS.md").read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if line.startswith("|") and (match := ROW.match(line))]
    assert len(found) == sum(bool(re.match(r"\| \w-?\d", line)) for line in lines), "a row is not of the form"
    return [(row[1], row[2], row[3], row[4]) for row in found]


def names_in(path: Path) -> set[str]:
    """The tests of a file, ``name`` or ``Class::name``."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name, body=body):
                names.add(name)
                names |= {f"{name}::{inner.name}" for inner in body if isinstance(inner, ast.FunctionDef)}
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return names


def fault_of(reference: str, root: Path) -> str | None:
    """Return the fault of one `path` or `path::test`, or None."""
    path, _, test = reference.partition("::")
    if not (root / path).exists():
        return f"there is no {path}"
    if test and test not in names_in(root / path):
        return f"{path} has no test {test}"
    return None


def test_every_requirement_has_one_line(rows: list[tuple[str, str, str, str]]) -> None:
    assert [row[0] for row in rows] == IDS


def test_everything_named_exists(rows: list[tuple[str, str, str, str]], root: Path) -> None:
    faults = []
    for id, _, where, shown in rows:
        for column in (where, shown):
            references = re.findall(r"`([^`]+)`", column)
            if not references and column != NOT_YET:
                faults.append(f"{id}: write a `path` or '{NOT_YET}', not {column!r}")
            faults += [f"{id}: {fault}" for name in references if (fault := fault_of(name, root))]
        if shown != NOT_YET and "`tests/" not in shown:
            faults.append(f"{id}: the last column names no test")
        if where == NOT_YET and shown != NOT_YET:
            faults.append(f"{id}: a test shows what is nowhere")
    assert faults == []


def test_the_checker_sees_what_is_missing(root: Path) -> None:
    assert fault_of("tests/house/test_sizes.py::test_files", root) is None
    assert fault_of("tests/house/test_sizes.py::test_nothing", root)
    assert fault_of("tests/house/test_none.py", root)
