"""Places in a log: they recognise it by its content after its directory was restored or replaced (SPEC T-01)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.log_reader import RecordPlace
from wanderbus.runtime.log_place import LogReplaced, checked_place, checksum_before, place_at
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import FRAME_OVERHEAD_BYTES, HEADER, LogPlace, record_checksum


def extended(directory: Path, *payloads: bytes) -> None:
    """Append records in segments of two records each."""
    log = EventLog.open(directory, segment_bytes_max=80)
    log.append([(offset, 1_000 + offset, payload) for offset, payload in enumerate(payloads, log.next_offset)])
    log.sync()
    log.close()


def checked(directory: Path, place: LogPlace) -> LogPlace:
    return checked_place(directory, place, reader="the lake x", remedy="begin with a new lake")


def test_a_place_has_the_checksum_of_the_record_before_it(tmp_path: Path) -> None:
    extended(tmp_path, b"a" * 20, b"b" * 20, b"c" * 20)
    assert place_at(tmp_path, 0) == LogPlace(0)
    assert place_at(tmp_path, 2) == LogPlace(2, record_checksum(1, 1_001, b"b" * 20))
    assert place_at(tmp_path, 3) == LogPlace(3, record_checksum(2, 1_002, b"c" * 20))
    known = RecordPlace(segment_paths(tmp_path)[0], len(HEADER) + FRAME_OVERHEAD_BYTES + 20)
    assert place_at(tmp_path, 2, known) == place_at(tmp_path, 2)


def test_a_log_that_grew_is_still_the_log_of_a_place(tmp_path: Path) -> None:
    extended(tmp_path, b"a", b"b")
    place = place_at(tmp_path, 2)
    extended(tmp_path, b"c", b"d")
    assert checked(tmp_path, place) == place
    assert checked(tmp_path, LogPlace(0)) == LogPlace(0)


def test_a_restored_log_is_recognised_before_and_after_it_grows_past_the_place(tmp_path: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "copy"
    extended(log, b"1", b"2", b"3")
    shutil.copytree(log, copy)
    extended(log, b"4", b"5")
    place = place_at(log, 5)
    shutil.rmtree(log)
    shutil.copytree(copy, log)
    with pytest.raises(
        LogReplaced, match=r"log is not the log that the lake x has read: it ends before record 3"
    ) as error:
        checked(log, place)
    assert str(error.value).endswith("begin with a new lake")
    extended(log, b"4", b"6", b"7")
    with pytest.raises(LogReplaced, match="record 4 is another one"):
        checked(log, place)
    assert checked(log, place_at(copy, 3)) == place_at(copy, 3), "a reader that stopped before the copy continues"


def test_the_same_payload_at_another_time_is_another_record(tmp_path: Path) -> None:
    extended(tmp_path, b"a")
    with pytest.raises(LogReplaced):
        checked(tmp_path, LogPlace(1, record_checksum(0, 999, b"a")))


def test_a_place_stored_without_a_checksum_gets_it_when_it_is_checked(tmp_path: Path) -> None:
    extended(tmp_path, b"a", b"b")
    assert checked(tmp_path, LogPlace(2)) == place_at(tmp_path, 2)
    with pytest.raises(LogReplaced, match="it ends before record 2"):
        checked(tmp_path, LogPlace(3))


def test_a_record_that_was_removed_or_is_damaged_is_not_compared(tmp_path: Path) -> None:
    extended(tmp_path, *(bytes([65 + number]) * 20 for number in range(5)))
    places = [place_at(tmp_path, offset) for offset in range(6)]
    first, second, *_ = segment_paths(tmp_path)
    first.unlink()
    assert checksum_before(tmp_path, 2) is None
    assert checked(tmp_path, places[2]) == places[2]
    second.write_bytes(second.read_bytes().replace(b"D", b"X"))
    assert checksum_before(tmp_path, 4) is None
    assert checked(tmp_path, places[4]) == places[4], "the checksum of before is kept"
    assert checked(tmp_path, places[5]) == places[5]
