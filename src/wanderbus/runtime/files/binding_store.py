"""Registrations on disk, so that a restarted registrar still knows the devices of all users (SPEC D-12).

There is one row for each address of record, rewritten at each registration. Times are wall-clock seconds, because the
monotonic clock is not valid in the next process. Writes are not synced: every device registers again within a third
of its time, which restores what a power cut loses. Damage is handled in the same way: a row with a wrong checksum is
skipped, an unreadable file is replaced, and one line is logged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from wanderbus.errors import StorageError
from wanderbus.runtime.files.file_modes import make_private
from wanderbus.runtime.files.sqlite_files import is_cut_off, is_damage, put_aside
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.location import moved

LAYOUT: Final = 2
"""Version of the table's layout. A file of version 1, without checksums, is converted; other versions are refused."""

_TABLES: Final = {
    1: "CREATE TABLE bindings(aor TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID",
    2: "CREATE TABLE bindings(aor TEXT PRIMARY KEY, row TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
}
_READ: Final = "SELECT CAST(aor AS BLOB), CAST(row AS BLOB), checksum FROM bindings"
_WRITE: Final = "REPLACE INTO bindings(aor, row, checksum) VALUES(?, ?, ?)"

_log = logging.getLogger("wanderbus.registrations")

Bindings = Mapping[str, tuple[Binding, ...]]


class BindingStore:
    """The bindings of one registrar in one SQLite file; made by :meth:`open`."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> BindingStore:
        """Open the file, or create it if it is missing or unusable; an unusable one is then moved aside.

        Raises :class:`StorageError` in one line if its directory is not writable, or another process uses the file.
        """
        try:
            return cls(path, _connected(path))
        except _Unusable as error:
            aside = _put_aside(path)
            _log.warning("%s cannot be used (%s): moved it to %s; users register again", path, error, aside)
        except OSError as error:
            raise StorageError(f"{path} cannot be used: {error.strerror}") from None
        except apsw.BusyError:
            raise StorageError(f"{path} is in use by another process; stop that one first") from None
        except apsw.Error as error:
            raise StorageError(f"{path} cannot be used: {error}") from None
        return cls(path, _connected(path))

    def load(self, wall_s: float, now: float) -> dict[str, tuple[Binding, ...]]:
        """Return all bindings; their expiry is converted to the monotonic clock, which is ``now`` at ``wall_s``."""
        decoder = msgspec.json.Decoder(tuple[Binding, ...])
        loaded: dict[str, tuple[Binding, ...]] = {}
        lost = []
        stored: list[tuple[Any, ...]] = self._connection.execute(_READ).fetchall()
        for aor, row, checksum in stored:
            try:
                if _checksum(aor, row) != checksum:
                    raise ValueError
                loaded[aor.decode()] = moved(decoder.decode(row), now - wall_s)
            except (msgspec.DecodeError, ValueError):
                lost.append((aor,))
        if lost:
            _log.warning("%s: discarded damaged registrations of %s users; they register again", self.path, len(lost))
            with contextlib.suppress(apsw.Error):
                self._connection.executemany("DELETE FROM bindings WHERE CAST(aor AS BLOB) = ?", lost)
        return loaded

    def save(self, written: Bindings, wall_s: float, now: float) -> None:
        """Store the bindings of these addresses of record in one transaction; an address without bindings is deleted.

        Raises :class:`StorageError` if the file cannot be written; it is then unchanged.
        """
        rows = [_row(aor, moved(bindings, wall_s - now)) for aor, bindings in written.items() if bindings]
        gone = [(aor,) for aor, bindings in written.items() if not bindings]
        try:
            with self._connection:
                self._connection.executemany(_WRITE, rows)
                self._connection.executemany("DELETE FROM bindings WHERE aor = ?", gone)
        except apsw.Error as error:
            raise StorageError(f"{self.path} cannot be written: {error}") from None

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()


class _Unusable(Exception):
    """The file exists, but is damaged or not a file of registrations."""


def _put_aside(path: Path) -> str:
    try:
        return put_aside(path).name
    except OSError as error:
        raise StorageError(f"{path} is damaged and cannot be moved aside: {error.strerror}") from None


def _connected(path: Path) -> apsw.Connection:
    if is_cut_off(path):
        raise _Unusable("it is empty")
    make_private(path)
    connection = apsw.Connection(str(path))
    try:
        # Two registrars that share a file would overwrite each other's registrations.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        _prepare(path, connection)
    except (_Unusable, apsw.Error, UnicodeDecodeError) as error:
        connection.close()
        if isinstance(error, _Unusable) or is_damage(error):
            raise _Unusable(" ".join(str(error).split())) from None
        raise
    return connection


def _prepare(path: Path, connection: apsw.Connection) -> None:
    """Check the file, or create the table in a new one; :class:`_Unusable` describes what is wrong."""
    if connection.readonly("main") and os.access(path, os.W_OK):
        raise _Unusable("its header is damaged")
    if (verdict := connection.execute("PRAGMA integrity_check(1)").fetchall()) != [("ok",)]:
        raise _Unusable(str(verdict[0][0]))
    layout = connection.pragma("user_version")
    tables = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")]
    if tables and (layout not in _TABLES or tables != [_TABLES[layout]]):
        raise _Unusable(f"its table does not have layout {LAYOUT}")
    if layout == LAYOUT:
        return
    with connection:
        rows = connection.execute("SELECT aor, row FROM bindings").fetchall() if tables else []
        connection.execute("DROP TABLE IF EXISTS bindings")
        connection.execute(_TABLES[LAYOUT])
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
        kept = [(str(aor), str(row)) for aor, row in rows]
        connection.executemany(_WRITE, [(aor, row, _checksum(aor.encode(), row.encode())) for aor, row in kept])


def _row(aor: str, bindings: Iterable[Binding]) -> tuple[str, str, int]:
    row = msgspec.json.encode(tuple(bindings))
    return aor, row.decode(), _checksum(aor.encode(), row)


def _checksum(aor: bytes, row: bytes) -> int:
    return zlib.crc32(row, zlib.crc32(aor))
