"""The state derived from the event log, as rows in SQLite (DESIGN 5.1, 8).

Every save is one transaction that also stores the log offset it reflects, so the state is always some prefix of
the log and the rest is applied on start. ``synchronous=NORMAL`` is enough: what a power cut takes back is in the
log. While the log is whole the file may be deleted; it is rebuilt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import apsw

from wanderbus.errors import StateCorrupt, StorageError
from wanderbus.records import SCHEMA_VERSION

BUSY_TIMEOUT_MS: Final = 2_000
"""How long to wait for another process that looks at the file."""

_TABLE_NAME = re.compile(r"[a-z][a-z_]*")
_META = "CREATE TABLE IF NOT EXISTS meta(offset INTEGER NOT NULL, schema INTEGER NOT NULL, server TEXT NOT NULL)"


class StateStore:
    """Tables of ``key -> row``, where a row is JSON; made by :meth:`open`."""

    def __init__(self, path: Path, connection: apsw.Connection, offset: int) -> None:
        self.path = path
        self.offset = offset
        """Records of the log below it are contained in the rows."""
        self._connection = connection
        self._tables: set[str] = set()

    @classmethod
    def open(cls, path: Path, *, server: str = "") -> StateStore:
        """Open the state in ``path``, or begin an empty one at offset 0 for the server named ``server``.

        Raises :class:`StateCorrupt` if the file is damaged, of another record schema or of another server,
        :class:`StorageError` if it cannot be opened or is in use.
        """
        try:
            connection = apsw.Connection(str(path))
        except apsw.Error as error:
            raise StorageError(f"{path} cannot be used: {error}") from None
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            return cls(path, connection, _prepare(connection, server))
        except StateCorrupt as error:
            connection.close()
            raise _unusable(path, str(error)) from None
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            connection.close()
            raise _unusable(path, str(error)) from error
        except apsw.Error as error:
            connection.close()
            raise StorageError(f"{path} cannot be used: {error}") from None

    def load(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield the rows of ``table`` in order of their keys; nothing if no row was ever saved in it.

        Raises :class:`StateCorrupt` if the file turns out to be damaged.
        """
        try:
            if self._connection.table_exists("main", _checked(table)):
                for key, row in self._connection.execute(f"SELECT key, row FROM {table} ORDER BY key"):
                    yield str(key), str(row).encode()
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise _unusable(self.path, str(error)) from error

    def save(self, changes: Mapping[str, Mapping[str, bytes | None]], offset: int) -> None:
        """Store ``changes`` (table, key, row as JSON; None deletes) and ``offset`` in one transaction.

        ``offset`` is the first one whose record the rows do not contain yet; it never goes back.
        """
        assert offset >= self.offset, f"state at {self.offset} cannot go back to {offset}"
        with self._connection:
            for table, rows in changes.items():
                self._make_table(table)
                self._connection.executemany(
                    f"INSERT INTO {table}(key, row) VALUES(?, ?) ON CONFLICT(key) DO UPDATE SET row = excluded.row",
                    [(key, row.decode()) for key, row in rows.items() if row is not None],
                )
                self._connection.executemany(
                    f"DELETE FROM {table} WHERE key = ?", [(key,) for key, row in rows.items() if row is None]
                )
            self._connection.execute("UPDATE meta SET offset = ?", (offset,))
        self._tables.update(changes)
        self.offset = offset

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def _make_table(self, table: str) -> None:
        if table not in self._tables:
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_checked(table)}(key TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID"
            )


def _prepare(connection: apsw.Connection, server: str) -> int:
    """Check a file from start to end, or lay out a new one; return its offset."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != [("ok",)]:
        raise StateCorrupt(str(verdict[0][0]).replace("\n", " "))
    with connection:
        connection.execute(_META)
        found = connection.execute("SELECT offset, schema, server FROM meta").fetchall()
        if not found:
            connection.execute("INSERT INTO meta VALUES(0, ?, ?)", (SCHEMA_VERSION, server))
            return 0
    offset, schema, owner = found[0]
    if schema != SCHEMA_VERSION:
        raise StateCorrupt(f"it has record schema {schema}, this version writes {SCHEMA_VERSION}")
    if server and owner != server:
        raise StateCorrupt(f"it belongs to the server {owner!r}, this one is {server!r}")
    assert isinstance(offset, int)
    return offset


def _checked(table: str) -> str:
    """Return ``table`` if it can stand in a statement as it is: names come from the code, never from outside."""
    assert _TABLE_NAME.fullmatch(table), table
    assert table != "meta", "the name is taken"
    return table


def _unusable(path: Path, why: str) -> StateCorrupt:
    return StateCorrupt(
        f"{path} cannot be used ({why}); move it and any {path.name}-wal away, it is rebuilt from the log"
    )
