"""Unusable SQLite files: detection of an emptied file, and moving a file aside."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import apsw

_DAMAGE: Final = (apsw.NotADBError, apsw.CorruptError, apsw.SQLError, UnicodeDecodeError)
"""Exceptions of SQLite and its wrapper for a damaged file; the last one quotes the damage."""

_PAGE_BYTES_MIN: Final = 512
"""Smallest page of a SQLite file; every file has one from its creation."""


def is_damage(error: Exception) -> bool:
    """Return whether an exception of SQLite or its wrapper means a damaged file, rather than a failing disk.

    A file that ends within a page is damaged too, although SQLite reports that as an error of the disk.
    """
    ends_early = getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHORT_READ
    return ends_early or isinstance(error, _DAMAGE)


def is_cut_off(path: Path) -> bool:
    """Return whether the file exists and is shorter than a page: SQLite would treat it as a new one."""
    return path.is_file() and path.stat().st_size < _PAGE_BYTES_MIN


def put_aside(path: Path) -> Path:
    """Rename a database and its companions to ``<path>.damaged``, replacing an earlier one; return the new path.

    The write-ahead log is renamed first: left alone, SQLite would apply it to the new database.
    """
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return aside
