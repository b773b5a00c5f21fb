"""Copy of an event log that a server may be writing, up to its durable mark, with every record checked.

The segments are opened before anything is copied. Retention may then remove their names, and not what is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.files.fresh_directory import FreshDirectory
from wanderbus.runtime.net.descriptors import allow_files
from wanderbus.runtime.segment_files import LOG_DOMAIN, LOG_NAME, durable_end, segment_paths, unreadable
from wanderbus.segments import HEADER, HIGH_WATER, Frame, frames, pack_mark, record_checksum, segment_name

BESIDE: Final = (LOG_NAME, LOG_DOMAIN)
"""Names of the files beside the segments that belong to a copy, in addition to the mark."""

_ATTEMPTS: Final = 100
"""Attempts to open all segments: a server may remove some meanwhile."""


class CopiedLog(NamedTuple):
    """Records of a copy: the offset of the first and of the one behind the last, and the last one."""

    first: int
    next: int
    last: Frame | None

    @property
    def last_checksum(self) -> int | None:
        """Return the checksum of the last record, None without records."""
        return None if self.last is None else record_checksum(*self.last[:3])


class OpenLog:
    """Open segments of a log, with every record that was durable when it was opened; used as a context."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.end = 0
        """Offset behind the last durable record."""
        self._files: dict[int, BinaryIO] = {}
        self._open = ExitStack()

    @property
    def first(self) -> int:
        """Return the offset of the oldest record."""
        return min(self._files)

    def __enter__(self) -> OpenLog:
        allow_files()
        for _ in range(_ATTEMPTS):
            try:
                # In this order: a segment that is begun after the mark was read has no record below it.
                self.end = durable_end(self.directory)
                for path in reversed(segment_paths(self.directory)):
                    self._files[int(path.stem)] = self._open.enter_context(path.open("rb"))
            except FileNotFoundError:
                self.__exit__()
                self._files.clear()
                continue
            except OSError as error:
                self.__exit__()
                raise unreadable(Path(error.filename or self.directory), error) from None
            if not self._files:
                raise StorageError(f"{self.directory} holds no event log; give a server's data directory")
            return self
        raise StorageError(f"the segments in {self.directory} change too fast; try again")

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def copy(self, target: FreshDirectory) -> CopiedLog:
        """Write the durable records into the subdirectory ``log``, with their mark.

        Raises :class:`LogCorrupt` where a record cannot be read, ``OSError`` if ``target`` cannot be written.
        """
        bases = sorted(base for base in self._files if base < self.end or base == self.first)
        last: Frame | None = None
        for base, following in pairwise([*bases, self.end]):
            data, last = self._checked(base, following)
            target.write(f"log/{segment_name(base)}", data)
        target.write(f"log/{HIGH_WATER}", pack_mark(self.end))
        return CopiedLog(self.first, self.end, last)

    def _checked(self, base: int, end: int) -> tuple[bytes, Frame | None]:
        """Return the bytes of a segment up to the record ``end``, and its last record."""
        path = self.directory / segment_name(base)
        file = self._files[base]
        try:
            file.seek(0)
            data = file.read()
        except OSError as error:
            raise unreadable(path, error) from None
        last, offset, byte = None, base, len(HEADER)
        if data[: len(HEADER)] == HEADER:
            for frame in _below(data, base, end):
                last, offset, byte = frame, frame.offset + 1, frame.end
        elif base == end:
            return HEADER, None  # the first start has not written the header yet
        if offset < end:
            raise LogCorrupt(f"{path} is damaged at byte {byte}: record {offset} cannot be read")
        return data[:byte], last


def _below(data: bytes, base: int, end: int) -> Iterator[Frame]:
    """Yield the records from ``base`` up to ``end`` without a hole."""
    for expected, frame in zip(range(base, end), frames(data, len(HEADER)), strict=False):
        if frame.offset != expected:
            return
        yield frame
