"""Registrations on disk, so that a restarted registrar still knows where everybody is (SPEC D-12).

One row for each address of record, rewritten whenever it registers. Times are wall-clock seconds, for the monotonic
clock means nothing to the next process. Nothing waits for the disk: every device registers again within a third of
its time anyway, so what a power cut takes back is soon there again, and a file that cannot be read is begun anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import apsw
import msgspec

from wanderbus.errors import StorageError
from wanderbus.sip.location import Binding, moved

LAYOUT: Final = 1
"""Number of the table's layout; a file with another one is begun anew."""

_TABLE = "CREATE TABLE IF NOT EXISTS bindings(aor TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID"
_WRITE = "INSERT INTO bindings(aor, row) VALUES(?, ?) ON CONFLICT(aor) DO UPDATE SET row = excluded.row"

Bindings = Mapping[str, tuple[Binding, ...]]


class BindingStore:
    """The bindings of one registrar in one SQLite file; made by :meth:`open`."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> BindingStore:
        """Open the file, or begin one where there is none or none that can be used; the old one is then moved aside.

        Raises :class:`StorageError` in one line if there is no writing to its directory, or another process has it.
        """
        try:
            return cls(path, _connected(path))
        except _Unusable:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{path}.damaged{suffix}")
        except apsw.BusyError:
            raise StorageError(f"{path} is in use by another process; stop that one first") from None
        except apsw.Error as error:
            raise StorageError(f"{path} cannot be used: {error}") from None
        return cls(path, _connected(path))

    def load(self, wall_s: float, now: float) -> dict[str, tuple[Binding, ...]]:
        """Return all bindings, with their ends on the monotonic clock that shows ``now`` when it is ``wall_s``."""
        decoder = msgspec.json.Decoder(tuple[Binding, ...])
        loaded: dict[str, tuple[Binding, ...]] = {}
        for aor, row in self._connection.execute("SELECT aor, row FROM bindings"):
            with contextlib.suppress(msgspec.DecodeError):
                loaded[str(aor)] = moved(decoder.decode(str(row)), now - wall_s)
        return loaded

    def save(self, written: Bindings, wall_s: float, now: float) -> None:
        """Store what became of these addresses of record in one transaction; no bindings: the row goes.

        Raises :class:`StorageError` if it cannot be written; the file is as before.
        """
        rows = [(aor, _row(moved(bindings, wall_s - now))) for aor, bindings in written.items() if bindings]
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
    """The file is there and is not ours or not whole."""


def _connected(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    try:
        # Two registrars of one file would each forget what the other was told.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise _Unusable
        layout = connection.pragma("user_version")
        if layout not in (0, LAYOUT):
            raise _Unusable
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
    except (_Unusable, apsw.NotADBError, apsw.CorruptError):
        connection.close()
        raise _Unusable from None
    except apsw.Error:
        connection.close()
        raise
    return connection


def _row(bindings: Iterable[Binding]) -> str:
    return msgspec.json.encode(tuple(bindings)).decode()
