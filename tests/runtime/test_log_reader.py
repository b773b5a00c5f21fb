"""Reading another process's log: only durable records, and never a change (SPEC T-01)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.log import log_reader
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import end_of_log, segment_paths
from wanderbus.segments import HIGH_WATER, Frame, Sliced, frames


def filled(directory: Path, durable: int, written: int) -> EventLog:
    """A log in several segments, of which some is not synced yet; it stays open."""
    log = EventLog.open(directory, segment_bytes_max=200)
    log.append([(offset, offset, b"x" * 40) for offset in range(durable)])
    log.sync()
    log.append([(offset, offset, b"x" * 40) for offset in range(durable, written)])
    return log


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_log_is_read_up_to_the_mark_while_it_is_being_written(tmp_path: Path) -> None:
    log = filled(tmp_path, 10, 12)
    before = contents(tmp_path)
    assert end_of_log(tmp_path) == 10
    assert [frame.offset for frame in read_log(tmp_path, 0, 10)] == list(range(10))
    assert [frame.offset for frame in read_log(tmp_path, 7, 9)] == [7, 8]
    assert list(read_log(tmp_path, 10, 10)) == []
    assert contents(tmp_path) == before
    log.close()


def test_a_log_is_listed_once_however_many_segments_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a listing for each segment, a long backlog would take the square of its length."""
    filled(tmp_path, 100, 100).close()
    listed: list[Path] = []

    def noted(directory: Path) -> list[Path]:
        listed.append(directory)
        return segment_paths(directory)

    monkeypatch.setattr(log_reader, "segment_paths", noted)
    assert [frame.offset for frame in read_log(tmp_path, 1, 100)] == list(range(1, 100))
    assert len(list(tmp_path.glob("*.seg"))) > 20
    assert len(listed) == 1


def test_a_torn_tail_is_not_there(tmp_path: Path) -> None:
    filled(tmp_path, 10, 10).close()
    last = sorted(tmp_path.glob("*.seg"))[-1]
    last.write_bytes(last.read_bytes() + b"\x30\x00\x00\x00torn")
    assert [frame.offset for frame in read_log(tmp_path, 0, 10)] == list(range(10))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    filled(tmp_path, 10, 10).close()
    second = sorted(tmp_path.glob("*.seg"))[1]
    data = bytearray(second.read_bytes())
    data[40] ^= 1
    second.write_bytes(data)
    with pytest.raises(LogCorrupt, match=rf"{second.name} is damaged at byte 8: record {int(second.stem)}"):
        list(read_log(tmp_path, 0, 10))


def test_no_byte_behind_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may truncate a segment behind the durable mark while a reader has it mapped."""
    filled(tmp_path, 3, 3).close()
    ends: list[int] = []

    def noted(data: Sliced, start: int) -> Iterator[Frame]:
        for frame in frames(data, start):
            ends.append(frame.offset)
            yield frame

    monkeypatch.setattr(log_reader, "frames", noted)
    assert [frame.offset for frame in read_log(tmp_path, 0, 2)] == [0, 1]
    assert ends == [0, 1]


def test_missing_logs(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds no event log"):
        end_of_log(tmp_path)
    (tmp_path / HIGH_WATER).write_bytes(b"spoilt")
    with pytest.raises(LogCorrupt, match="has no durable mark"):
        end_of_log(tmp_path)
    with pytest.raises(StorageError, match="no longer has record 0"):
        list(read_log(tmp_path, 0, 1))
    (tmp_path / HIGH_WATER).unlink()
    filled(tmp_path, 10, 10).close()
    min(tmp_path.glob("*.seg")).unlink()
    with pytest.raises(StorageError, match="no longer has record 0"):
        list(read_log(tmp_path, 0, 10))
