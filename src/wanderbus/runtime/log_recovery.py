"""What to do with an event log that was not closed in good order (SPEC T-01: a torn tail is skipped, nothing more).

After ``kill -9`` or a power cut the last segment may end in part of a write that nobody was told about; that tail
is put aside and cut off. Any other damage may have hit records that were acknowledged, so it is reported and
nothing is touched.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wanderbus.errors import LogCorrupt
from wanderbus.segments import FRAME_OVERHEAD_BYTES, HEADER, HIGH_WATER, frames, segment_name, unpack_mark

_OFFSET = struct.Struct("<q")
_OFFSET_IN_FRAME = 8

_ADVICE = "restore it from a copy, or move the whole directory away to begin an empty log"


class _Tail(NamedTuple):
    """How far a segment can be read: the byte after its last whole record, that record's offset plus one."""

    end: int
    next_offset: int
    data: bytes


def segment_paths(directory: Path) -> list[Path]:
    """Return the segments of ``directory`` in order of their offsets."""
    return sorted(path for path in directory.glob("*.seg") if len(path.stem) == 20 and path.stem.isdigit())


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def recover(directory: Path) -> int:
    """Return the next offset of the log in ``directory``, after putting aside a torn tail if there is one.

    Raises :class:`LogCorrupt`, before anything is modified, if other than the unsynced end is damaged.
    """
    mark = _read_mark(directory)
    paths = segment_paths(directory)
    if not paths:
        if mark:
            raise LogCorrupt(f"{directory} has no segment although {mark} records were made durable; {_ADVICE}")
        return 0
    next_offset = int(paths[0].stem)
    for path in paths[:-1]:
        tail = _read_segment(path, next_offset)
        if tail.end < len(tail.data):
            raise _damaged(path, tail, "and later segments follow it")
        next_offset = tail.next_offset
    last = _read_segment(paths[-1], next_offset)
    if last.next_offset < mark:
        raise _damaged(paths[-1], last, f"but records below {mark} were durable")
    if last.end < len(last.data):
        # Without a mark nobody can say whether what follows the damage was acknowledged; with one it was not, and a
        # power cut may well have written later pages before earlier ones.
        found = None if mark else next(_later_records(last), None)
        if found is not None:
            raise _damaged(paths[-1], last, f"but record {found} after it is whole")
        _put_aside(paths[-1], last)
    return last.next_offset


def _read_mark(directory: Path) -> int:
    """Return the high-water mark, 0 if none was published; a mark that a power cut spoilt says nothing either."""
    try:
        return unpack_mark((directory / HIGH_WATER).read_bytes()) or 0
    except FileNotFoundError:
        return 0


def _read_segment(path: Path, expected: int) -> _Tail:
    if path.name != segment_name(expected):
        raise LogCorrupt(f"{path} begins at another record than {expected}, so a segment is missing; {_ADVICE}")
    data = path.read_bytes()
    if len(data) < len(HEADER):
        return _Tail(0, expected, data)
    if not data.startswith(HEADER):
        if not any(data):
            return _Tail(0, expected, data)
        raise LogCorrupt(f"{path} is damaged at byte 0: it has no segment header that this version knows; {_ADVICE}")
    end = len(HEADER)
    for frame in frames(data, end):
        if frame.offset != expected:
            raise LogCorrupt(f"{path} is damaged at byte {end}: record {frame.offset} is where {expected} belongs")
        end, expected = frame.end, frame.offset + 1
    return _Tail(end, expected, data)


def _later_records(tail: _Tail) -> Iterator[int]:
    """Yield the offsets of whole records after the damage, wherever they begin.

    The stored offset is looked at first: it rules out nearly every position without a checksum.
    """
    records_max = (len(tail.data) - tail.end) // FRAME_OVERHEAD_BYTES
    for start in range(tail.end + 1, len(tail.data) - FRAME_OVERHEAD_BYTES + 1):
        (offset,) = _OFFSET.unpack_from(tail.data, start + _OFFSET_IN_FRAME)
        if tail.next_offset < offset <= tail.next_offset + records_max:
            for frame in frames(tail.data, start):
                yield frame.offset


def _damaged(path: Path, tail: _Tail, why: str) -> LogCorrupt:
    return LogCorrupt(
        f"{path} is damaged at byte {tail.end}: record {tail.next_offset} cannot be read, {why}; {_ADVICE}"
    )


def _put_aside(path: Path, tail: _Tail) -> None:
    """Copy the torn end to ``<segment>.torn``, after what an earlier crash left there, then cut it off."""
    with path.with_name(f"{path.name}.torn").open("ab") as torn:
        torn.write(tail.data[tail.end :])
        torn.flush()
        os.fsync(torn.fileno())
    with path.open("r+b") as segment:
        segment.truncate(tail.end)
        os.fsync(segment.fileno())
    sync_directory(path.parent)
