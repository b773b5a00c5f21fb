"""Reader of the event log outside the server: durable records only, exact positions (SPEC T-02).

This module does not use Spark, take the writer's lock or change a file. It never reads at or beyond the durable mark,
because records there may be half written.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.segments import (
    FRAME_OVERHEAD_BYTES,
    HEADER,
    HIGH_WATER,
    Frame,
    frames,
    unpack_mark,
)

_FRAME_HEAD = struct.Struct("<IIq")
_RECORDS_PER_INDEX_ENTRY: Final = 1_024
_MARK_ATTEMPTS: Final = 20
_MARK_PAUSE_S: Final = 0.005


class Slice(NamedTuple):
    """The records of one segment from offset ``first`` up to ``end``, and the range of bytes that contains them."""

    path: str
    first: int
    end: int
    first_byte: int
    end_byte: int


def durable_end(directory: Path) -> int:
    """Return the durable mark: the offset after the last record that may be read; 0 if there is none yet.

    A read may meet a half-written mark, so an invalid mark is read again; ``LogCorrupt`` if it stays invalid.
    """
    path = directory / HIGH_WATER
    for attempt in range(_MARK_ATTEMPTS):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _unreadable(path, error) from None
        mark = unpack_mark(data) if data else 0
        if mark is not None:
            return mark
        if attempt + 1 < _MARK_ATTEMPTS:
            time.sleep(_MARK_PAUSE_S)
    raise LogCorrupt(f"{path} is damaged at byte 0: it has no durable mark; start the server once to restore it")


class LogFiles:
    """The segments of one log directory, with the byte positions of the offsets looked up so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._indexes: dict[Path, _SegmentIndex] = {}

    def oldest(self) -> int:
        """Return the offset of the oldest record kept, 0 if there is no segment yet."""
        return next(iter(self._bases()), 0)

    def slices(self, first: int, end: int, records_max: int) -> list[Slice]:
        """Return the records from offset ``first`` up to ``end`` in pieces of at most ``records_max``.

        ``end`` must not be beyond :func:`durable_end`. Raises ``StorageError`` when records of that range are no
        longer kept, ``LogCorrupt`` when the way to them is damaged.
        """
        if first >= end:
            return []
        bases = self._bases()
        if not bases or bases[0] > first:
            oldest = f"the oldest kept is {bases[0]}" if bases else "no segment is left"
            raise StorageError(f"{self.directory} no longer has record {first}: {oldest}; begin with a new checkpoint")
        slices = []
        for base, segment_end in zip(bases, [*bases[1:], end], strict=True):
            start, stop = max(first, base), min(end, segment_end)
            for low in range(start, stop, records_max):
                slices.append(self._slice(base, low, min(low + records_max, stop)))
        return slices

    def end_within(self, first: int, end: int, bytes_max: int) -> int:
        """Return the largest offset up to ``end`` such that the frames from ``first`` have at most ``bytes_max`` bytes.

        One record is always allowed, however large; otherwise a reader would never pass it.
        """
        reached, room = first, bytes_max
        bases = [base for base in self._bases() if base < end]
        for base, segment_end in zip(bases, [*bases[1:], end], strict=True):
            if segment_end <= first:
                continue
            index = self._index(base)
            start = index.byte_of(max(first, base))
            stop, used = index.offset_within(max(first, base), start, min(segment_end, end), room)
            reached, room = stop, room - used
            if stop < segment_end:
                break
        return min(max(reached, first + 1), end)

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.seg") if path.stem.isdigit())

    def _index(self, base: int) -> _SegmentIndex:
        path = self.directory / f"{base:020d}.seg"
        return self._indexes.setdefault(path, _SegmentIndex(path, base))

    def _slice(self, base: int, first: int, end: int) -> Slice:
        index = self._index(base)
        return Slice(str(index.path), first, end, index.byte_of(first), index.byte_of(end))


class _SegmentIndex:
    """Positions of some records of a segment; a record between two of them is found by reading frame lengths."""

    def __init__(self, path: Path, base: int) -> None:
        self.path = path
        self._offsets = [base]
        self._bytes = [len(HEADER)]

    def byte_of(self, offset: int) -> int:
        """Return the byte where the frame of ``offset`` begins, or where the one before it ends."""
        place = bisect_right(self._offsets, offset) - 1
        at, byte = self._offsets[place], self._bytes[place]
        with _opened(self.path) as file:
            while at < offset:
                byte = self._step(file, at, byte)
                at += 1
                if at % _RECORDS_PER_INDEX_ENTRY == 0:
                    self._remember(at, byte)
        self._remember(offset, byte)
        return byte

    def offset_within(self, at: int, byte: int, end: int, bytes_max: int) -> tuple[int, int]:
        """Return the offset after the last whole frame within ``bytes_max`` of ``byte``, and the bytes used."""
        start = byte
        with _opened(self.path) as file:
            while at < end:
                following = self._step(file, at, byte)
                if following - start > bytes_max:
                    break
                at, byte = at + 1, following
        self._remember(at, byte)
        return at, byte - start

    def _step(self, file: BinaryIO, offset: int, byte: int) -> int:
        file.seek(byte)
        head = file.read(_FRAME_HEAD.size)
        length, _, found = _FRAME_HEAD.unpack(head) if len(head) == _FRAME_HEAD.size else (0, 0, -1)
        if found != offset:
            raise self._first_damage(offset)
        return byte + FRAME_OVERHEAD_BYTES + int(length)

    def _first_damage(self, offset: int) -> LogCorrupt:
        """Return the error that locates the damage: an invalid length is only noticed at ``offset``."""
        expected, end = self._offsets[0], self._bytes[0]
        for frame in frames(self.path.read_bytes(), end):
            if frame.offset != expected or expected == offset:
                break
            expected, end = expected + 1, frame.end
        return _corrupt(self.path, end, expected)

    def _remember(self, offset: int, byte: int) -> None:
        place = bisect_right(self._offsets, offset)
        if self._offsets[place - 1] != offset:
            self._offsets.insert(place, offset)
            self._bytes.insert(place, byte)


def read_slice(part: Slice) -> Iterator[Frame]:
    """Yield the records of ``part``, each checked; ``LogCorrupt`` names the file and the byte of a damaged one."""
    with _opened(Path(part.path)) as file:
        file.seek(part.first_byte)
        data = file.read(part.end_byte - part.first_byte)
    expected, byte = part.first, 0
    for frame in frames(data):
        if frame.offset != expected:
            break
        yield frame
        expected, byte = expected + 1, frame.end
    if expected < part.end:
        raise _corrupt(Path(part.path), part.first_byte + byte, expected)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be read: {error.strerror}; restore it from a copy")


def _corrupt(path: Path, byte: int, offset: int) -> LogCorrupt:
    return LogCorrupt(
        f"{path} is damaged at byte {byte}: record {offset} cannot be read although it was durable; "
        "restore the file from a copy"
    )
