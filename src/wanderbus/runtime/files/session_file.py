"""Files with copies of sessions, readable by their owner only: they hold events."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.protocol import session_copy
from wanderbus.protocol.session_copy import SessionCopy
from wanderbus.runtime.files.disk import SYSTEM, replace_file

FILE_BYTES_MAX: Final = 256 * 2**20
"""Bytes of the largest file that is read."""


def write_session(path: Path, copy: SessionCopy) -> None:
    """Write ``copy`` to a file atomically and durably."""
    try:
        replace_file(SYSTEM, path, session_copy.written(copy))
    except OSError as error:
        raise StorageError(f"{path}: cannot write the copy: {error.strerror}") from None


def read_session(path: Path) -> SessionCopy:
    """Return the copy in a file; :class:`StorageError` says why it is none."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot read the copy: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise StorageError(f"{path}: a copy of a session has at most {FILE_BYTES_MAX} bytes")
    try:
        return session_copy.read(content)
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from None
