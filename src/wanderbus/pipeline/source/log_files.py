"""Files of the event log outside the server: durable records only, exact positions (SPEC T-02).

This module does not use Spark, take the writer's lock or change a file. It never reads at or beyond the durable mark,
because records there may be half written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.pipeline.source.frames import RecordFrames, frame_groups
from wanderbus.pipeline.source.segment_index import STRIDE, SegmentIndex, opened
from wanderbus.runtime.log_place import Known, checked_place, place_at
from wanderbus.runtime.segment_files import durable_end, segment_paths
from wanderbus.segments import LogPlace, segment_name

SLICE_BYTES_MAX: Final = 32 << 20
"""Bytes that one task reads at once; a slice of :data:`STRIDE` records may have more."""


class Slice(NamedTuple):
    """The records of one segment from offset ``first`` up to ``end``, and the range of bytes that contains them."""

    path: str
    first: int
    end: int
    first_byte: int
    end_byte: int


class RecordBounds(NamedTuple):
    """Bounds of the records that a reader wants, the times included; None means no bound."""

    least_us: int | None = None
    most_us: int | None = None


ALL: Final = RecordBounds()
"""No bounds."""


class LogFiles:
    """The segments of one log directory, with their indexes as far as they were needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._indexes: dict[int, SegmentIndex] = {}

    def oldest(self) -> int:
        """Return the offset of the oldest record kept, 0 if there is no segment yet."""
        return next(iter(self.bases()), 0)

    def slices(self, first: int, end: int, records_max: int, wanted: RecordBounds = ALL) -> list[Slice]:
        """Return the records from offset ``first`` up to ``end`` in pieces of at most ``records_max``.

        Blocks without a ``wanted`` record are left out. ``end`` must not be beyond the durable mark. Raises
        ``StorageError`` when records of that range are no longer kept.
        """
        if first >= end:
            return []
        bases = self.bases()
        if not bases or bases[0] > first:
            oldest = f"the oldest kept is {bases[0]}" if bases else "no segment is left"
            raise StorageError(f"{self.directory} no longer has record {first}: {oldest}; begin with a new checkpoint")
        slices: list[Slice] = []
        for base, segment_end in zip(bases, [*bases[1:], end], strict=True):
            start, stop = max(first, base), min(end, segment_end)
            if start < stop:
                index = self._index(base)
                for low, high in index.runs(start, stop, *wanted):
                    for piece in range(low, high, records_max):
                        slices += _cut(index, piece, min(piece + records_max, high))
        return slices

    def end_within(self, first: int, end: int, bytes_max: int) -> int:
        """Return the largest offset up to ``end`` such that the frames from ``first`` have at most ``bytes_max`` bytes.

        One record is always allowed, however large; otherwise a reader would never pass it.
        """
        reached, room = first, bytes_max
        bases = [base for base in self.bases() if base < end]
        for base, segment_end in zip(bases, [*bases[1:], end], strict=True):
            if segment_end <= first:
                continue
            start, stop = max(first, base), min(segment_end, end)
            reached, used = self._index(base).offset_within(start, stop, room)
            room -= used
            if reached < stop:
                break
        return min(max(reached, first + 1), end)

    def place(self, offset: int) -> LogPlace:
        """Return the place before the record ``offset``, which is not beyond the durable mark."""
        return place_at(self.directory, offset, self._known_before(offset))

    def checked(self, place: LogPlace, *, reader: str, remedy: str) -> LogPlace:
        """Return a place with its checksum, ``LogReplaced`` if the log has other records before it."""
        known = self._known_before(place.offset)
        return checked_place(self.directory, place, reader=reader, remedy=remedy, known=known)

    def _known_before(self, offset: int) -> Known | None:
        """Return where the record before ``offset`` is, by the index; None if there is no such record."""
        base = max((base for base in self.bases() if base < offset), default=None)
        if base is None or offset > durable_end(self.directory):
            return None
        return self.directory / segment_name(base), self._index(base).byte_of(offset - 1)

    def bases(self) -> list[int]:
        """Return the first offsets of the segments, in order."""
        return [int(path.stem) for path in segment_paths(self.directory)]

    def _index(self, base: int) -> SegmentIndex:
        if base not in self._indexes:
            self._indexes[base] = SegmentIndex(self.directory / segment_name(base), base)
        return self._indexes[base]


def _cut(index: SegmentIndex, first: int, end: int) -> Iterator[Slice]:
    """Yield the records ``first..end-1`` as slices of a bounded size."""
    part = Slice(str(index.path), first, end, index.byte_of(first), index.byte_of(end))
    if part.end_byte - part.first_byte <= SLICE_BYTES_MAX or end - first <= STRIDE:
        yield part
    else:
        middle = (first + end) // 2
        yield from _cut(index, first, middle)
        yield from _cut(index, middle, end)


def divided(parts: Sequence[Slice], count: int) -> list[list[Slice]]:
    """Divide the parts into at most ``count`` groups of consecutive ones with about as many records."""
    records = sum(part.end - part.first for part in parts)
    groups: list[list[Slice]] = [[] for _ in range(count)]
    passed = 0
    for part in parts:
        middle = passed + (part.end - part.first) // 2
        groups[min(middle * count // records, count - 1)].append(part)
        passed += part.end - part.first
    return [group for group in groups if group]


def read_slice(part: Slice, texts: Sequence[bytes] = ()) -> Iterator[RecordFrames]:
    """Yield the records of ``part`` in groups, each checked; the places of a group are bytes from ``first_byte`` on.

    With ``texts``, a part in which none of them occurs is passed over.
    """
    with opened(Path(part.path)) as file:
        file.seek(part.first_byte)
        data = file.read(part.end_byte - part.first_byte)
    if texts and not any(text in data for text in texts):
        return iter(())
    return frame_groups(data, part.first, part.end)


def corrupt(path: str, byte: int, offset: int) -> LogCorrupt:
    """Return the error of a record whose frame is damaged."""
    return LogCorrupt(
        f"{path} is damaged at byte {byte}: record {offset} cannot be read although it was durable; "
        "restore the file from a copy"
    )
