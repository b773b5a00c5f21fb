"""Files of SQLite that cannot be used: how one is known that was emptied, and how it is put aside for another one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import apsw

DAMAGE: Final = (apsw.NotADBError, apsw.CorruptError, apsw.SQLError, UnicodeDecodeError)
"""What SQLite and its wrapper raise over a damaged file; the last quotes the damage."""

_PAGE_BYTES_MIN: Final = 512
"""The smallest page that a file of SQLite can have, and it has one from its first moment."""


def is_cut_off(path: Path) -> bool:
    """Return whether there is a file without a page: SQLite would take it for a new one."""
    return path.is_file() and path.stat().st_size < _PAGE_BYTES_MIN


def put_aside(path: Path) -> Path:
    """Rename a database and what belongs to it to ``<path>.damaged``, in place of an earlier one; return that.

    The write-ahead log goes first: alone it would be taken for that of the database that is begun.
    """
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return aside
