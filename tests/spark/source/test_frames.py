"""Damage to a segment costs the records that it hit; all others are read, however the segment is cut (SPEC T-01)."""

from __future__ import annotations

import tempfile
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.pipeline.source import frames as frames_module
from wanderbus.pipeline.source.frames import frame_groups, next_frame
from wanderbus.pipeline.source.log_files import LogFiles, read_slice
from wanderbus.segments import HEADER, pack_frame, segment_name

FIRST = 1_000
payload_lists = st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=40)


def read(data: bytes, first: int, end: int) -> list[bytes | None]:
    return [payload for group in frame_groups(data, first, end) for payload in group.payloads]


def packed(payloads: list[bytes]) -> list[bytes]:
    return [pack_frame(offset, offset * 7, payload) for offset, payload in enumerate(payloads, FIRST)]


@given(payload_lists)
def test_all_records_are_read_with_their_times_and_places(payloads: list[bytes]) -> None:
    parts = packed(payloads)
    [group] = frame_groups(b"".join(parts), FIRST, FIRST + len(parts))
    assert group.first == FIRST
    assert group.payloads == payloads
    assert group.times == [offset * 7 for offset in range(FIRST, FIRST + len(parts))]
    assert group.places == [0, *accumulate(map(len, parts))][:-1]


@settings(max_examples=200)
@given(payload_lists, st.data())
def test_damage_anywhere_costs_no_other_record(payloads: list[bytes], data: st.DataObject) -> None:
    """The bytes of any one frame are overwritten; whole segments are read in pieces of any size."""
    parts = packed(payloads)
    hit = data.draw(st.integers(0, len(parts) - 1))
    size = len(parts[hit])
    start = data.draw(st.integers(0, size - 1))
    noise = data.draw(st.binary(min_size=1, max_size=size - start))
    damaged = parts[hit][:start] + noise + parts[hit][start + len(noise) :]
    content = b"".join((*parts[:hit], damaged, *parts[hit + 1 :]))
    expected: list[bytes | None] = list(payloads)
    expected[hit] = payloads[hit] if damaged == parts[hit] else None
    assert read(content, FIRST, FIRST + len(parts)) == expected
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, segment_name(FIRST)).write_bytes(HEADER + content)
        records_max = data.draw(st.integers(1, len(parts)))
        slices = LogFiles(Path(directory)).slices(FIRST, FIRST + len(parts), records_max)
        found = [payload for part in slices for group in read_slice(part) for payload in group.payloads]
    assert found == expected


@given(payload_lists, st.integers(0, 500))
def test_a_segment_that_is_too_short_loses_its_end_alone(payloads: list[bytes], cut: int) -> None:
    parts = packed(payloads)
    content = b"".join(parts)
    cut = min(cut, len(content))
    whole = sum(end <= len(content) - cut for end in accumulate(map(len, parts)))
    found = read(content[: len(content) - cut], FIRST, FIRST + len(parts))
    assert found == [*payloads[:whole], *[None] * (len(parts) - whole)]


def test_a_frame_within_a_payload_does_not_count_while_the_log_is_whole() -> None:
    parts = [pack_frame(0, 1, pack_frame(1, 1, b"false")), pack_frame(1, 1, b"true")]
    assert read(b"".join(parts), 0, 2) == [pack_frame(1, 1, b"false"), b"true"]


def test_records_that_share_a_byte_of_damage_are_lost_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "ROWS_MAX", 4)
    parts = packed([b"x"] * 30)
    content = b"".join((*parts[:3], bytes(sum(map(len, parts[3:27]))), *parts[27:]))
    groups = list(frame_groups(content, FIRST, FIRST + 30))
    assert [len(group.payloads) for group in groups][:1] == [7]
    assert max(len(group.payloads) for group in groups) <= 8
    assert [group.first for group in groups] == [FIRST, *(FIRST + end for end in accumulate(map(length, groups)))][:-1]
    found = [payload for group in groups for payload in group.payloads]
    assert found == [b"x"] * 3 + [None] * 24 + [b"x"] * 3


def length(group: frames_module.RecordFrames) -> int:
    return len(group.payloads)


def test_a_group_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "GROUP_BYTES_MAX", 100)
    groups = list(frame_groups(b"".join(packed([b"x" * 60] * 5)), FIRST, FIRST + 5))
    assert [len(group.payloads) for group in groups] == [2, 2, 1]


def test_the_next_frame_is_found_across_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "_WINDOW_BYTES", 64)
    for gap in range(200):
        data = b"\x01" * gap + pack_frame(77, 1, b"payload")
        assert next_frame(data, 0, 70, 80) == (gap, 77)
        assert next_frame(data, 0, 78, 80) is None
        assert next_frame(data[:-1], 0, 70, 80) is None


@given(payload_lists, st.data())
def test_a_missing_frame_costs_its_record_alone(payloads: list[bytes], data: st.DataObject) -> None:
    parts = packed(payloads)
    hit = data.draw(st.integers(0, len(parts) - 1))
    content = b"".join((*parts[:hit], *parts[hit + 1 :]))
    assert read(content, FIRST, FIRST + len(parts)) == [*payloads[:hit], None, *payloads[hit + 1 :]]
