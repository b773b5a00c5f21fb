"""``./do sabotage``: which sabotages count as noticed (docs/REQUIREMENTS.md)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from faults import sabotage
from faults.sabotage import Deadline, Ran, Sabotage

ONE = Sabotage("A-01", "one", "one.py", "VALUE = 1", "VALUE = 2", ("test_one.py::test_value",))
TWO = ONE._replace(id="A-02", tests=("test_one.py::test_value", "test_one.py::test_other"))
SHORT = "FAILED test_one.py::test_value[3] - assert 2 == 1\n1 failed, 1 passed"
SOURCES = {
    "one.py": "VALUE = 1\n",
    "conftest.py": "from hypothesis import settings\nsettings.register_profile('sabotage')\n",
    "test_one.py": (
        "import os, time, pytest\nfrom one import VALUE\n"
        "def test_value(): assert VALUE == 1\n"
        "def test_other(): pass\n"
        "def test_wrong(): assert VALUE == 3\n"
        "@pytest.mark.skip(reason='never')\ndef test_skipped(): pass\n"
        "def test_hanging(): time.sleep(60 * (VALUE == 2))\n"
    ),
}


@pytest.mark.parametrize(
    ("change", "ran", "outcome"),
    [
        (ONE, Ran(1, SHORT), "noticed"),
        (ONE, Ran(1, "ERROR test_one.py::test_value - OSError"), "noticed"),
        (TWO, Ran(1, SHORT), "unnoticed"),
        (ONE, Ran(1, "FAILED test_one.py::test_value_of_another - assert"), "unnoticed"),
        (ONE._replace(tests=("test_one.py",)), Ran(1, SHORT), "noticed"),
        (ONE, Ran(0, "1 passed"), "unnoticed"),
        (ONE, Ran(0, "1 passed, 1 skipped"), "unnoticed"),
        (ONE, Ran(0, "1 skipped"), "skipped"),
        (ONE, Ran(2, "ERROR test_one.py::test_value"), "unnoticed"),
        (ONE, Ran(4, "not found"), "unnoticed"),
        (ONE, Ran(None, ""), "unnoticed"),
    ],
)
def test_a_sabotage_is_noticed_if_each_of_its_tests_fails(change: Sabotage, ran: Ran, outcome: str) -> None:
    assert sabotage.judge(change, ran, over=False)[0] == outcome


def test_tests_that_the_deadline_ended_say_nothing() -> None:
    assert sabotage.judge(ONE, Ran(None, ""), over=True)[0] == "stopped"


def test_turns_share_all_sabotages() -> None:
    several = [ONE._replace(id=f"A-{number:02}") for number in range(10)]
    turns = [sabotage.chosen(several, [], 3, turn) for turn in range(3)]
    assert sorted(each.id for turn in turns for each in turn) == [each.id for each in several]
    assert sabotage.chosen(several, [], 1, 1) != sabotage.chosen(several, [], 1, 2)
    assert sabotage.chosen(several, ["A-03"], 3, 0) == [several[3]]
    with pytest.raises(SystemExit, match="no sabotage is listed for Z-99"):
        sabotage.chosen(several, ["Z-99"], 1, 0)


@pytest.mark.integration
def test_each_is_tried_in_a_copy_with_it_and_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "project"
    root.mkdir()
    for name, text in SOURCES.items():
        (root / name).write_text(text)
    monkeypatch.setattr(sabotage, "ROOT", root)
    monkeypatch.setattr(sabotage, "TESTS_S_MAX", 20.0)
    tests = {"value": "noticed", "other": "unnoticed", "wrong": "unnoticed", "skipped": "skipped"}
    changes = [ONE._replace(id=name, tests=(f"test_one.py::test_{name}",)) for name in tests]
    changes.append(ONE._replace(id="syntax", by="VALUE ="))
    found = list(sabotage.results(changes, 1, Deadline(600.0)))
    assert {each.sabotage.id: each.outcome for each in found} == {**tests, "syntax": "unnoticed"}
    assert "do not pass without it" in found[2].words
    assert (root / "one.py").read_text() == SOURCES["one.py"]
    hanging = [ONE._replace(tests=("test_one.py::test_hanging",))]
    began = time.monotonic()
    assert [each.outcome for each in sabotage.results(hanging, 1, Deadline(8.0))] == ["stopped"]
    assert time.monotonic() - began < 20


@pytest.mark.integration
def test_the_report_has_the_goals_and_an_unnoticed_sabotage_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sabotages.toml"
    text = "[[sabotage]]\nid = 'A-01'\nwhat = 'w'\nfile = 'f'\ntext = 't'\nby = 'b'\ntests = ['x']\n"
    file.write_text(text)
    for outcome, status in (("noticed", 0), ("unnoticed", 1), ("skipped", 0)):
        made = sabotage.Tried(sabotage.read(file)[0], outcome)  # type: ignore[arg-type]
        monkeypatch.setattr(sabotage, "results", lambda *given, made=made: [made])
        assert sabotage.main(["--sabotages", str(file), "--json", str(tmp_path / "report.json")]) == status
        goals = {each["name"]: each["value"] for each in json.loads((tmp_path / "report.json").read_text())["goals"]}
        assert goals == {"sabotages_unnoticed": status, "sabotages_tried": int(outcome != "skipped")}
