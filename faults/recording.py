"""Recording of all disk operations of a server, in order.

The log writes through a :class:`~wanderbus.runtime.files.disk.Disk`, SQLite through a VFS of our own. Files are
identified by numbers, because names change independently. Syncs are only recorded and not done; :mod:`faults.cutting`
decides what would be left without them.
"""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw


@dataclass(frozen=True, slots=True)
class Write:
    """``data`` at ``byte`` of ``file``."""

    file: int
    byte: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """``file`` is truncated or extended to ``size`` bytes."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The changes to ``file`` are durable; its name may not be."""

    file: int


@dataclass(frozen=True, slots=True)
class Enter:
    """``file`` has the name ``path``, and no longer ``old``; None removes the name, -1 makes a directory."""

    path: str
    file: int | None
    old: str | None = None


@dataclass(frozen=True, slots=True)
class SyncNames:
    """The names in ``directory`` are durable."""

    directory: str


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise that every record below ``durable`` is on disk; ``handed`` records were given to the log so far."""

    durable: int
    handed: int


Step = Write | Truncate | Sync | Enter | SyncNames | Promise


class Recorder:
    """The disk steps below one directory, which already contains the files of ``names``."""

    def __init__(self, root: Path, names: dict[str, int]) -> None:
        self.steps: list[Step] = []
        self._root = root
        self._names = dict(names)
        self._numbers = itertools.count(max(names.values(), default=0) + 1)

    def path(self, path: Path | str) -> str:
        """Return ``path`` as the steps name it."""
        return Path(path).relative_to(self._root).as_posix()

    def opened(self, path: str) -> int:
        """Return the number of the file at ``path``, which is created if it does not exist."""
        if path not in self._names:
            self._names[path] = next(self._numbers)
            self.steps.append(Enter(path, self._names[path]))
        return self._names[path]

    def renamed(self, old: str, new: str) -> None:
        """Record that a file has another name, and replaces the file that had it."""
        self._names[new] = self._names.pop(old)
        self.steps.append(Enter(new, self._names[new], old))

    def removed(self, path: str) -> None:
        """Record that a name is removed."""
        del self._names[path]
        self.steps.append(Enter(path, None))


class RecordedDisk:
    """Disk of the event log and of small files; :meth:`fill` makes it full for a while."""

    def __init__(self, recorder: Recorder) -> None:
        self._room = 0
        self._refusals = 0
        self._recorder = recorder
        self._files: dict[int, int | str] = {}
        """Number of a file, or path of a directory, by descriptor."""

    def fill(self, room: int, refusals: int) -> None:
        """Let ``room`` more calls write, and refuse ``refusals`` after them."""
        self._room, self._refusals = room, refusals

    def _has_room(self) -> bool:
        if self._refusals and self._room:
            self._room -= 1
        elif self._refusals:
            self._refusals -= 1
            return False
        return True

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        descriptor = os.open(path, flags, mode)
        name = self._recorder.path(path)
        if flags & os.O_DIRECTORY:
            self._files[descriptor] = name
            return descriptor
        number = self._files[descriptor] = self._recorder.opened(name)
        if flags & os.O_TRUNC:
            self._recorder.steps.append(Truncate(number, 0))
        return descriptor

    def close(self, descriptor: int, /) -> None:
        self._files.pop(descriptor, None)
        os.close(descriptor)

    def write(self, descriptor: int, data: bytes | memoryview, /) -> int:
        byte = os.fstat(descriptor).st_size
        fitting = data
        if not self._has_room():
            if len(data) == 1:
                raise _no_room()
            # Data is written as far as there is room, and the next call reports a full disk.
            fitting = data[: len(data) // 2]
            self._refusals += 1
        return self._write(descriptor, byte, fitting, os.write(descriptor, fitting))

    def pwrite(self, descriptor: int, data: bytes, byte: int, /) -> int:
        if not self._has_room():
            raise _no_room()
        return self._write(descriptor, byte, data, os.pwrite(descriptor, data, byte))

    def _write(self, descriptor: int, byte: int, data: bytes | memoryview, written: int) -> int:
        self._recorder.steps.append(Write(self._number(descriptor), byte, bytes(data[:written])))
        return written

    def ftruncate(self, descriptor: int, size: int, /) -> None:
        os.ftruncate(descriptor, size)
        self._recorder.steps.append(Truncate(self._number(descriptor), size))

    def fsync(self, descriptor: int, /) -> None:
        synced = self._files[descriptor]
        self._recorder.steps.append(SyncNames(synced) if isinstance(synced, str) else Sync(synced))

    fdatasync = fsync

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        os.mkdir(path, mode)
        self._recorder.steps.append(Enter(self._recorder.path(path), -1))

    def replace(self, old: Path, new: Path, /) -> None:
        if not self._has_room():
            raise _no_room()
        os.replace(old, new)
        self._recorder.renamed(self._recorder.path(old), self._recorder.path(new))

    def unlink(self, path: Path, /) -> None:
        os.unlink(path)
        self._recorder.removed(self._recorder.path(path))

    def _number(self, descriptor: int) -> int:
        number = self._files[descriptor]
        assert isinstance(number, int)
        return number


class RecordedVFS(apsw.VFS):
    """SQLite's files; shared memory uses the ordinary VFS, because it never survives a power cut."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        super().__init__(name, "")
        self.recorder = recorder

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _RecordedFile(self.recorder, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.recorder.removed(self.recorder.path(filename))
        if syncdir:
            self.recorder.steps.append(SyncNames(_directory_of(self.recorder.path(filename))))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, recorder: Recorder, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        fresh = not os.path.exists(path)
        super().__init__("", name, flags)
        self._steps = recorder.steps
        self._path = recorder.path(path)
        self._number = recorder.opened(self._path)
        # SQLite's ordinary VFS syncs the directory with the first sync of a journal or a WAL that it has created.
        self._name_unsynced = fresh and self._path.endswith(("-wal", "-journal"))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._steps.append(Write(self._number, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._steps.append(Truncate(self._number, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._steps.append(Sync(self._number))
        if self._name_unsynced:
            self._steps.append(SyncNames(_directory_of(self._path)))
            self._name_unsynced = False


def _no_room() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _directory_of(path: str) -> str:
    return Path(path).parent.as_posix()
