"""tests/house/sabotages.toml: every sabotage can be made, and the tests that must notice it show its requirement."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from faults.sabotage import Sabotage, read
from tests.house.test_requirements_doc import ROW, fault_of


@pytest.fixture(scope="module")
def sabotages() -> list[Sabotage]:
    return read()


@pytest.fixture(scope="module")
def rows(root: Path) -> dict[str, tuple[set[str], set[str]]]:
    """For each requirement, the files that implement it and the tests that show it."""
    text = (root / "docs" / "REQUIREMENTS.md").read_text(encoding="utf-8")
    found = filter(None, map(ROW.match, text.splitlines()))
    return {row[1]: (set(re.findall(r"`([^`]+)`", row[3])), set(re.findall(r"`([^`]+)`", row[4]))) for row in found}


def test_every_change_can_be_made_and_leaves_a_program(sabotages: list[Sabotage], root: Path) -> None:
    for each in sabotages:
        source = (root / each.file).read_text(encoding="utf-8")
        changed = each.applied(source)
        assert changed != source, each.what
        if each.file.endswith(".py"):
            ast.parse(changed, each.file)


def test_every_test_exists_and_is_one_of_the_requirement(
    sabotages: list[Sabotage], rows: dict[str, tuple[set[str], set[str]]], root: Path
) -> None:
    """The row names the test or its whole file."""
    faults = []
    for each in sabotages:
        assert each.tests, each.what
        _, shown = rows[each.id]
        faults += [f"{each.id}: {fault}" for test in each.tests if (fault := fault_of(test, root))]
        faults += [f"{each.id}: its row lacks {test}" for test in each.tests if not is_named(test, shown)]
    assert faults == []


def is_named(test: str, shown: set[str]) -> bool:
    """Return whether a test, its class or its file is in the last column of a row."""
    parts = test.split("::")
    return any("::".join(parts[:length]) in shown for length in range(1, len(parts) + 1))


def test_no_sabotage_is_listed_twice_and_they_are_in_order(sabotages: list[Sabotage]) -> None:
    assert [each.id for each in sabotages] == sorted(each.id for each in sabotages)
    assert len({(each.file, each.text, each.by) for each in sabotages}) == len(sabotages)
    assert len({each.what for each in sabotages}) == len(sabotages)


def test_every_requirement_with_code_has_a_sabotage(
    sabotages: list[Sabotage], rows: dict[str, tuple[set[str], set[str]]]
) -> None:
    with_code = {id for id, (where, _) in rows.items() if any(path.endswith(".py") for path in where)}
    assert sorted(with_code - {each.id for each in sabotages}) == []


def test_the_checks_see_what_is_wrong() -> None:
    change = Sabotage("A-01", "", "x.py", "one", "two", ())
    assert change.applied("one three") == "two three"
    for source in ("three", "one one"):
        with pytest.raises(ValueError, match="not once"):
            change.applied(source)
    assert is_named("tests/a.py::test_b", {"tests/a.py"})
    assert is_named("tests/a.py::test_b", {"tests/a.py::test_b"})
    assert not is_named("tests/a.py", {"tests/a.py::test_b"})
    assert not is_named("tests/a.py::test_b", {"tests/a.py::test_c"})
