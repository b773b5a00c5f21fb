"""``wanderbus pattern``: output and exit status of each command (SPEC T-07, S-06)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wanderbus.cli.application import run

LATE = """pattern late by Tail
match A: arrival (delay > 30) then not C: swap then B: departure (delay > 15)
within 2 hours emit late_turn with Tail = A.Tail, added = B.delay - A.delay"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Paths of a pattern and of a file of events, which are not in order of time."""
    pattern, events = tmp_path / "late.pattern", tmp_path / "events.jsonl"
    pattern.write_text(LATE + "\n")
    rows = [
        {"subject": "departure", "attributes": {"Tail": "N1", "delay": 50}, "at_us": 2_000_000, "id": "s-1-7"},
        {"subject": "arrival", "attributes": {"Tail": "N1", "delay": 40}, "at_us": 1_000_000, "offset": 90},
        {"subject": "arrival", "attributes": {"Tail": "N2", "delay": 40}, "published_us": 1_000_000},
        {"subject": "swap", "attributes": {"Tail": "N2"}, "at_us": 1_500_000},
        {"subject": "departure", "attributes": {"Tail": "N2", "delay": 50}, "at_us": 2_000_000},
    ]
    events.write_text("\n\n".join(json.dumps(row) for row in rows))
    return str(pattern), str(events)


def test_check_prints_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pattern", "check", LATE]) == 0
    assert capsys.readouterr().out == "late: A, C, B\n"
    assert run(["pattern", "check", LATE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "late", "keys": ["Tail"], "steps": ["A", "C", "B"]}


def test_a_file_that_is_given_as_a_pattern_needs_its_option(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pattern", "check", files[0]]) == 2
    assert "is a file, not a pattern; give it with --file" in capsys.readouterr().err
    assert run(["pattern", "check", LATE * 100]) == 2
    assert "character" in capsys.readouterr().err


def test_an_error_points_into_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = "by Tail\nmatch A: arrival (delay >) within 1 hour"
    assert run(["pattern", "check", text]) == 2
    assert capsys.readouterr().err.split("\n")[1:] == [
        "  match A: arrival (delay >) within 1 hour",
        "                           ^",
        "",
    ]
    assert run(["pattern", "check", text, "--json"]) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["type"], error["position"]) == ("PatternError", text.index(") within"))


def test_explain_prints_the_steps_the_automaton_and_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    text = "by T match A{2,}: a then next (B: b and C: c where (C.x > A.x)) then not D: d within 90 minutes"
    assert run(["pattern", "explain", text]) == 0
    out = capsys.readouterr().out
    for line in (
        "  A 2 or more times: a, everything",
        "  start, A",
        "    A again, without one left out",
        "    then next B#1",
        "    end at 1 hour 30 minutes after the first event, if no D comes before",
        "in memory, for each key:",
    ):
        assert f"{line}\n" in out
    assert run(["pattern", "explain", text, "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert [stage["name"] for stage in explained["stages"]] == ["A", "B#1", "C#1", "C#2", "B#2"]
    assert explained["within_us"] == 5_400_000_000


def test_run_prints_each_detection_of_a_file(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    pattern, events = files
    assert run(["pattern", "run", "--file", pattern, "--events", events, "--json"]) == 0
    (detection,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert detection.pop("id").startswith("late:")
    assert detection == {
        "pattern": "late",
        "key": ["N1"],
        "at_us": 2_000_000,
        "events": [{"step": "A", "offset": 90, "id": ""}, {"step": "B", "offset": 1, "id": "s-1-7"}],
        "subject": "late_turn",
        "attributes": {"Tail": "N1", "added": 10},
    }
    assert run(["pattern", "run", "--file", pattern, "--events", events]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2000000 late_turn detection=late:")
    assert out.endswith('events=["90","s-1-7"] Tail=N1 added=10\n')


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]", "not a JSON object"),
        ('{"subject": "a"}', "a subject, a text, and attributes"),
        ('{"subject": "a", "attributes": {}}', "at_us or published_us"),
        ('{"subject": "a", "attributes": {}, "at_us": 1.5}', "at_us or published_us"),
        ('{"subject": "a", "attributes": {}, "at_us": 1, "offset": -1}', "an offset is"),
        ('{"subject": "a", "attributes": {}, "at_us": 1, "published_us": "x"}', "published_us"),
        ('{"specversion": "1.0"}', "id"),
    ],
)
def test_a_line_that_is_no_event_is_named(
    line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(f"\n{line}\n")
    assert run(["pattern", "run", LATE, "--events", str(events)]) == 2
    error = capsys.readouterr().err
    assert "line 2" in error
    assert reason in error


def test_partial_matches_beyond_the_bound_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "events.jsonl"
    rows = [{"subject": "a", "attributes": {}, "at_us": at_us} for at_us in range(1_005)]
    events.write_text("\n".join(json.dumps(row) for row in rows))
    assert run(["pattern", "run", "match A: a then B: b within 1 hour", "--events", str(events)]) == 0
    assert "5 partial matches were refused" in capsys.readouterr().err


def test_the_pattern_and_the_events_are_needed_once_each(files: tuple[str, str]) -> None:
    pattern, events = files
    assert run(["pattern", "check"]) == 2
    assert run(["pattern", "check", LATE, "--file", pattern]) == 2
    assert run(["pattern", "run", LATE]) == 2
    assert run(["pattern", "run", "--file", "-", "--events", "-"]) == 2
    assert run(["pattern", "run", LATE, "--events", events + ".none"]) == 2
