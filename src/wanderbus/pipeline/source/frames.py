"""Frames of a part of a segment, each checked; damage costs the records that it hit and no other (SPEC T-01, T-02).

Offsets are dense, so a reader knows which records a part must have. After damage it continues at the next frame that
has one of the awaited offsets and a correct checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from wanderbus.segments import FRAME_HEAD, FRAME_OVERHEAD_BYTES

_CHECKED_FROM: Final = 8
"""Byte of a frame at which its checksummed part begins."""

_WINDOW_BYTES: Final = 1 << 20
"""Bytes that are searched at once for a frame."""

ROWS_MAX: Final = 8_192
"""Frames in one group."""

GROUP_BYTES_MAX: Final = 8 << 20
"""Bytes of payload in one group; one more frame is always allowed."""


class RecordFrames(NamedTuple):
    """Consecutive records from offset ``first`` on, in columns; a damaged record has neither time nor payload."""

    first: int
    times: list[int | None]
    payloads: list[bytes | None]
    places: list[int]
    """Bytes, counted from the begin of the data, at which the frames begin, or the damage does."""


def frame_groups(data: bytes, first: int, end: int) -> Iterator[RecordFrames]:
    """Yield the records from offset ``first`` up to ``end``, whose frames are ``data``, in groups."""
    place = 0
    while first < end:
        group = RecordFrames(first, [], [], [])
        place, is_damaged = _gather(data, place, min(end, first + ROWS_MAX), group)
        if is_damaged:
            place = _pass_damage(data, place, end, group)
        yield group
        first += len(group.times)


def next_frame(data: bytes, start: int, first: int, end: int) -> tuple[int, int] | None:
    """Return the place and the offset of the first whole frame from ``start`` on with an offset in ``first..end-1``."""
    for window in range(start, len(data), _WINDOW_BYTES):
        for place in _candidates(data, window, first, end):
            if frame_end(data, place) is not None:
                return place, int(FRAME_HEAD.unpack_from(data, place)[2])
    return None


def frame_end(data: bytes, place: int) -> int | None:
    """Return the place after the frame that begins at ``place``; None if there is no whole frame."""
    if place + FRAME_OVERHEAD_BYTES > len(data):
        return None
    length, checksum, _, _ = FRAME_HEAD.unpack_from(data, place)
    after = int(place + FRAME_OVERHEAD_BYTES + length)
    if after > len(data) or crc32(memoryview(data)[place + _CHECKED_FROM : after]) != checksum:
        return None
    return after


def _candidates(data: bytes, start: int, first: int, end: int) -> list[int]:
    """Return the places in the window at ``start`` where a frame with such an offset may begin, in order."""
    places: list[int] = []
    for begin in range(start, start + 8):
        last = min(start + _WINDOW_BYTES - 1, len(data) - FRAME_OVERHEAD_BYTES)
        count = (last - begin) // 8 + 1
        if count <= 0:
            break
        offsets = np.frombuffer(data, "<i8", count, begin + _CHECKED_FROM)
        lengths = np.frombuffer(data, "<i8", count, begin) & 0xFFFFFFFF
        fits = (offsets >= first) & (offsets < end) & (lengths > 0) & (lengths <= len(data))
        places += (np.flatnonzero(fits) * 8 + begin).tolist()
    return sorted(places)


def _gather(data: bytes, place: int, end: int, group: RecordFrames) -> tuple[int, bool]:
    """Append frames to the group until it is full or one is damaged.

    Returns the place after the last one, and whether there is damage.
    """
    unpack, view, size = FRAME_HEAD.unpack_from, memoryview(data), len(data)
    times, payloads, places, offset = group.times, group.payloads, group.places, group.first
    room = GROUP_BYTES_MAX
    while offset < end and room > 0:
        body = place + FRAME_OVERHEAD_BYTES
        if body > size:
            return place, True
        length, checksum, found, at_us = unpack(data, place)
        after = body + length
        if found != offset or after > size or crc32(view[place + _CHECKED_FROM : after]) != checksum:
            return place, True
        times.append(at_us)
        payloads.append(data[body:after])
        places.append(place)
        place, offset, room = after, offset + 1, room - length
    return place, False


def _pass_damage(data: bytes, place: int, end: int, group: RecordFrames) -> int:
    """Append the records lost by the damage at ``place``, at most a group of them; return where to continue."""
    lost = group.first + len(group.times)
    found = next_frame(data, place, lost, end)
    following, resumed = (len(data), end) if found is None else found
    count = min(resumed - lost, ROWS_MAX)
    group.times.extend([None] * count)
    group.payloads.extend([None] * count)
    group.places.extend([place] * count)
    return following if lost + count == resumed else place
