"""The framing of the event log's segments (DESIGN 8, SPEC T-01)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.segments import FRAME_OVERHEAD_BYTES, HEADER, frames, pack_frame, pack_mark, segment_name, unpack_mark

entries = st.lists(st.tuples(st.integers(0, 2**62), st.integers(-(2**62), 2**62), st.binary(max_size=40)), max_size=6)


def packed(written: list[tuple[int, int, bytes]]) -> bytes:
    return HEADER + b"".join(pack_frame(*entry) for entry in written)


@given(written=entries)
def test_frames_are_read_with_their_end_offsets(written: list[tuple[int, int, bytes]]) -> None:
    data = packed(written)
    read = list(frames(data, len(HEADER)))
    assert [(frame.offset, frame.at_us, frame.payload) for frame in read] == written
    ends = [len(packed(written[: n + 1])) for n in range(len(written))]
    assert [frame.end for frame in read] == ends


@given(written=entries.filter(bool), data=st.data())
def test_t01_a_torn_tail_ends_the_readable_part_and_nothing_before_it_is_lost(
    written: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    whole = packed(written)
    cut = data.draw(st.integers(len(HEADER), len(whole) - 1))
    read = list(frames(whole[:cut], len(HEADER)))
    assert [(f.offset, f.at_us, f.payload) for f in read] == [
        entry for n, entry in enumerate(written) if len(packed(written[: n + 1])) <= cut
    ]


@given(written=entries.filter(bool), data=st.data())
def test_t01_a_flipped_bit_ends_the_readable_part_before_its_frame(
    written: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    whole = bytearray(packed(written))
    at = data.draw(st.integers(len(HEADER), len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = next(n for n in range(len(written)) if at < len(packed(written[: n + 1])))
    read = list(frames(bytes(whole), len(HEADER)))
    assert [(f.offset, f.at_us, f.payload) for f in read] == written[:damaged]


def test_a_frame_takes_its_payload_and_the_stated_overhead() -> None:
    assert len(pack_frame(1, 2, b"abc")) == FRAME_OVERHEAD_BYTES + 3


def test_t01_the_frozen_bytes_of_a_segment() -> None:
    """Logs of today must be read by every later version: these bytes never change."""
    assert HEADER == b"WBLOG\x00\x00\x01"
    assert (
        pack_frame(1, 2, b"abc").hex() == "03000000" + "2668e39f" + "0100000000000000" + "0200000000000000" + "616263"
    )


def test_names_sort_by_offset() -> None:
    offsets = [0, 9, 10, 99_999, 10**18]
    assert sorted(map(segment_name, reversed(offsets))) == [segment_name(offset) for offset in offsets]
    assert segment_name(42) == "00000000000000000042.seg"


@given(offset=st.integers(0, 2**62))
def test_the_durable_mark_survives(offset: int) -> None:
    assert unpack_mark(pack_mark(offset)) == offset


@pytest.mark.parametrize("damage", [b"", b"x", pack_mark(5)[:-1], pack_mark(5) + b"\x00", b"\x00" * 12])
def test_a_damaged_mark_is_none(damage: bytes) -> None:
    assert unpack_mark(damage) is None


@given(offset=st.integers(0, 2**62), bit=st.integers(0, 95))
def test_a_mark_with_a_flipped_bit_is_none(offset: int, bit: int) -> None:
    data = bytearray(pack_mark(offset))
    data[bit // 8] ^= 1 << bit % 8
    assert unpack_mark(bytes(data)) is None
