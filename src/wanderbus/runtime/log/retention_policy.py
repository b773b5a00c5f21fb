"""Decision which segments of the event log may go (SPEC T-01, DESIGN 5.1); pure.

Segments go from the oldest on. One goes when everybody who needs records is past it, its records are old enough, and
enough bytes remain without it. The segment that is written never goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class Segment(NamedTuple):
    """One segment: offsets of its first record and of the first one after it, its size, and the end of its time."""

    first: int
    end: int
    bytes: int
    ended_us: int | None
    """Time of the first record after it, in microseconds since the Unix epoch; None if there is none yet."""


class Hold(NamedTuple):
    """A need for all records from ``offset`` on."""

    name: str
    offset: int


class Keep(msgspec.Struct, frozen=True):
    """Age of records and size of the log that retention keeps at least; None is no minimum."""

    seconds: float | None = None
    bytes: int | None = None

    @property
    def everything(self) -> bool:
        """Return whether nothing is configured, so that nothing is removed."""
        return self.seconds is None and self.bytes is None


def removable(segments: Sequence[Segment], holds: Sequence[Hold], keep: Keep, now_us: int) -> Sequence[Segment]:
    """Return the oldest segments that may go, in the order in which they have to go."""
    for place in range(len(segments)):
        if reasons(segments[place:], holds, keep, now_us):
            return segments[:place]
    return []


def reasons(segments: Sequence[Segment], holds: Sequence[Hold], keep: Keep, now_us: int) -> list[str]:
    """Return what keeps the first of ``segments``: names of holds, ``"age"``, ``"size"``, ``"written"``; empty if it
    may go."""
    segment, *later = segments
    found = [hold.name for hold in holds if hold.offset < segment.end]
    if keep.everything:
        found.append("not configured")
    if keep.seconds and (segment.ended_us is None or now_us - segment.ended_us < keep.seconds * 1e6):
        found.append("age")
    if keep.bytes and sum(each.bytes for each in later) < keep.bytes:
        found.append("size")
    if not later:
        found.append("written")
    return found
