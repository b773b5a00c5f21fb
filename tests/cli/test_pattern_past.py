"""``wanderbus pattern run`` over a server's log and over a lake (SPEC T-07, S-06)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import past_events
from wanderbus.event import Event
from wanderbus.pipeline.lake.jobs import ingest
from wanderbus.records import Started

pytestmark = pytest.mark.spark

START_US = 1_700_000_000_000_000
"""14 November 2023, 22:13:20 UTC."""

LATE = """pattern late by Tail match A: arrival (delay > 30) then not C: swap then B: departure (delay > 15)
within 2 hours emit late_turn with Tail = A.Tail, added = B.delay - A.delay"""
EVENTS = (
    Event("arrival", {"Tail": "N1", "delay": 40}),
    Event("arrival", {"Tail": "N2", "delay": 40}),
    Event("swap", {"Tail": "N2"}),
    Event("departure", {"Tail": "N2", "delay": 90}),
    Event("departure", {"Tail": "N1", "delay": 50}),
    Event("arrival", {"Tail": "N2", "delay": 31}),
    Event("departure", {"Tail": "N2", "delay": 30}),
)

Command = Callable[..., list[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a server that received an event every minute."""
    records = [
        Started(at_us=START_US, server="wb", incarnation=1),
        *(published(each, number=number, at_us=_at(number)) for number, each in enumerate(EVENTS, 1)),
    ]
    return write_records(tmp_path / "data" / "log", records).parent


def _at(number: int) -> int:
    return START_US + number * 60_000_000


@pytest.fixture
def pattern_run(use_session: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs ``pattern run`` and returns its lines, on standard error if it fails."""
    use_session(past_events)

    def command(*arguments: str, status: int = 0) -> list[str]:
        assert run(["pattern", "run", *arguments]) == status
        output = capsys.readouterr()
        lines = (output.err if status else output.out + output.err).splitlines()
        return [line for line in lines if not line.endswith("tasks done")]

    return command


def test_detections_in_a_log_and_a_lake_are_printed_the_earliest_first(
    spark: SparkSession, pattern_run: Command, data: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    ingest(spark, data / "log", lake, tmp_path / "checkpoint")
    lines = pattern_run(LATE, "--log", str(data))
    assert [line.split(" ")[:2] for line in lines] == [[str(_at(5)), "late_turn"], [str(_at(7)), "late_turn"]]
    rows = [json.loads(line) for line in pattern_run(LATE, "--lake", str(lake), "--json")]
    assert [row["attributes"] for row in rows] == [{"Tail": "N1", "added": 10}, {"Tail": "N2", "added": -1}]
    assert rows[0]["events"] == [
        {"step": "A", "offset": 1, "id": "wb-1-1"},
        {"step": "B", "offset": 5, "id": "wb-1-5"},
    ]
    assert [json.loads(line) for line in pattern_run(LATE, "--log", str(data), "--json")] == rows


def test_bounds_are_offsets_or_times(pattern_run: Command, data: Path) -> None:
    assert [line.split(" ")[0] for line in pattern_run(LATE, "--log", str(data), "--from", "2")] == [str(_at(7))]
    to = pattern_run(LATE, "--log", str(data), "--to", "2023-11-14T22:19:00Z")
    assert [line.split(" ")[0] for line in to] == [str(_at(5))]


def test_refusals_of_bounds_are_reported(pattern_run: Command, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wanderbus.cli.pattern import pattern_input
    from wanderbus.patterns import compile_pattern

    monkeypatch.setattr(pattern_input, "compile_pattern", lambda text: compile_pattern(text, partial_matches_max=1))
    lines = pattern_run("match A: arrival then B: swap then C: nothing within 1 hour", "--log", str(data))
    assert [line for line in lines if "refused" in line] == [
        "wanderbus: 3 partial matches were refused: one key had too many; detections may be missing"
    ]


def test_the_events_are_given_once(pattern_run: Command, data: Path, tmp_path: Path) -> None:
    events = str(tmp_path / "events.jsonl")
    for arguments in ([], ["--lake", "a", "--log", "b"], ["--lake", "a", "--events", events]):
        [line] = pattern_run(LATE, *arguments, status=2)
        assert "give the events once" in line
    [line] = pattern_run(LATE, "--events", events, "--from", "3", status=2)
    assert "--from and --to are for the events of --lake or --log" in line
    [line] = pattern_run(LATE, "--lake", str(tmp_path / "none"), status=1)
    assert "has no" in line
