"""Small disks of servers that a run fills and empties: file systems in memory, which takes root.

Each is mounted under a name with the process id of its run, so the next run removes those of a run that was killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from faults.restoring.copies import sockets
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import run

_KIND: Final = "wbdisk"
_FILLER: Final = "filler"
_PART_BYTES: Final = 1 << 20


class SmallDisk:
    """The mounted file system at ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fill(self, left_bytes: int) -> None:
        """Leave at most ``left_bytes`` free, and nothing if that is 0."""
        descriptor = os.open(self.directory / _FILLER, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            with contextlib.suppress(OSError):  # the server has taken the rest meanwhile
                while (free := self.free_bytes - left_bytes) > 0:
                    end = os.fstat(descriptor).st_size
                    os.posix_fallocate(descriptor, end, min(free, _PART_BYTES))
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Remove what :meth:`fill` has written."""
        (self.directory / _FILLER).unlink(missing_ok=True)

    def copy(self, directory: Path) -> None:
        """Copy what others have written to a new ``directory``."""
        shutil.copytree(self.directory, directory, ignore=lambda path, names: [_FILLER, *sockets(path, names)])

    @property
    def free_bytes(self) -> int:
        """Return the free bytes."""
        known = os.statvfs(self.directory)
        return known.f_bavail * known.f_frsize


@contextlib.contextmanager
def small_disks(directories: Sequence[Path], size_bytes: int) -> Iterator[list[SmallDisk]]:
    """Mount a disk of ``size_bytes`` at each of ``directories`` for the block.

    :raises CannotRunError: it takes root, or mounting fails
    """
    if os.geteuid() != 0:
        raise CannotRunError("mounting a file system takes root")
    _sweep()
    mounted: list[Path] = []
    try:
        for directory in directories:
            directory.mkdir(0o700, exist_ok=True)
            options = f"size={size_bytes},mode=700"
            run(["mount", "-t", "tmpfs", "-o", options, f"{_KIND}{os.getpid()}", str(directory)])
            mounted.append(directory)
        yield [SmallDisk(directory) for directory in directories]
    finally:
        for directory in mounted:
            with contextlib.suppress(CannotRunError):
                run(["umount", "--lazy", str(directory)])


def _sweep() -> None:
    """Remove the disks of runs whose process has ended."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, directory = line.split()[:2]
        match = re.fullmatch(rf"{_KIND}(\d+)", source)
        if match and not Path("/proc", match[1]).exists():
            with contextlib.suppress(CannotRunError):
                run(["umount", "--lazy", directory])
