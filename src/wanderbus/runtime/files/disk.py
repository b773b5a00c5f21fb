"""Interface to the operating system's file functions, so that a recorder can replace them in tests.

The module ``os`` implements it. `./do powercut` uses another implementation, which records every step.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol


class Disk(Protocol):
    """The functions of ``os`` that change files or make changes durable, and no other."""

    def open(self, path: Path, flags: int, mode: int = ..., /) -> int:
        """See :func:`os.open`."""
        ...

    def close(self, descriptor: int, /) -> None:
        """See :func:`os.close`."""
        ...

    def write(self, descriptor: int, data: bytes | memoryview, /) -> int:
        """See :func:`os.write`."""
        ...

    def pwrite(self, descriptor: int, data: bytes, byte: int, /) -> int:
        """See :func:`os.pwrite`."""
        ...

    def ftruncate(self, descriptor: int, size: int, /) -> None:
        """See :func:`os.ftruncate`."""
        ...

    def fsync(self, descriptor: int, /) -> None:
        """See :func:`os.fsync`."""
        ...

    def fdatasync(self, descriptor: int, /) -> None:
        """See :func:`os.fdatasync`."""
        ...

    def mkdir(self, path: Path, mode: int = ..., /) -> None:
        """See :func:`os.mkdir`."""
        ...

    def replace(self, old: Path, new: Path, /) -> None:
        """See :func:`os.replace`."""
        ...

    def unlink(self, path: Path, /) -> None:
        """See :func:`os.unlink`."""
        ...


SYSTEM: Final[Disk] = os

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Error numbers that mean a lack of room, on the disk or for another open file."""


def is_full(error: BaseException) -> bool:
    """Return whether ``error`` means a lack of room, and nothing else."""
    return isinstance(error, OSError) and error.errno in FULL


def free_bytes(directory: Path) -> int | None:
    """Return the free bytes below ``directory``; None if the file system does not report them."""
    try:
        known = os.statvfs(directory)
    except OSError:
        return None
    return known.f_bavail * known.f_frsize if known.f_blocks else None


def write_all(disk: Disk, descriptor: int, data: bytes) -> None:
    """Write all of ``data``."""
    rest = memoryview(data)
    while rest:
        rest = rest[disk.write(descriptor, rest) :]


def sync_directory(disk: Disk, directory: Path) -> None:
    """Make the names in ``directory`` durable."""
    descriptor = disk.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.fsync(descriptor)
    finally:
        disk.close(descriptor)


def make_directory(disk: Disk, directory: Path, mode: int = 0o777) -> None:
    """Create ``directory`` and its parents, durably; existing ones are not changed."""
    if directory.is_dir():
        return
    if not directory.parent.is_dir():
        make_directory(disk, directory.parent)
    disk.mkdir(directory, mode)
    sync_directory(disk, directory.parent)


def write_durable(disk: Disk, path: Path, content: bytes, flags: int) -> None:
    """Write the whole of a file, readable by its owner only, and sync it; ``flags`` are ``O_TRUNC`` or ``O_EXCL``."""
    descriptor = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    try:
        write_all(disk, descriptor, content)
        disk.fsync(descriptor)
    finally:
        disk.close(descriptor)


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Replace ``path`` atomically and durably, readable by its owner only: a crash leaves the old or the new file."""
    fresh = path.with_suffix(".new")
    write_durable(disk, fresh, content, os.O_TRUNC)
    disk.replace(fresh, path)
    sync_directory(disk, path.parent)


@contextmanager
def mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """Map the bytes of a file instead of reading them all into memory."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
