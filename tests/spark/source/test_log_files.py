"""Positions in the log, found without Spark (SPEC T-02)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.pipeline.source.log_files import LogFiles, Slice, read_slice
from wanderbus.records import Published
from wanderbus.runtime.segment_files import durable_end
from wanderbus.segments import HEADER, HIGH_WATER, frames, segment_name

WriteLog = Callable[..., Path]
MakePublished = Callable[..., Published]


def offsets(slices: list[Slice]) -> list[int]:
    """Return the offsets of the records that can be read."""
    return [
        group.first + place
        for part in slices
        for group in read_slice(part)
        for place, payload in enumerate(group.payloads)
        if payload is not None
    ]


def test_slices_cover_a_range_exactly_whatever_the_segments(write_log: WriteLog, make_published: MakePublished) -> None:
    log = write_log([make_published(row) for row in range(50)], per_segment=7)
    files = LogFiles(log)
    for first, end in [(0, 50), (0, 1), (6, 8), (7, 14), (13, 43), (49, 50), (20, 20)]:
        slices = files.slices(first, end, records_max=4)
        assert offsets(slices) == list(range(first, end))
        assert all(part.end - part.first <= 4 for part in slices)


def test_positions_far_into_a_segment_are_right(write_log: WriteLog, make_published: MakePublished) -> None:
    """More records than one entry of the sparse index covers, read forwards and backwards."""
    log = write_log([make_published(row) for row in range(3_000)])
    files = LogFiles(log)
    assert offsets(files.slices(2_500, 2_503, 10)) == [2_500, 2_501, 2_502]
    assert offsets(files.slices(1_100, 1_102, 10)) == [1_100, 1_101]


def test_a_slice_ends_where_it_should_beside_bytes_that_are_no_frame(
    write_log: WriteLog, make_published: MakePublished
) -> None:
    log = write_log([make_published(row) for row in range(4)], durable=3)
    segment = log / segment_name(0)
    segment.write_bytes(segment.read_bytes()[:-5])
    assert offsets(LogFiles(log).slices(0, durable_end(log), 10)) == [0, 1, 2]


@pytest.mark.parametrize("byte_in_frame", [0, 3, 4, 8, 16, 30])
@pytest.mark.parametrize("records_max", [1, 2, 10])
def test_damage_costs_the_record_that_it_hit_and_is_located(
    write_log: WriteLog, make_published: MakePublished, byte_in_frame: int, records_max: int
) -> None:
    log = write_log([make_published(row) for row in range(9)], per_segment=6)
    segment = log / segment_name(0)
    data = bytearray(segment.read_bytes())
    byte = next(frames(bytes(data), len(HEADER))).end
    data[byte + byte_in_frame] ^= 0x01
    segment.write_bytes(data)
    slices = LogFiles(log).slices(0, 9, records_max)
    groups = [(part, group) for part in slices for group in read_slice(part)]
    rows = [
        (group.first + place, payload is None, part.path, part.first_byte + group.places[place])
        for part, group in groups
        for place, payload in enumerate(group.payloads)
    ]
    assert [row[0] for row in rows] == list(range(9))
    assert [row for row in rows if row[1]] == [(1, True, str(segment), byte)]


def test_records_that_are_no_longer_kept_are_named(write_log: WriteLog, make_published: MakePublished) -> None:
    log = write_log([make_published(row) for row in range(6)], per_segment=3)
    (log / segment_name(0)).unlink()
    assert LogFiles(log).oldest() == 3
    with pytest.raises(StorageError, match="no longer has record 2: the oldest kept is 3"):
        LogFiles(log).slices(2, 6, 10)


def test_bytes_are_counted_over_segments_and_one_record_always_fits(
    write_log: WriteLog, make_published: MakePublished
) -> None:
    log = write_log([make_published(10 + row) for row in range(9)], per_segment=4)
    frame_bytes = next(frames((log / segment_name(0)).read_bytes(), len(HEADER))).end - len(HEADER)
    files = LogFiles(log)
    assert files.end_within(0, 9, 6 * frame_bytes) == 6
    assert files.end_within(2, 9, 6 * frame_bytes - 1) == 7
    assert files.end_within(3, 9, 1) == 4
    assert files.end_within(0, 9, 10**9) == 9


@pytest.mark.parametrize("name", [HIGH_WATER, segment_name(3)])
def test_a_directory_in_the_place_of_a_file_is_one_line(
    write_log: WriteLog, make_published: MakePublished, name: str
) -> None:
    log = write_log([make_published(row) for row in range(6)], per_segment=3)
    (log / name).unlink()
    (log / name).mkdir()
    with pytest.raises(StorageError, match=f"^{log / name} cannot be read: Is a directory"):
        offsets(LogFiles(log).slices(0, durable_end(log), 10))
