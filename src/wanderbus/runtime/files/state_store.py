"""The state derived from the event log, as rows in SQLite (DESIGN 5.1, 8).

Every save is one transaction that also stores the log offset it reflects, so the state is always some prefix of the
log, and the rest is applied on start. ``synchronous=NORMAL`` is sufficient, because the log holds what a power cut
loses. While the log is complete the file may be deleted; it is rebuilt. Once segments of the log are removed there are
two files (:mod:`wanderbus.runtime.files.state_generations`).

Each row has a checksum over its table, its key and itself, and so has the row that describes the file. Checksums
detect damage that SQLite does not notice; a damaged file is refused as a whole.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from wanderbus.errors import StateCorrupt, StorageError
from wanderbus.records import SCHEMA_VERSION
from wanderbus.runtime.files.disk import FULL
from wanderbus.runtime.files.file_modes import make_private
from wanderbus.runtime.files.sqlite_files import is_cut_off, is_damage
from wanderbus.runtime.files.sqlite_room import SPARE_BYTES_MAX, compact

BUSY_TIMEOUT_MS: Final = 2_000
"""Time to wait for another process that reads the file."""

WAL_BYTES_MAX: Final = 4 * 2**20
"""Size of the write-ahead log above which a save also empties it."""

FORMAT: Final = 4
"""Format of the rows, stored in the file's header; a file from before formats were numbered has 0."""

_TABLE_NAME = re.compile(r"[a-z][a-z_]*")
_META: Final = (
    "CREATE TABLE meta(offset INTEGER NOT NULL, schema INTEGER NOT NULL, server TEXT NOT NULL, tables TEXT NOT NULL, "
    "checksum INTEGER NOT NULL)"
)
_WRITE: Final = (
    "INSERT INTO {}(key, row, checksum) VALUES(?, ?, ?) "
    "ON CONFLICT(key) DO UPDATE SET row = excluded.row, checksum = excluded.checksum"
)
_LEVEL: Final = (
    "DELETE FROM main.{0} WHERE key NOT IN (SELECT key FROM source.{0})",
    "INSERT INTO main.{0} SELECT theirs.* FROM source.{0} AS theirs LEFT JOIN main.{0} AS ours USING (key) "
    "WHERE ours.row IS NOT theirs.row OR ours.checksum IS NOT theirs.checksum "
    "ON CONFLICT(key) DO UPDATE SET row = excluded.row, checksum = excluded.checksum",
)
"""Statements that make a table the same as that of the attached file."""


class Meta(NamedTuple):
    """Description of the file, stored in it; ``tables`` are the names of its tables separated by spaces."""

    offset: int
    schema: int
    server: str
    tables: str


