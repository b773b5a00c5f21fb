"""Descriptions of the state files, read without a change to any file, while a server may use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from wanderbus.errors import StateCorrupt
from wanderbus.runtime.files.state_generations import NAMES
from wanderbus.runtime.files.state_store import Meta, read_meta


def state_offsets(directory: Path) -> Mapping[str, int | None]:
    """Return the offset of each state file of a data directory, by name; None if it cannot be read."""
    found = {name: _described(path) for name in NAMES if (path := directory / name).exists()}
    return {name: None if meta is None else meta.offset for name, meta in found.items()}


def state_server(directory: Path) -> str | None:
    """Return the name of the server to which the state of a data directory belongs; None if none can be read."""
    found = (_described(path) for name in NAMES if (path := directory / name).exists())
    return next((meta.server for meta in found if meta is not None and meta.server), None)


def _described(path: Path) -> Meta | None:
    try:
        with opened_unchanged(path) as connection:
            return read_meta(path, connection)
    except (apsw.Error, StateCorrupt):
        return None


@contextmanager
def opened_unchanged(path: Path) -> Iterator[apsw.Connection]:
    """Open a state file for reading alone; ``apsw.Error`` if that fails."""
    # Without a write-ahead log nobody has the file open, and SQLite need not create any file beside it.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    connection = apsw.Connection(
        f"file:{quote(str(path.absolute()))}?{mode}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        yield connection
    finally:
        connection.close()
