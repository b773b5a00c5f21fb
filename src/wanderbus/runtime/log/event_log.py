"""The event log on disk: one writer, dense offsets, group commits (SPEC T-01, DESIGN 5.1, 8).

A directory holds segments (:mod:`wanderbus.segments`), the high-water mark ``durable`` and a ``lock``. A record
is *written* when :meth:`EventLog.append` returns and *durable* when :meth:`EventLog.sync` does; whoever reads the
directory from outside stops at the mark. Two rules make recovery decidable:

* a segment is synced before the next one begins, so only the last can end in a torn write;
* the mark is published after the sync that it speaks of, so what lies below it was once whole on disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.files.disk import SYSTEM, Disk, make_directory, mapped, sync_directory, write_all
from wanderbus.runtime.files.file_locks import lock_file
from wanderbus.runtime.log.log_recovery import recover, segment_paths
from wanderbus.segments import HEADER, HIGH_WATER, Frame, frames, pack_frame, pack_mark, segment_name

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A segment that has reached this size is closed and the next one begun."""

LOCK: Final = "lock"
"""Name of the file whose advisory lock marks a log as being written."""

_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_FRESH: Final = "segment.new"
"""Name of a segment that is being made: under its own name it has its header, whatever happens."""


class EventLog:
    """The writer of one log directory; made by :meth:`open`.

    ``append`` and ``sync`` may run in two threads, one of each at a time, so that a driver can go on
    appending while a sync is under way.
    """

    def __init__(self, directory: Path, lock: int, next_offset: int, segment_bytes_max: int, disk: Disk) -> None:
        self.directory = directory
        self.next_offset = next_offset
        """The offset that the next record has to have."""
        self.durable_offset = 0
        """Records below it have been synced and are published."""
        self._segment_bytes_max = segment_bytes_max
        self._lock = lock
        self._segment = -1
        self._segment_bytes = 0
        self._retired: list[int] = []
        self._fault: OSError | None = None
        self._disk = disk
        self._mark = disk.open(directory / HIGH_WATER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def oldest_offset(self) -> int:
        """Return the offset of the oldest record that is kept, or would be."""
        return int(segment_paths(self.directory)[0].stem)

    @classmethod
    def open(cls, directory: Path, *, segment_bytes_max: int = SEGMENT_BYTES_MAX, disk: Disk = SYSTEM) -> EventLog:
        """Take the log in ``directory``, which is made if need be, and recover it.

        A torn tail is copied to ``<segment>.torn`` and cut off; every whole record is kept and made durable.
        Raises :class:`LogCorrupt` (and leaves everything as it is) when more than an unsynced tail is damaged,
        :class:`StorageError` when another process has the log, ``OSError`` from the disk. Of the earlier segments
        only the ends are looked at, so this takes no longer for a long log: :meth:`read` finds what else is damaged.
        """
        make_directory(disk, directory, 0o700)
        lock = _take_lock(directory)
        try:
            log = cls(directory, lock, recover(directory, disk), segment_bytes_max, disk)
        except BaseException:
            os.close(lock)
            raise
        try:
            log._continue_last_segment()
            log.sync()
            log._keep_mark()
        except BaseException:
            log.close()
            raise
        return log

    def append(self, entries: Sequence[tuple[int, int, bytes]]) -> None:
        """Write ``entries``, each an offset, a time in microseconds since the Unix epoch and a payload.

        Offsets continue at :attr:`next_offset` without a hole. On ``OSError`` (a full disk, say) none of the
        entries counts as written past :attr:`next_offset`, and the same call may be tried again.
        """
        self._check_usable()
        batch: list[bytes] = []
        batch_bytes = 0
        for expected, (offset, at_us, payload) in enumerate(entries, self.next_offset):
            assert offset == expected, f"offset {offset} where {expected} is next"
            frame = pack_frame(offset, at_us, payload)
            batch.append(frame)
            batch_bytes += len(frame)
            if self._segment_bytes + batch_bytes >= self._segment_bytes_max:
                self._write(batch)
                self._begin_segment()
                batch, batch_bytes = [], 0
        self._write(batch)

    def sync(self) -> int:
        """Make every record written before this call durable, publish that, and return the next durable offset.

        Raises ``OSError`` when the disk fails. Where the sync itself failed, what was written since the last one is
        in doubt, so the log takes nothing more until it is opened anew; a mark for which there is no room may be
        tried again.
        """
        self._check_usable()
        reached = self.next_offset
        segment = self._segment
        self._surely(self._disk.fdatasync, segment)
        self._disk.pwrite(self._mark, pack_mark(reached), 0)
        self.durable_offset = reached
        while self._retired:
            self._disk.close(self._retired.pop())
        return reached

    def read(self, start: int = 0) -> Iterator[Frame]:
        """Yield the records from offset ``start`` (or the oldest kept) up to what is written now, from disk.

        Raises :class:`LogCorrupt` when a record that should be there cannot be read.
        """
        end = self.next_offset
        paths = segment_paths(self.directory)
        bases = [int(path.stem) for path in paths]
        for path, base, next_base in zip(paths, bases, [*bases[1:], end], strict=True):
            if next_base <= start or base >= end:
                continue
            offset, byte = base, len(HEADER)
            with mapped(path) as data:
                for frame in frames(data, len(HEADER)):
                    if frame.offset >= end or frame.offset != offset:
                        break
                    if frame.offset >= start:
                        yield frame
                    offset, byte = frame.offset + 1, frame.end
            if offset < next_base:
                raise LogCorrupt(f"{path} is damaged at byte {byte}: record {offset} cannot be read any more")

    def close(self) -> None:
        """Give the directory back; does not sync. Closing twice is harmless."""
        for descriptor in (self._segment, self._mark, self._lock, *self._retired):
            if descriptor >= 0:
                self._disk.close(descriptor)
        self._segment = self._mark = self._lock = -1
        self._retired = []

    def _check_usable(self) -> None:
        if self._lock < 0:
            raise StorageError(f"the event log in {self.directory} is closed")
        if self._fault is not None:
            raise OSError(errno.EIO, f"the disk failed earlier ({self._fault}); open the log anew", str(self.directory))

    def _write(self, batch: list[bytes]) -> None:
        data = memoryview(b"".join(batch))
        written = 0
        try:
            while written < len(data):
                written += self._disk.write(self._segment, data[written:])
        except OSError:
            self._take_back()
            raise
        self._segment_bytes += written
        self.next_offset += len(batch)

    def _take_back(self) -> None:
        """Cut off a half-written batch, which a later one must not follow."""
        try:
            self._disk.ftruncate(self._segment, self._segment_bytes)
        except OSError as error:
            self._fault = error

    def _begin_segment(self) -> None:
        """Sync the present segment, if any, and go on in a fresh one, which has its name when its header is durable.

        The old descriptor stays open until the next sync has ended: one may be using it right now.
        """
        if self._segment >= 0:
            self._surely(self._disk.fdatasync, self._segment)
        fresh = self.directory / _FRESH
        descriptor = self._disk.open(fresh, _APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(self._disk, descriptor, HEADER)
            self._disk.fsync(descriptor)
            self._disk.replace(fresh, self.directory / segment_name(self.next_offset))
        except OSError:
            self._disk.close(descriptor)
            raise
        if self._segment >= 0:
            self._retired.append(self._segment)
        self._segment = descriptor
        self._segment_bytes = len(HEADER)
        self._surely(sync_directory, self._disk, self.directory)

    def _surely(self, sync: Callable[..., None], *arguments: object) -> None:
        """Sync something; after a failure, of whatever kind, the log takes nothing more.

        The kernel may have dropped what it could not write, and calls it clean: another try would prove nothing.
        """
        try:
            sync(*arguments)
        except OSError as error:
            self._fault = error
            raise OSError(errno.EIO, f"a sync failed: {error.strerror}", str(self.directory)) from error

    def _continue_last_segment(self) -> None:
        paths = segment_paths(self.directory)
        if not paths or paths[-1].stat().st_size < len(HEADER):
            self._begin_segment()
        else:
            self._segment = self._disk.open(paths[-1], _APPEND)
            self._segment_bytes = os.fstat(self._segment).st_size

    def _keep_mark(self) -> None:
        """Make the mark durable as it is: one that may lag behind is enough to know what a power cut may tear."""
        self._surely(self._disk.fsync, self._mark)
        self._surely(sync_directory, self._disk, self.directory)


def _take_lock(directory: Path) -> int:
    if (lock := lock_file(directory / LOCK)) is None:
        raise StorageError(f"the event log in {directory} is in use by another process; stop that one first")
    return lock
