"""Lock of a job's directory, as of a lake: one job at a time changes it (SPEC T-03)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.lake_paths import check_lake_path
from wanderbus.runtime.files.file_modes import make_private_directory

LOCK_FILE: Final = "_lock"
"""File within the directory; its lock ends with the process that has it, however that ends."""


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; ``StorageError`` if another process has it.

    A new directory is accessible to its owner only. One that somebody has made keeps its mode: it may be shared.
    """
    path = directory / LOCK_FILE
    try:
        make_private_directory(directory)
        file = path.open("a+b")
    except OSError as error:
        raise StorageError(f"{directory} cannot be written: {error.strerror}; give a directory that can be") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StorageError(
                f"another job{_owner(directory)} changes {directory}; end it first, or use another directory"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield


@contextmanager
def lake_lock(lake: Path) -> Iterator[None]:
    """Hold the lock of a lake; ``StorageError`` if another process has it, or if the path cannot be that of a lake."""
    check_lake_path(lake)
    with directory_lock(lake):
        yield


def check_lock(lake: Path) -> None:
    """Return if no process has the lock of a lake now, for an early answer; ``StorageError`` otherwise."""
    with lake_lock(lake):
        pass


def is_locked(lake: Path) -> bool:
    """Return whether a job changes the lake now."""
    path = lake / LOCK_FILE
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _owner(directory: Path) -> str:
    try:
        text = (directory / LOCK_FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" (process {text})" if text.isdigit() else ""
