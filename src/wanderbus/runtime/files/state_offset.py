"""Offsets of the state files, read without a change to any file, while a server may use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import apsw

from wanderbus.runtime.files.state_generations import NAMES


def state_offsets(directory: Path) -> Mapping[str, int | None]:
    """Return the offset of each state file of a data directory, by name; None if it cannot be read."""
    return {name: _offset(path) for name in NAMES if (path := directory / name).exists()}


def _offset(path: Path) -> int | None:
    # Without a write-ahead log nobody has the file open, and SQLite need not create any file beside it.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path.absolute()))}?{mode}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            rows = connection.execute("SELECT offset FROM meta").fetchall()
        finally:
            connection.close()
    except apsw.Error:
        return None
    return int(rows[0][0]) if len(rows) == 1 and isinstance(rows[0][0], int) else None
