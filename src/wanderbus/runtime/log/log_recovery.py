"""Recovery of an event log after an unclean end (SPEC T-01: a torn tail is skipped, nothing more).

After ``kill -9`` or a power cut the last segment may end in part of a write that was never acknowledged; that tail is
copied aside and cut off. Other damage may affect acknowledged records, so it is reported and nothing is changed.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from wanderbus.errors import LogCorrupt
from wanderbus.runtime.files.disk import SYSTEM, Disk, mapped, sync_directory, write_all
from wanderbus.runtime.segment_files import read_mark, segment_paths
from wanderbus.segments import FRAME_OVERHEAD_BYTES, HEADER, HIGH_WATER, frames

_log = logging.getLogger("wanderbus.server")

_OFFSET = struct.Struct("<q")
_OFFSET_IN_FRAME = 8

_ADVICE = "restore it from a copy, or move the whole directory away to start with an empty log"


class _Tail(NamedTuple):
    """Readable part of a segment: the byte after its last whole record, and that record's offset plus one."""

    path: Path
    end: int
    next_offset: int
    size: int


def recover(directory: Path, disk: Disk = SYSTEM) -> int:
    """Return the next offset of the log in ``directory``, after copying aside and cutting off a torn tail.

    Raises :class:`LogCorrupt`, before any change, if more than the unsynced end is damaged. The last segment is read in
    full. Earlier segments were synced before the next one began, so only their last records are checked.
    """
    mark = read_mark(directory)
    paths = segment_paths(directory)
    if not paths:
        if mark:
            raise LogCorrupt(f"{directory} has no segment although {mark} records were made durable; {_ADVICE}")
        return 0
    for path in paths:
        if path.is_dir():
            raise LogCorrupt(f"{path} is a directory, not a segment; move it away, or restore the segment from a copy")
    for path, following in pairwise(paths):
        if not ends_with(path, int(following.stem) - 1):
            raise _unconnected(path, following)
    last = _read_segment(paths[-1])
    if last.next_offset < (mark or 0):
        raise _damaged(last, f"but records below {mark} were durable")
    if last.end < last.size:
        # Without a mark it is unknown whether records after the damage were acknowledged. With one they were not, since
        # a power cut may have written later pages before earlier ones.
        found = next(_later_records(last), None) if mark is None else None
        if found is not None:
            raise _damaged(last, f"but record {found} after it is intact")
        _put_aside(last, disk)
    if mark is None and last.next_offset:
        _log.warning("%s is damaged or missing: recreated it for %s records", directory / HIGH_WATER, last.next_offset)
    return last.next_offset


def ends_with(path: Path, offset: int) -> bool:
    """Return whether record ``offset`` is whole and the last of a segment; the search begins at the end."""
    with mapped(path) as data:
        found = data.rfind(_OFFSET.pack(offset))
        while found >= len(HEADER) + _OFFSET_IN_FRAME:
            frame = next(frames(data, found - _OFFSET_IN_FRAME), None)
            if frame is not None and frame.offset == offset and frame.end == len(data):
                return True
            found = data.rfind(_OFFSET.pack(offset), 0, found + _OFFSET.size - 1)
    return False


def _read_segment(path: Path) -> _Tail:
    expected = int(path.stem)
    with mapped(path) as data:
        size = len(data)
        if size < len(HEADER) or (data[:1] == b"\0" and not any(data[:])):
            return _Tail(path, 0, expected, size)
        if data[: len(HEADER)] != HEADER:
            raise LogCorrupt(
                f"{path} is damaged at byte 0: it does not begin with a segment header of this version; {_ADVICE}"
            )
        end = len(HEADER)
        for frame in frames(data, end):
            if frame.offset != expected:
                raise LogCorrupt(f"{path} is damaged at byte {end}: found record {frame.offset}, expected {expected}")
            end, expected = frame.end, frame.offset + 1
    return _Tail(path, end, expected, size)


def _later_records(tail: _Tail) -> Iterator[int]:
    """Yield the offsets of whole records after the damage, at any byte.

    The stored offset is checked first: it excludes nearly every position without a checksum.
    """
    records_max = (tail.size - tail.end) // FRAME_OVERHEAD_BYTES
    with mapped(tail.path) as data:
        for start in range(tail.end + 1, tail.size - FRAME_OVERHEAD_BYTES + 1):
            (offset,) = _OFFSET.unpack_from(data, start + _OFFSET_IN_FRAME)
            if tail.next_offset < offset <= tail.next_offset + records_max:
                for frame in frames(data, start):
                    yield frame.offset


def _unconnected(path: Path, following: Path) -> LogCorrupt:
    """Return the error for a segment ``following`` that does not continue at the end of ``path``."""
    tail = _read_segment(path)
    if tail.end < tail.size:
        return _damaged(tail, "and later segments follow it")
    return LogCorrupt(f"{following} does not begin at record {tail.next_offset}: a segment is missing; {_ADVICE}")


def _damaged(tail: _Tail, why: str) -> LogCorrupt:
    return LogCorrupt(
        f"{tail.path} is damaged at byte {tail.end}: record {tail.next_offset} cannot be read, {why}; {_ADVICE}"
    )


def _put_aside(tail: _Tail, disk: Disk) -> None:
    """Append the torn end to ``<segment>.torn``, which may hold one of an earlier crash, then cut it off."""
    with mapped(tail.path) as data:
        torn_bytes = data[tail.end :]
    torn = disk.open(
        tail.path.with_name(f"{tail.path.name}.torn"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        write_all(disk, torn, torn_bytes)
        disk.fsync(torn)
    finally:
        disk.close(torn)
    segment = disk.open(tail.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        disk.ftruncate(segment, tail.end)
        disk.fsync(segment)
    finally:
        disk.close(segment)
    sync_directory(disk, tail.path.parent)
