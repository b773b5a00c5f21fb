"""Registration of a lake as a reader of the log, so that retention keeps what the lake has not read (SPEC T-01)."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path
from typing import Final

from wanderbus.errors import StorageError
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.segments import LogPlace

EXPIRES_S: Final = 7 * 86_400.0
"""Time for which the log is kept for a lake that nobody brings up to date; a job that fails on Friday is mended by
then."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")
_NAME_CHARACTERS_MAX: Final = 60


def reader_name(directory: Path, kind: str = "lake") -> str:
    """Return the name under which a lake or another job registers: that of its directory, and a digest of the path."""
    path = directory.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    return f"{kind}-{_UNSAFE.sub('-', path.name)[:_NAME_CHARACTERS_MAX].strip('-')}-{digest}"


def register_place(log: Path, name: str, place: LogPlace, expires_s: float = EXPIRES_S) -> None:
    """Register that the reader ``name`` has read ``log`` up to ``place`` and still needs the records from there on."""
    register_reader(log, LogReader(name, place.offset, time.time_ns() // 1_000, expires_s, place.checksum))


def register_lake(log: Path, lake: Path, place: LogPlace, expires_s: float = EXPIRES_S) -> None:
    """Register that ``lake`` has read ``log`` up to ``place`` and still needs the records from there on.

    Raises ``StorageError`` if the log no longer has that record: retention may have removed it before the registration.
    """
    register_place(log, reader_name(lake), place, expires_s)
    oldest = LogFiles(log).oldest()
    if oldest > place.offset:
        raise StorageError(
            f"{log} begins at record {oldest}, but {lake} has it only up to {place.offset}: records between were "
            "removed before they were read; restore the segments from a copy, or begin with a new lake and checkpoint"
        )
