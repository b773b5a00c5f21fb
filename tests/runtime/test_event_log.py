"""The event log: durable records stay, a torn tail is removed, other damage is reported (SPEC T-01, DESIGN 5.1)."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.log import log_recovery
from wanderbus.runtime.log.event_log import SEGMENT_BYTES_MAX, EventLog
from wanderbus.segments import (
    FRAME_OVERHEAD_BYTES,
    HEADER,
    HIGH_WATER,
    frames,
    pack_frame,
    pack_mark,
    segment_name,
    unpack_mark,
)

FRAME_BYTES = FRAME_OVERHEAD_BYTES + 10


def entries(first: int, count: int) -> list[tuple[int, int, bytes]]:
    return [(offset, 1_000 + offset, b"%010d" % offset) for offset in range(first, first + count)]


def offsets(log: EventLog, start: int = 0) -> list[int]:
    return [frame.offset for frame in log.read(start)]


def written(directory: Path, count: int, *, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> Path:
    """Make a closed log of ``count`` durable records; return its last segment."""
    log = EventLog.open(directory, segment_bytes_max=segment_bytes_max)
    log.append(entries(0, count))
    log.sync()
    log.close()
    return sorted(directory.glob("*.seg"))[-1]


def published_mark(directory: Path) -> int | None:
    return unpack_mark((directory / "durable").read_bytes())


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path / "log")
    log.append([(0, 5, b"first"), (1, 6, b"")])
    log.append([(2, 7, b"third")])
    assert [(f.offset, f.at_us, f.payload) for f in log.read()] == [(0, 5, b"first"), (1, 6, b""), (2, 7, b"third")]
    assert offsets(log, 2) == [2]
    assert offsets(log, 9) == []
    log.close()


def test_only_a_sync_moves_the_published_mark(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path)
    log.append(entries(0, 3))
    assert (log.next_offset, log.durable_offset, published_mark(tmp_path)) == (3, 0, 0)
    assert log.sync() == 3
    assert (log.durable_offset, published_mark(tmp_path)) == (3, 3)
    log.close()


def test_a_log_continues_where_it_was_closed(tmp_path: Path) -> None:
    written(tmp_path, 3)
    log = EventLog.open(tmp_path)
    assert log.next_offset == 3
    log.append(entries(3, 2))
    assert offsets(log) == [0, 1, 2, 3, 4]
    log.close()


def test_segments_roll_at_their_size_and_are_named_by_their_first_offset(tmp_path: Path) -> None:
    written(tmp_path, 10, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    names = sorted(path.name for path in tmp_path.glob("*.seg"))
    assert names == [segment_name(offset) for offset in (0, 3, 6, 9)]
    log = EventLog.open(tmp_path)
    assert offsets(log) == list(range(10))
    assert offsets(log, 4) == list(range(4, 10))
    log.close()


def test_a_hole_in_the_offsets_is_a_programming_error(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path)
    with pytest.raises(AssertionError, match="offset 1 where 0 is next"):
        log.append(entries(1, 1))
    log.close()


def test_a_second_writer_is_refused_in_one_line(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path)
    with pytest.raises(StorageError, match=r"in use by another process; stop that one first$"):
        EventLog.open(tmp_path)
    log.close()
    EventLog.open(tmp_path).close()


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path)
    log.close()
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        log.append(entries(0, 1))
    with pytest.raises(StorageError, match="is closed"):
        log.sync()


def test_whole_records_beyond_the_mark_are_kept_and_made_durable(tmp_path: Path) -> None:
    """SPEC T-01: after ``kill -9`` the page cache still has the written but unsynced records."""
    log = EventLog.open(tmp_path)
    log.append(entries(0, 4))
    log.close()
    assert published_mark(tmp_path) == 0
    log = EventLog.open(tmp_path)
    assert (log.next_offset, published_mark(tmp_path)) == (4, 4)
    log.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, FRAME_BYTES - 1))
def test_a_torn_tail_is_put_aside_and_cut(tmp_path: Path, cut: int) -> None:
    """SPEC T-01: a torn tail after ``kill -9`` is skipped, no acknowledged record is missing."""
    directory = tmp_path / str(cut) / os.urandom(4).hex()
    segment = written(directory, 3)
    torn = pack_frame(3, 1_003, b"%010d" % 3)[:cut]
    with segment.open("ab") as file:
        file.write(torn)
    log = EventLog.open(directory)
    assert log.next_offset == 3
    assert segment.with_name(f"{segment.name}.torn").read_bytes() == torn
    log.append(entries(3, 1))
    assert offsets(log) == [0, 1, 2, 3]
    log.close()


def test_a_second_torn_tail_does_not_overwrite_the_first(tmp_path: Path) -> None:
    for tail in (b"one", b"two"):
        segment = written(tmp_path, 0)
        with segment.open("ab") as file:
            file.write(tail)
    EventLog.open(tmp_path).close()
    assert (tmp_path / f"{segment.name}.torn").read_bytes() == b"onetwo"


@pytest.mark.parametrize("left", [b"", HEADER[:3], b"\x00" * 64])
def test_a_segment_that_was_just_begun_is_begun_again(tmp_path: Path, left: bytes) -> None:
    written(tmp_path, 3, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    (tmp_path / segment_name(3)).write_bytes(left)
    log = EventLog.open(tmp_path)
    log.append(entries(3, 1))
    assert offsets(log) == [0, 1, 2, 3]
    log.close()


def refused_untouched(directory: Path) -> str:
    """Return the one-line error that refuses the log; nothing in the directory may have changed."""
    before = contents(directory)
    with pytest.raises(LogCorrupt) as caught:
        EventLog.open(directory)
    assert contents(directory) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 0xFF
    path.write_bytes(data)


def test_damage_below_the_mark_is_reported_with_file_and_byte(tmp_path: Path) -> None:
    segment = written(tmp_path, 3)
    flip(segment, len(HEADER) + 2 * FRAME_BYTES + 12)
    line = refused_untouched(tmp_path)
    assert f"{segment} is damaged at byte {len(HEADER) + 2 * FRAME_BYTES}: record 2 cannot be read" in line
    assert "records below 3 were durable" in line
    assert "restore it from a copy" in line


def damaged_before_a_whole_record(directory: Path, byte: int) -> Path:
    """Write record 0 durably and 1 and 2 unsynced, and damage 1 at ``byte`` of its frame."""
    segment = written(directory, 1)
    with segment.open("ab") as file:
        for offset, at_us, payload in entries(1, 2):
            file.write(pack_frame(offset, at_us, payload))
    flip(segment, len(HEADER) + FRAME_BYTES + byte)
    return segment


@pytest.mark.parametrize("byte", [0, 4, 8, FRAME_BYTES - 1])
def test_damage_before_intact_records_is_reported_without_a_durable_mark(tmp_path: Path, byte: int) -> None:
    """The damage may hit a length, checksum, offset or payload: the later record is found at any position."""
    damaged_before_a_whole_record(tmp_path, byte)
    (tmp_path / HIGH_WATER).unlink()
    line = refused_untouched(tmp_path)
    assert f"damaged at byte {len(HEADER) + FRAME_BYTES}" in line
    assert "record 2 after it is intact" in line


def test_a_power_cut_may_leave_later_pages_of_what_was_never_synced(tmp_path: Path) -> None:
    """No record beyond the mark was acknowledged: they are set aside even if a whole record follows the damage."""
    segment = damaged_before_a_whole_record(tmp_path, 8)
    log = EventLog.open(tmp_path)
    assert log.next_offset == 1
    assert len(segment.with_name(f"{segment.name}.torn").read_bytes()) == 2 * FRAME_BYTES
    log.close()


def test_damage_in_an_earlier_segment_is_reported(tmp_path: Path) -> None:
    written(tmp_path, 5, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    flip(tmp_path / segment_name(0), len(HEADER) + 2 * FRAME_BYTES)
    assert "later segments follow it" in refused_untouched(tmp_path)


def test_a_start_reads_the_last_segment_and_of_the_others_the_last_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log starts as fast as a short one; a reader finds damage elsewhere."""
    written(tmp_path, 11, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    flip(tmp_path / segment_name(3), len(HEADER) + FRAME_BYTES + 20)
    read: list[str] = []
    whole = log_recovery._read_segment

    def noted(path: Path) -> log_recovery._Tail:
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(log_recovery, "_read_segment", noted)
    log = EventLog.open(tmp_path)
    assert read == [segment_name(9)]
    assert offsets(log, 6) == [6, 7, 8, 9, 10]
    with pytest.raises(LogCorrupt, match=f"{segment_name(3)} is damaged at byte {len(HEADER) + FRAME_BYTES}: record 4"):
        offsets(log)
    log.close()


def test_a_record_in_the_place_of_another_is_found_when_it_is_read(tmp_path: Path) -> None:
    written(tmp_path, 7, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    with (tmp_path / segment_name(3)).open("r+b") as segment:
        segment.seek(len(HEADER) + FRAME_BYTES)
        segment.write(pack_frame(2, 1_002, b"%010d" % 2))
    log = EventLog.open(tmp_path)
    with pytest.raises(LogCorrupt, match="record 4 cannot be read"):
        offsets(log)
    log.close()


def test_the_mark_of_a_new_log_is_there_before_its_first_record(tmp_path: Path) -> None:
    """Without a mark, a write that a power cut interrupted could not be distinguished from damage."""
    EventLog.open(tmp_path).close()
    assert published_mark(tmp_path) == 0
    segment = damaged_before_a_whole_record(tmp_path, 8)
    (tmp_path / HIGH_WATER).write_bytes(pack_mark(0))
    log = EventLog.open(tmp_path)
    assert log.next_offset == 1
    assert segment.with_name(f"{segment.name}.torn").stat().st_size == 2 * FRAME_BYTES
    log.close()


def test_a_missing_segment_is_reported(tmp_path: Path) -> None:
    written(tmp_path, 9, segment_bytes_max=len(HEADER) + 3 * FRAME_BYTES)
    (tmp_path / segment_name(3)).unlink()
    assert "does not begin at record 3: a segment is missing" in refused_untouched(tmp_path)


def test_segments_that_vanished_are_not_taken_for_an_empty_log(tmp_path: Path) -> None:
    written(tmp_path, 2).unlink()
    assert "no segment although 2 records were made durable" in refused_untouched(tmp_path)


def test_a_foreign_header_is_reported(tmp_path: Path) -> None:
    flip(written(tmp_path, 2), 7)
    assert "damaged at byte 0" in refused_untouched(tmp_path)


def test_a_spoilt_mark_costs_nothing_while_the_segments_are_whole(tmp_path: Path) -> None:
    written(tmp_path, 3)
    (tmp_path / "durable").write_bytes(b"\x00" * 12)
    log = EventLog.open(tmp_path)
    assert (log.next_offset, published_mark(tmp_path)) == (3, 3)
    log.close()


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog.open(tmp_path)
    log.append(entries(0, 1))
    whole = os.write
    calls: list[int] = []

    def full_after_some(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return whole(descriptor, bytes(data)[:20])

    monkeypatch.setattr(os, "write", full_after_some)
    with pytest.raises(OSError, match="No space left"):
        log.append(entries(1, 2))
    monkeypatch.undo()
    assert log.next_offset == 1
    log.append(entries(1, 2))
    assert offsets(log) == [0, 1, 2]
    log.close()


def test_after_a_failed_sync_nothing_more_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel reports a failed write-back once: a second, successful sync would prove nothing."""

    def broken(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    log = EventLog.open(tmp_path)
    log.append(entries(0, 1))
    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        log.sync()
    monkeypatch.undo()
    with pytest.raises(OSError, match="reopen the log"):
        log.sync()
    with pytest.raises(OSError, match="reopen the log"):
        log.append(entries(1, 1))
    assert log.durable_offset == 0
    log.close()


def test_appends_may_go_on_while_another_thread_syncs(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path, segment_bytes_max=len(HEADER) + 20 * FRAME_BYTES)
    done = threading.Event()

    def keep_syncing() -> None:
        while not done.is_set():
            log.sync()

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    for first in range(0, 600, 7):
        log.append(entries(first, 7))
    done.set()
    thread.join()
    assert log.sync() == log.next_offset == 602
    assert offsets(log) == list(range(602))
    log.close()


def test_frames_hold_the_declared_bytes(tmp_path: Path) -> None:
    """The files follow :mod:`wanderbus.segments`, so that other readers do not need the writer."""
    data = written(tmp_path, 2).read_bytes()
    assert data.startswith(HEADER)
    assert [frame.payload for frame in frames(data, len(HEADER))] == [b"0000000000", b"0000000001"]


def test_a_deleted_log_confirms_nothing_and_names_the_cause(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path / "log")
    log.append(entries(0, 2))
    log.sync()
    shutil.rmtree(tmp_path / "log")
    log.append(entries(2, 1))
    for _ in range(2):
        with pytest.raises(OSError, match="deleted while it was in use"):
            log.sync()
    assert log.durable_offset == 2
    with pytest.raises(StorageError, match="was deleted"):
        assert log.oldest_offset
    log.close()
