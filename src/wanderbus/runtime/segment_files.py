"""Files of an event log: its segments in order, and its durable mark, read while a server may write them.

Nothing here takes the writer's lock or changes a file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.segments import HIGH_WATER, unpack_mark

LOG_NAME: Final = "name"
"""File with the name of the log: its server, and the incarnation of its first record."""

LOG_DOMAIN: Final = "domain"
"""File with the name of the domain of the log's server."""

_MARK_ATTEMPTS: Final = 20
_MARK_PAUSE_S: Final = 0.005
"""Attempts to read the mark, and the pause between two: one may coincide with a write of it."""


def log_directory(directory: Path) -> Path:
    """Return the subdirectory ``log`` of a server's data directory; a directory without one is the log itself."""
    inner = directory / "log"
    return inner if inner.is_dir() else directory


def segment_paths(directory: Path) -> list[Path]:
    """Return the segments of ``directory`` in order of their offsets."""
    return sorted(path for path in directory.glob("*.seg") if len(path.stem) == 20 and path.stem.isdigit())


def read_log_name(directory: Path) -> str | None:
    """Return the name of the log, ``server-incarnation``; None if no server of this version has written to it."""
    return _read_beside(directory / LOG_NAME)


def read_log_domain(directory: Path) -> str | None:
    """Return the domain of the log's server; None if no server of this version has written to it."""
    return _read_beside(directory / LOG_DOMAIN)


def _read_beside(path: Path) -> str | None:
    """Return the text of a file beside the segments; None if there is none."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def read_mark(directory: Path) -> int | None:
    """Return the durable mark; None if it is missing or damaged."""
    try:
        return unpack_mark((directory / HIGH_WATER).read_bytes())
    except FileNotFoundError:
        return None


def durable_end(directory: Path) -> int:
    """Return the offset after the last durable record, 0 if there is none yet: no record behind it may be read.

    :raises LogCorrupt: the mark is damaged
    :raises StorageError: the mark cannot be read
    """
    path = directory / HIGH_WATER
    for attempt in range(_MARK_ATTEMPTS):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise unreadable(path, error) from None
        mark = unpack_mark(data) if data else 0
        if mark is not None:
            return mark
        if attempt + 1 < _MARK_ATTEMPTS:
            time.sleep(_MARK_PAUSE_S)
    raise LogCorrupt(f"{path} is damaged at byte 0: it has no durable mark; start the server once to restore it")


def end_of_log(directory: Path) -> int:
    """Return the offset after the last durable record; :class:`StorageError` if no server has opened a log there."""
    if not (directory / HIGH_WATER).exists():
        raise StorageError(f"{directory} holds no event log that a server has opened; give a server's data directory")
    return durable_end(directory)


def unreadable(path: Path, error: OSError) -> StorageError:
    """Return the error of a file that cannot be read."""
    return StorageError(f"{path} cannot be read: {error.strerror}; restore it from a copy")
