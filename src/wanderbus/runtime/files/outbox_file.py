"""An agent's outbox on disk: events that are durable here before the broker receives them (SPEC G-20, X25).

It is one SQLite file with a rollback journal, so Python's own SQLite module is sufficient. The journal is truncated
rather than deleted, because ``synchronous=FULL`` syncs a truncation: a power cut after a commit loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wanderbus.errors import StorageError
from wanderbus.runtime.files.disk import SYSTEM, sync_directory
from wanderbus.runtime.files.file_modes import open_own
from wanderbus.runtime.files.sqlite_room import compact

_log = logging.getLogger("wanderbus.agent")

SCHEMA: Final = 1

_TABLES: Final = (
    "CREATE TABLE outbox(schema INTEGER, epoch INTEGER, owner TEXT, next INTEGER, checksum INTEGER)",
    "CREATE TABLE events(number INTEGER PRIMARY KEY, event BLOB NOT NULL, checksum INTEGER NOT NULL)",
)

_PLACES: Final = 2**31 - 2
"""Range of the numbers of files that SQLite's header keeps as the user's version; 0 is no number."""

_FAULTS: Final = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions of SQLite for a damaged file; the second one quotes the damage."""


class OutboxFile:
    """Encoded events by number; numbers rise by one and are never reused within the ``epoch`` of the file.

    A file that was restored from a copy, or copied to another device, reuses numbers. The broker notices this by the
    content of the events, and the file then gets another epoch. The number of the file (inode) in its header shows that
    it is a copy, unless the system has given the same number again.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """Open the outbox at ``path`` that belongs to ``owner``, or create it.

        :raises StorageError: it is damaged, holds events of another owner, or cannot be used
        """
        self.path = path
        self.epoch = 0
        self.next = 1
        self._owner = owner
        self._is_new = not path.exists()
        try:
            os.close(open_own(path))
            # SQLite would apply events from a journal that another user left beside the file.
            real = path.resolve()
            os.close(open_own(real.with_name(f"{real.name}-journal")))
            sync_directory(SYSTEM, path.parent)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"the outbox {path} cannot be used: {error}") from None
        try:
            self._prepare()
        except _FAULTS as error:
            self._connection.close()
            raise self._unusable(error) from None
        except StorageError:
            self._connection.close()
            raise

    def load(self) -> list[tuple[int, bytes]]:
        """Return all events with their numbers, in order; :class:`StorageError` if one is damaged."""
        try:
            rows = self._connection.execute("SELECT number, event, checksum FROM events ORDER BY number").fetchall()
        except _FAULTS as error:
            raise self._unusable(error) from None
        for number, event, checksum in rows:
            if not isinstance(event, bytes) or _checksum(number, event) != checksum or number >= self.next:
                raise self._damaged(f"event {number} has a wrong checksum")
        return [(number, event) for number, event, _ in rows]

    def write(self, events: Sequence[bytes], removed: Sequence[int], *, renews: bool = False) -> int:
        """Store ``events`` and remove those numbered ``removed`` in one durable commit; return the first new number.

        With ``renews``, all events that remain belong to a new epoch. Their numbers stay. The removals are part of the
        same commit, because an event that the broker has accepted would otherwise get a second identifier.

        After :class:`StorageError`, for example of a full disk, the outbox is unchanged.
        """
        first, epoch = self.next, _new_epoch() if renews else self.epoch
        rows = [(number, event, _checksum(number, event)) for number, event in enumerate(events, first)]
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany("INSERT INTO events VALUES(?, ?, ?)", rows)
                self._connection.executemany("DELETE FROM events WHERE number = ?", [(each,) for each in removed])
                self._describe(epoch, first + len(events))
        except sqlite3.Error as error:
            raise StorageError(f"the outbox {self.path} cannot be written: {error}") from None
        self.epoch, self.next = epoch, first + len(events)
        if removed:
            with contextlib.suppress(sqlite3.Error):  # the disk may be full
                compact(self._connection.execute)
        return first

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode = TRUNCATE")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA temp_store = MEMORY")
        if (verdict := execute("PRAGMA integrity_check(1)").fetchone()) != ("ok",):
            raise self._damaged(str(verdict[0]))
        if execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            self._lay_out()
            return
        rows = execute("SELECT schema, epoch, owner, next, checksum FROM outbox").fetchall()
        if len(rows) != 1:
            raise self._damaged("it does not name its owner")
        schema, self.epoch, owner, self.next, checksum = rows[0]
        if checksum != _checksum(schema, self.epoch, owner, self.next):
            raise self._damaged("its description has a wrong checksum")
        if schema != SCHEMA:
            raise StorageError(f"the outbox {self.path} has schema {schema}, this version writes {SCHEMA}")
        if owner != self._owner:
            self._take_over(owner)
        self._check_place()

    def _check_place(self) -> None:
        """Log a warning if the file is a copy: nobody else knows of events that were stored in the original since."""
        place = self.path.stat().st_ino % _PLACES + 1
        (known,) = self._connection.execute("PRAGMA user_version").fetchone()
        if known == place:
            return
        if known:
            _log.warning(
                "the outbox %s is a copy: events that were stored after it was made, and not published, are not in it",
                self.path,
            )
        with contextlib.suppress(sqlite3.OperationalError):  # the disk may be full
            self._connection.execute(f"PRAGMA user_version = {place}")

    def _lay_out(self) -> None:
        if self.path.stat().st_size:
            raise self._damaged("it holds no outbox")
        if not self._is_new:
            _log.warning("the outbox %s is empty: created a new one; any events in it are lost", self.path)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                self._connection.execute(table)
            self._begin()
        self._check_place()

    def _take_over(self, owner: str) -> None:
        """Give the outbox to ``owner``, with a new epoch; only an empty outbox may change its owner."""
        (count,) = self._connection.execute("SELECT count(*) FROM events").fetchone()
        if count:
            raise StorageError(
                f"the outbox {self.path} holds {count} events of {owner}; connect as that user, or use another outbox"
            )
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._begin()

    def _begin(self) -> None:
        self.epoch, self.next = _new_epoch(), 1
        self._describe(self.epoch, 1)

    def _describe(self, epoch: int, following: int) -> None:
        row = (SCHEMA, epoch, self._owner, following)
        self._connection.execute("DELETE FROM outbox")
        self._connection.execute("INSERT INTO outbox VALUES(?, ?, ?, ?, ?)", (*row, _checksum(*row)))

    def _unusable(self, error: Exception) -> StorageError:
        if isinstance(error, sqlite3.OperationalError):
            return StorageError(f"the outbox {self.path} cannot be used: {error}")
        return self._damaged(str(error))

    def _damaged(self, why: str) -> StorageError:
        why = " ".join(why.split())
        return StorageError(f"the outbox {self.path} is damaged ({why}); move it away to continue without its events")


def _new_epoch() -> int:
    return int.from_bytes(secrets.token_bytes(7), "big") | 1


def _checksum(*values: object) -> int:
    return zlib.crc32(repr(values).encode())
