"""``wanderbus log check``: its report of a log, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wanderbus import records
from wanderbus.cli.application import run
from wanderbus.runtime.log.event_log import EventLog


@pytest.fixture
def data(tmp_path: Path) -> Path:
    log = EventLog.open(tmp_path / "data" / "log")
    log.append([(0, 1, records.encode_record(records.Started(at_us=1, server="wb", incarnation=1)))])
    log.sync()
    log.close()
    return tmp_path / "data"


@pytest.mark.parametrize("place", ["", "log"])
def test_an_intact_log_is_reported_as_intact(data: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    assert run(["log", "check", str(data / place)]) == 0
    said = capsys.readouterr()
    assert f"{data / 'log'}: 1 segments, 1 records (0 to 0)" in said.out
    assert said.out.endswith("no damage found\n")
    assert said.err == ""


def test_damage_ends_with_status_1(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = next((data / "log").glob("*.seg"))
    segment.write_bytes(segment.read_bytes()[:-1])
    assert run(["log", "check", str(data), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert len(report["damage"]) == 2
    assert run(["log", "check", str(data)]) == 1
    assert "is damaged at byte 8" in capsys.readouterr().err


def test_no_log_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["log", "check"], ["explain", "wb-1-0", "wb-1-0", "--data-dir"]])
def test_a_directory_in_the_place_of_a_segment_is_one_line(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (segment,) = (data / "log").glob("*.seg")
    segment.unlink()
    segment.mkdir()
    assert run([*arguments, str(data)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{segment} cannot be read: Is a directory; restore it from a copy" in error
