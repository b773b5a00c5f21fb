"""Check of a whole log: damage is named, and an unfinished tail is not damage (SPEC T-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderbus import records
from wanderbus.errors import StorageError
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.log_check import LogReport, check_log
from wanderbus.segments import HEADER, HIGH_WATER, segment_name

RECORD = records.encode_record(records.Started(at_us=1, server="wb", incarnation=1))
FRAME_BYTES = 24 + len(RECORD)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of eight records in three segments."""
    written = EventLog.open(tmp_path, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    written.append([(offset, offset, RECORD) for offset in range(8)])
    written.sync()
    written.close()
    return tmp_path


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 0xFF
    path.write_bytes(data)


def test_a_whole_log(log: Path) -> None:
    seen: list[int] = []
    report = check_log(log, lambda report: seen.append(report.records))
    assert report == LogReport(
        directory=str(log), segments=3, records=8, bytes=3 * len(HEADER) + 8 * FRAME_BYTES, first=0, next=8, durable=8
    )
    assert seen == [3, 6, 8]


def test_damage_anywhere_is_found_and_the_rest_is_read(log: Path) -> None:
    flip(log / segment_name(0), len(HEADER) + FRAME_BYTES + 20)
    report = check_log(log)
    assert f"{segment_name(0)} is damaged at byte {len(HEADER) + FRAME_BYTES}: record 1" in report.damage[0]
    assert (report.segments, report.next) == (3, 8)


def test_a_missing_segment_is_damage(log: Path) -> None:
    (log / segment_name(3)).unlink()
    (line,) = check_log(log).damage
    assert "does not begin at record 3: a segment is missing" in line


def test_an_unacknowledged_record_may_be_cut(log: Path) -> None:
    with (log / segment_name(6)).open("ab") as segment:
        segment.write(b"torn")
    report = check_log(log)
    assert (report.damage, report.unfinished_bytes) == ([], 4)


def test_an_acknowledged_record_may_not_be_cut(log: Path) -> None:
    with (log / segment_name(6)).open("r+b") as segment:
        segment.truncate(len(HEADER) + FRAME_BYTES + 5)
    assert len(check_log(log).damage) == 2


def test_records_that_this_version_does_not_know_are_damage(tmp_path: Path) -> None:
    written = EventLog.open(tmp_path)
    written.append([(0, 1, b"?")])
    written.sync()
    written.close()
    (line,) = check_log(tmp_path).damage
    assert "record 0 has another format" in line


def test_no_log_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds no event log; give a server's data directory"):
        check_log(tmp_path)


@pytest.mark.parametrize("base", [0, 3, 6, 99])
def test_a_directory_in_the_place_of_a_segment_is_one_line(log: Path, base: int) -> None:
    path = log / segment_name(base)
    path.unlink(missing_ok=True)
    path.mkdir()
    seen: list[int] = []
    report = check_log(log, lambda report: seen.append(report.records))
    assert report.damage == [f"{path} cannot be read: Is a directory; restore it from a copy"]
    assert report.records == {0: 5, 3: 5, 6: 6, 99: 8}[base]


def test_a_directory_in_the_place_of_the_mark_is_one_line(log: Path) -> None:
    (log / HIGH_WATER).unlink()
    (log / HIGH_WATER).mkdir()
    report = check_log(log)
    assert report.damage == [f"{log / HIGH_WATER} cannot be read: Is a directory; move it away"]
    assert report.records == 8
