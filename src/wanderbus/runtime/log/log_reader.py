"""Reader of an event log that another process may write: in place, without its lock, up to the durable mark.

A reader ignores everything beyond the mark: it may be half written, or be cut off by the next start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.files.disk import mapped
from wanderbus.runtime.segment_files import segment_paths, unreadable
from wanderbus.segments import HEADER, Frame, frames, segment_name


def oldest_record(directory: Path) -> int:
    """Return the offset of the oldest record that is kept, 0 if there is none yet."""
    return next((int(path.stem) for path in segment_paths(directory)), 0)


class NotKept(StorageError):
    """A record was removed from the log."""

    def __init__(self, directory: Path, offset: int) -> None:
        super().__init__(f"{directory} no longer has record {offset}")
        self.offset = offset


class RecordPlace(NamedTuple):
    """Place of a record: its segment, and its first byte there."""

    path: Path
    byte: int


def read_log(directory: Path, start: int, end: int) -> Iterator[Frame]:
    """Yield the records from offset ``start`` up to ``end``, which is not beyond the durable mark.

    Raises :class:`NotKept` where records were removed, :class:`StorageError` where a segment cannot be opened,
    :class:`LogCorrupt` where a record cannot be read.
    """
    return (frame for frame, _ in read_frames(directory, start, end))


def read_frames(
    directory: Path, start: int, end: int, place: RecordPlace | None = None
) -> Iterator[tuple[Frame, Path]]:
    """Yield the records as :func:`read_log` does, each with its segment.

    ``place`` is a known place of the first record, which is then not searched; a wrong one is ignored.
    """
    offset = start
    while offset < end:
        path, byte = place or RecordPlace(_segment_with(directory, offset), len(HEADER))
        begin = offset
        try:
            with mapped(path) as data:
                for frame in frames(data, byte):
                    if frame.offset > offset:
                        break
                    byte = frame.end
                    if frame.offset == offset:
                        yield frame, path
                        offset += 1
                        if offset == end:
                            return  # the server may truncate the file behind the mark while it is mapped
        except OSError as error:
            raise unreadable(path, error) from None
        if offset == begin and place is None:
            raise LogCorrupt(
                f"{path} is damaged at byte {byte}: record {offset} cannot be read although it was durable"
            )
        place = None


def _segment_with(directory: Path, offset: int) -> Path:
    """Return the segment that holds ``offset``; a log is listed only if no segment begins there."""
    if (beginning := directory / segment_name(offset)).exists():
        return beginning
    found = [path for path in segment_paths(directory) if int(path.stem) <= offset]
    if not found:
        raise NotKept(directory, offset)
    return found[-1]