class StateStore:
    """Tables of ``key -> row``, where a row is msgpack; made by :meth:`open`."""

    def __init__(self, path: Path, connection: apsw.Connection, meta: Meta) -> None:
        self.path = path
        self._connection = connection
        self._meta = meta

    @classmethod
    def open(cls, path: Path, *, server: str = "", vfs: str | None = None) -> StateStore:
        """Open the state in ``path``, or create an empty one at offset 0 for the server named ``server``.

        ``vfs`` names SQLite's file system layer if it is not the usual one.

        Raises :class:`StateCorrupt` if the file is damaged or of an earlier format, and must be rebuilt,
        :class:`StorageError` if it cannot be opened, is in use, or belongs to another server or a later version.
        """
        if is_cut_off(path):
            raise _unusable(path, "it is empty")
        if vfs is None:
            make_private(path)
        try:
            connection = apsw.Connection(str(path), vfs=vfs)
        except apsw.Error as error:
            raise StorageError(f"{path} cannot be used: {error}") from None
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            return cls(path, connection, _prepare(path, connection, server))
        except StorageError:
            connection.close()
            raise
        except (apsw.Error, UnicodeDecodeError) as error:
            connection.close()
            if is_damage(error):
                raise _unusable(path, str(error)) from error
            raise StorageError(f"{path} cannot be used: {error}") from None

    @property
    def offset(self) -> int:
        """Return the offset below which the rows contain every record of the log."""
        return self._meta.offset

    @property
    def tables(self) -> Sequence[str]:
        """Return the names of all tables."""
        return self._meta.tables.split()

    def load(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield the rows of ``table`` in order of their keys; none if no row was ever saved in it.

        Raises :class:`StateCorrupt` if a row is damaged.
        """
        if _checked(table) not in self.tables:
            return
        seed = zlib.crc32(table.encode())
        try:
            for key, row, checksum in self._connection.execute(f"SELECT key, row, checksum FROM {table} ORDER BY key"):
                if type(key) is not str or type(row) is not bytes or _checksum(seed, key, row) != checksum:
                    raise _unusable(self.path, f"a row of {table} has a wrong checksum")
                yield key, row
        except (apsw.Error, UnicodeDecodeError) as error:
            if is_damage(error):
                raise _unusable(self.path, str(error)) from error
            raise StorageError(f"{self.path} cannot be read: {error}") from None

    def save(self, changes: Mapping[str, Mapping[str, bytes | None]], offset: int) -> None:
        """Store ``changes`` (table, key, row; None deletes) and ``offset`` in one transaction.

        ``offset`` is the first one whose record the rows do not contain yet; it never decreases. ``OSError`` means that
        there is no room: the file is then unchanged, and the call may be retried.
        """
        assert offset >= self.offset, f"state at {self.offset} cannot go back to {offset}"
        tables = " ".join(sorted({*self.tables, *changes}))
        self._transact(lambda: self._write(changes), self._meta._replace(offset=offset, tables=tables))

    def level(self, source: StateStore) -> None:
        """Make every row and the offset those of ``source``, in one transaction; only rows that differ are written.

        Raises :class:`StateCorrupt` if a row of this file is damaged, and ``OSError`` as :meth:`save` does.
        """
        assert source.offset >= self.offset, f"state at {self.offset} cannot go back to {source.offset}"
        for table in self.tables:
            deque(self.load(table), maxlen=0)
        self._connection.execute("ATTACH ? AS source", (str(source.path),))
        try:
            self._transact(lambda: self._copy(source.tables), source._meta)
        finally:
            self._connection.execute("DETACH source")

    def compact(self, spare_bytes_max: int = SPARE_BYTES_MAX) -> None:
        """Give the room of deleted rows to the system, if it is more; ``OSError`` means that the disk is full.

        The rows stay as they are, also after a failure.
        """
        with self._reporting_full():
            if compact(self._connection.execute, spare_bytes_max):
                self._checkpoint()  # only this makes the file shorter

    def sync(self) -> bool:
        """Make everything saved durable, which a save alone does not; return False if another reader prevents it now.

        ``OSError`` means that there is no room.
        """
        with self._reporting_full():
            return self._checkpoint()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def _write(self, changes: Mapping[str, Mapping[str, bytes | None]]) -> None:
        known = self.tables
        for table, rows in changes.items():
            if table not in known:
                self._connection.execute(_layout(table))
            self._connection.executemany(_WRITE.format(_checked(table)), _stored(table, rows))
            self._connection.executemany(
                f"DELETE FROM {table} WHERE key = ?", [(key,) for key, row in rows.items() if row is None]
            )

    def _copy(self, tables: Sequence[str]) -> None:
        """Copy the rows of the attached file ``source``."""
        known = self.tables
        assert set(known) <= set(tables), f"{self.path} has more tables than its source"
        for table in map(_checked, tables):
            if table not in known:
                self._connection.execute(_layout(table))
                self._connection.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
                continue
            for statement in _LEVEL:
                self._connection.execute(statement.format(table))

    def _transact(self, change: Callable[[], None], meta: Meta) -> None:
        """Make ``change`` and the description ``meta`` one transaction; ``OSError`` if there is no room."""
        # Not `with self._connection`: on a full disk SQLite rolls back itself, and a second rollback would fail.
        with self._reporting_full():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                change()
                _keep_meta(self._connection, meta)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        self._meta = meta
        if os.path.getsize(self._connection.filename_wal) > WAL_BYTES_MAX:
            with suppress(apsw.Error):  # as SQLite's own checkpoint: the rows are saved
                self._checkpoint()

    def _checkpoint(self) -> bool:
        """Move the write-ahead log into the file, and empty it; return False if another reader prevents it now.

        If the log stayed, damage in it would bring back older rows: SQLite reads it up to the damage, and the rest from
        the file, which has newer rows already.
        """
        try:
            self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        return True

    @contextmanager
    def _reporting_full(self) -> Iterator[None]:
        """Raise ``OSError`` for errors of SQLite that mean a lack of room."""
        try:
            yield
        except (apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
            why = errno.ENOSPC if isinstance(error, apsw.FullError) else self._connection.system_errno
            if why in FULL:
                raise OSError(why, os.strerror(why), str(self.path)) from error
            raise


def _stored(table: str, rows: Mapping[str, bytes | None]) -> Iterable[tuple[str, bytes, int]]:
    """Return the stored form of the rows that are not deleted."""
    seed = zlib.crc32(table.encode())
    return [(key, row, _checksum(seed, key, row)) for key, row in rows.items() if row is not None]


def _prepare(path: Path, connection: apsw.Connection, server: str) -> Meta:
    """Check the whole file, or create the tables in a new one; return its description."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != [("ok",)]:
        raise _unusable(path, str(verdict[0][0]))
    if connection.readonly("main"):
        # SQLite also opens a file as read-only if its header requires a later version.
        if os.access(path, os.W_OK):
            raise _unusable(path, "its header is damaged")
        raise StorageError(f"{path} cannot be used: it is read-only; make it writable")
    stored_format = connection.pragma("user_version")
    layouts = {str(name): sql for name, sql in connection.execute("SELECT name, sql FROM sqlite_master")}
    if not layouts and not stored_format:
        return _laid_out(connection, server)
    if stored_format != FORMAT:
        raise _unusable(path, f"its rows have format {stored_format}, this version writes {FORMAT}")
    meta = read_meta(path, connection)
    if layouts != {"meta": _META, **{table: _layout(table) for table in meta.tables.split()}}:
        raise _unusable(path, "its tables do not have the expected layout")
    _check_owner(path, meta, server)
    return meta


def _check_owner(path: Path, meta: Meta, server: str) -> None:
    """Raise if the state belongs to another version or server."""
    if meta.schema > SCHEMA_VERSION:
        raise StorageError(
            f"{path} has record schema {meta.schema}, this version writes {SCHEMA_VERSION}; "
            "use the version that made it"
        )
    if meta.schema < SCHEMA_VERSION:
        raise _unusable(path, f"it has record schema {meta.schema}, this version writes {SCHEMA_VERSION}")
    if server and meta.server != server:
        raise StorageError(
            f"{path} belongs to the server {meta.server!r}, this one is {server!r}; move it and any {path.name}-wal "
            "away, the state is rebuilt from the log"
        )


def _laid_out(connection: apsw.Connection, server: str) -> Meta:
    meta = Meta(0, SCHEMA_VERSION, server, "")
    with connection:
        connection.execute(_META)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        _keep_meta(connection, meta)
    return meta


def _keep_meta(connection: apsw.Connection, meta: Meta) -> None:
    connection.execute("DELETE FROM meta")
    connection.execute("INSERT INTO meta VALUES(?, ?, ?, ?, ?)", (*meta, _meta_checksum(meta)))


def read_meta(path: Path, connection: apsw.Connection) -> Meta:
    """Return the description of a file; :class:`StateCorrupt` if its checksum is wrong."""
    found: list[tuple[Any, ...]] = connection.execute("SELECT * FROM meta").fetchall()
    if len(found) != 1 or _meta_checksum(found[0][:-1]) != found[0][-1]:
        raise _unusable(path, "its description has a wrong checksum")
    return Meta(*found[0][:-1])


def _meta_checksum(columns: Iterable[Any]) -> int:
    return zlib.crc32(repr(list(columns)).encode())


def _checksum(seed: int, key: str, row: bytes) -> int:
    return zlib.crc32(row, zlib.crc32(key.encode(), seed))


def _layout(table: str) -> str:
    columns = "key TEXT PRIMARY KEY, row BLOB NOT NULL, checksum INTEGER NOT NULL"
    return f"CREATE TABLE {_checked(table)}({columns}) WITHOUT ROWID"


def _checked(table: str) -> str:
    """Return ``table`` if it is safe in an SQL statement: names come from the code, never from input."""
    assert _TABLE_NAME.fullmatch(table), table
    assert table != "meta", "the name meta is reserved"
    return table


def _unusable(path: Path, why: str) -> StateCorrupt:
    return StateCorrupt(f"{path} cannot be used ({' '.join(why.split())})")
