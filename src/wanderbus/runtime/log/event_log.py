"""The event log on disk: one writer, dense offsets, group commits (SPEC T-01, DESIGN 5.1, 8).

A directory holds segments (:mod:`wanderbus.segments`), the high-water mark ``durable`` and a ``lock``. A record
is *written* when :meth:`EventLog.append` returns and *durable* when :meth:`EventLog.sync` does. Readers in other
processes stop at the mark. Two rules make recovery decidable:

* a segment is synced before the next one begins, so only the last can end in a torn write;
* the mark is published after its sync, so all records below the mark were once whole on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.files.disk import SYSTEM, Disk, make_directory, mapped, sync_directory, write_all
from wanderbus.runtime.files.file_modes import lock_file
from wanderbus.runtime.log.log_recovery import recover
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import HEADER, HIGH_WATER, Frame, frames, pack_frame, pack_mark, segment_name

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Size at which a segment is closed and the next one begun."""

LOCK: Final = "lock"
"""Name of the file whose advisory lock shows that a process writes the log."""

_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_FRESH: Final = "segment.new"
"""Name of a segment while it is created: it is renamed once its header is durable."""


class EventLog:
    """The writer of one log directory; made by :meth:`open`.

    ``append`` and ``sync`` may run in two threads, one of each at a time, so that a driver can go on
    appending while a sync is under way.
    """

    def __init__(self, directory: Path, lock: int, next_offset: int, segment_bytes_max: int, disk: Disk) -> None:
        self.directory = directory
        self.next_offset = next_offset
        """Offset of the next record."""
        self.durable_offset = 0
        """Records below this offset have been synced and published."""
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
        """Return the offset of the oldest record that is kept, or of the next one if there is none."""
        if not (paths := segment_paths(self.directory)):
            raise StorageError(f"the event log in {self.directory} was deleted")
        return int(paths[0].stem)

    @classmethod
    def open(cls, directory: Path, *, segment_bytes_max: int = SEGMENT_BYTES_MAX, disk: Disk = SYSTEM) -> EventLog:
        """Lock the log in ``directory``, which is created if necessary, and recover it.

        A torn tail is copied to ``<segment>.torn`` and cut off; every whole record is kept and made durable.
        Raises :class:`LogCorrupt` (and leaves everything as it is) when more than an unsynced tail is damaged,
        :class:`StorageError` when another process has locked the log, ``OSError`` from the disk. Only the ends of
        earlier segments are checked, so the time does not grow with the log; :meth:`read` finds other damage.
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
            log._sync_mark()
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
        """Make every record written before this call durable, publish the mark, and return the next durable offset.

        Raises ``OSError`` when the disk fails, or the segment was deleted. If the sync itself failed, the records
        written since the last one are in doubt, and the log accepts nothing more until it is opened again. If there is
        no room for the mark, the call may be retried.
        """
        self._check_usable()
        reached = self.next_offset
        segment = self._segment
        self._sync_or_fail(self._disk.fdatasync, segment)
        self._check_linked(segment)
        self._disk.pwrite(self._mark, pack_mark(reached), 0)
        self.durable_offset = reached
        while self._retired:
            self._disk.close(self._retired.pop())
        return reached

    def read(self, start: int = 0) -> Iterator[Frame]:
        """Yield the records from offset ``start`` (or the oldest kept) to the last one written now, from disk.

        Raises :class:`LogCorrupt` when a record cannot be read.
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
                raise LogCorrupt(f"{path} is damaged at byte {byte}: record {offset} cannot be read")

    def remove_oldest(self) -> None:
        """Remove the oldest segment, durably; :meth:`append` and :meth:`sync` may run meanwhile.

        One call removes one segment, and syncs the directory: without that, a power cut could undo the removal of one
        segment and not of the next, and recovery would find a segment missing between the two.
        """
        oldest, *later = segment_paths(self.directory)
        assert later, "the segment that is written stays"
        self._disk.unlink(oldest)
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(oldest.with_name(f"{oldest.name}.torn"))
        sync_directory(self._disk, self.directory)

    def close(self) -> None:
        """Unlock the directory, without a sync. Closing twice is harmless."""
        for descriptor in (self._segment, self._mark, self._lock, *self._retired):
            if descriptor >= 0:
                self._disk.close(descriptor)
        self._segment = self._mark = self._lock = -1
        self._retired = []

    def _check_usable(self) -> None:
        if self._lock < 0:
            raise StorageError(f"the event log in {self.directory} is closed")
        if self._fault is not None:
            raise OSError(errno.EIO, f"the disk failed earlier ({self._fault}); reopen the log", str(self.directory))

    def _write(self, batch: list[bytes]) -> None:
        data = memoryview(b"".join(batch))
        written = 0
        try:
            while written < len(data):
                written += self._disk.write(self._segment, data[written:])
        except OSError:
            self._cut_off_partial_write()
            raise
        self._segment_bytes += written
        self.next_offset += len(batch)

    def _cut_off_partial_write(self) -> None:
        """Cut off a half-written batch, which no later one may follow."""
        try:
            self._disk.ftruncate(self._segment, self._segment_bytes)
        except OSError as error:
            self._fault = error

    def _begin_segment(self) -> None:
        """Sync the current segment, if any, and begin another, which gets its name when its header is durable.

        The old descriptor stays open until the next sync has ended, because a sync may be using it right now.
        """
        if self._segment >= 0:
            self._sync_or_fail(self._disk.fdatasync, self._segment)
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
        self._sync_or_fail(sync_directory, self._disk, self.directory)

    def _sync_or_fail(self, sync: Callable[..., None], *arguments: object) -> None:
        """Run a sync; after any failure the log accepts nothing more.

        The kernel may have discarded pages that it could not write and marked them clean: a retry would prove nothing.
        """
        try:
            sync(*arguments)
        except OSError as error:
            self._fault = error
            raise OSError(errno.EIO, f"a sync failed: {error.strerror}", str(self.directory)) from error

    def _check_linked(self, segment: int) -> None:
        """Accept nothing more if the segment was deleted: what was written to it ends with this process."""
        if os.fstat(segment).st_nlink == 0:
            self._fault = OSError(errno.ENOENT, "its files were deleted while it was in use")
            self._check_usable()

    def _continue_last_segment(self) -> None:
        paths = segment_paths(self.directory)
        if not paths or paths[-1].stat().st_size < len(HEADER):
            self._begin_segment()
        else:
            self._segment = self._disk.open(paths[-1], _APPEND)
            self._segment_bytes = os.fstat(self._segment).st_size

    def _sync_mark(self) -> None:
        """Sync the mark as it is: even an outdated mark shows recovery which records a power cut may have torn."""
        self._sync_or_fail(self._disk.fsync, self._mark)
        self._sync_or_fail(sync_directory, self._disk, self.directory)


def _take_lock(directory: Path) -> int:
    if (lock := lock_file(directory / LOCK)) is None:
        raise StorageError(f"the event log in {directory} is in use by another process; stop that one first")
    return lock
