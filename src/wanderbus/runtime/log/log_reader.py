"""Reader of an event log that another process may write: in place, without its lock, up to the durable mark.

A reader ignores everything beyond the mark: it may be half written, or be cut off by the next start.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.files.disk import mapped
from wanderbus.runtime.segment_files import durable_end, segment_paths, unreadable
from wanderbus.segments import HEADER, HIGH_WATER, Frame, frames


def end_of_log(directory: Path) -> int:
    """Return the offset after the last durable record; :class:`StorageError` if no server has opened a log there."""
    if not (directory / HIGH_WATER).exists():
        raise StorageError(f"{directory} holds no event log that a server has opened; give a server's data directory")
    return durable_end(directory)


def oldest_record(directory: Path) -> int:
    """Return the offset of the oldest record that is kept, 0 if there is none yet."""
    return next((int(path.stem) for path in segment_paths(directory)), 0)


def read_log(directory: Path, start: int, end: int) -> Iterator[Frame]:
    """Yield the records from offset ``start`` up to ``end``, which is not beyond the durable mark.

    Raises :class:`StorageError` where records are no longer kept or a segment cannot be opened, :class:`LogCorrupt`
    where a record cannot be read.
    """
    paths = segment_paths(directory)
    if start < end and (not paths or int(paths[0].stem) > start):
        raise StorageError(f"{directory} no longer has record {start}")
    bases = [int(path.stem) for path in paths]
    for path, (base, following) in zip(paths, pairwise([*bases, end]), strict=True):
        if following <= start or base >= end:
            continue
        offset, byte = base, len(HEADER)
        try:
            # No byte beyond the mark is read: the server may truncate the file there while it is mapped.
            with mapped(path) as data:
                for frame in islice(frames(data, byte), min(following, end) - base):
                    if frame.offset != offset:
                        break
                    if offset >= start:
                        yield frame
                    offset, byte = offset + 1, frame.end
        except OSError as error:
            raise unreadable(path, error) from None
        if offset < min(following, end):
            raise LogCorrupt(
                f"{path} is damaged at byte {byte}: record {offset} cannot be read although it was durable"
            )
