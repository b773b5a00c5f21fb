"""The state derived from the event log, as rows in SQLite (DESIGN 5.1, 8).

Every save is one transaction that also stores the log offset it reflects, so the state is always some prefix of
the log and the rest is applied on start. ``synchronous=NORMAL`` is enough: what a power cut takes back is in the
log. While the log is whole the file may be deleted; it is rebuilt.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import apsw

from wanderbus.errors import StateCorrupt, StorageError
from wanderbus.records import SCHEMA_VERSION
from wanderbus.runtime.disk import FULL

BUSY_TIMEOUT_MS: Final = 2_000
"""How long to wait for another process that looks at the file."""

FORMAT: Final = 3
"""Of the rows: SQLite keeps it in the file's header, and a file from before there were formats has 0."""

_TABLE_NAME = re.compile(r"[a-z][a-z_]*")
_META = "CREATE TABLE IF NOT EXISTS meta(offset INTEGER NOT NULL, schema INTEGER NOT NULL, server TEXT NOT NULL)"


class StateStore:
    """Tables of ``key -> row``, where a row is msgpack; made by :meth:`open`."""

    def __init__(self, path: Path, connection: apsw.Connection, offset: int) -> None:
        self.path = path
        self.offset = offset
        """Records of the log below it are contained in the rows."""
        self._connection = connection
        self._tables: set[str] = set()

    @classmethod
    def open(cls, path: Path, *, server: str = "", vfs: str | None = None) -> StateStore:
        """Open the state in ``path``, or begin an empty one at offset 0 for the server named ``server``.

        ``vfs`` names SQLite's way to the disk where it is not the usual one.

        Raises :class:`StateCorrupt` if the file is damaged, of another format, schema or server,
        :class:`StorageError` if it cannot be opened or is in use.
        """
        try:
            connection = apsw.Connection(str(path), vfs=vfs)
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
                    yield str(key), bytes(row)
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise _unusable(self.path, str(error)) from error

    def save(self, changes: Mapping[str, Mapping[str, bytes | None]], offset: int) -> None:
        """Store ``changes`` (table, key, row; None deletes) and ``offset`` in one transaction.

        ``offset`` is the first one whose record the rows do not contain yet; it never goes back. ``OSError`` says
        that there is no room: everything is as before then, and the same call may be tried again.
        """
        assert offset >= self.offset, f"state at {self.offset} cannot go back to {offset}"
        try:
            self._write(changes, offset)
        except (apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
            why = errno.ENOSPC if isinstance(error, apsw.FullError) else self._connection.system_errno
            if why in FULL:
                raise OSError(why, os.strerror(why), str(self.path)) from error
            raise
        self._tables.update(changes)
        self.offset = offset

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def _write(self, changes: Mapping[str, Mapping[str, bytes | None]], offset: int) -> None:
        # Not `with self._connection`: on a full disk SQLite rolls back itself, and that would try it once more.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for table, rows in changes.items():
                self._make_table(table)
                self._connection.executemany(
                    f"INSERT INTO {table}(key, row) VALUES(?, ?) ON CONFLICT(key) DO UPDATE SET row = excluded.row",
                    [(key, row) for key, row in rows.items() if row is not None],
                )
                self._connection.executemany(
                    f"DELETE FROM {table} WHERE key = ?", [(key,) for key, row in rows.items() if row is None]
                )
            self._connection.execute("UPDATE meta SET offset = ?", (offset,))
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _make_table(self, table: str) -> None:
        if table not in self._tables:
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_checked(table)}(key TEXT PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID"
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
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("INSERT INTO meta VALUES(0, ?, ?)", (SCHEMA_VERSION, server))
            return 0
    offset, schema, owner = found[0]
    ((stored_format,),) = connection.execute("PRAGMA user_version").fetchall()
    if stored_format != FORMAT:
        raise StateCorrupt(f"its rows have format {stored_format}, this version writes {FORMAT}")
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
