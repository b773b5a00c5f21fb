"""Results and journal of one traveller, in one SQLite file that outlives its process.

A result and the position of its notification are committed in one transaction. That makes delivery exact across ``kill
-9``: the next life of the traveller passes the position to ``connect(resume=...)``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCHEMA = """
create table if not exists taken(
    seq integer primary key, subject text not null, row integer not null, at_us integer not null,
    epoch integer not null, number integer not null, subscriptions integer not null, redelivered integer not null,
    origin text not null);
create table if not exists position(one integer primary key check (one = 1), epoch integer, number integer);
create table if not exists journal(
    seq integer primary key, at_us integer not null, what text not null, address text not null, reason text not null);
"""


@dataclass(frozen=True)
class Taken:
    """One notification the traveller committed: ``seq`` is the order of committing, times in microseconds.

    ``origin`` is the foreign domain that published the event, "" for the own one.
    """

    seq: int
    subject: str
    row: int
    at_us: int
    epoch: int
    number: int
    subscriptions: int
    redelivered: int
    origin: str = ""


@dataclass(frozen=True)
class Entry:
    """One line of the journal: ``what`` is ``started``, ``stopped``, ``gap`` or a connection status."""

    at_us: int
    what: str
    address: str
    reason: str


class Results:
    """The file of one traveller, open for writing by its process."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("pragma journal_mode=wal")
        self._database.execute("pragma synchronous=normal")
        self._database.executescript(_SCHEMA)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def position(self) -> tuple[int, int] | None:
        """Return (epoch, number) of the last committed notification, or None before the first."""
        row: tuple[int, int] | None = self._database.execute("select epoch, number from position").fetchone()
        return row

    def count(self) -> int:
        """Return how many notifications were committed, in all lives of the traveller."""
        return int(self._database.execute("select count(*) from taken").fetchone()[0])

    def take(
        self,
        subject: str,
        row: int,
        at_us: int,
        position: tuple[int, int],
        subscriptions: int,
        redelivered: bool,
        origin: str = "",
    ) -> None:
        """Commit one result and its position, both or neither."""
        with self._database:
            self._database.execute(
                "insert into taken(subject, row, at_us, epoch, number, subscriptions, redelivered, origin) "
                "values (?, ?, ?, ?, ?, ?, ?, ?)",
                (subject, row, at_us, *position, subscriptions, redelivered, origin),
            )
            self._database.execute("insert or replace into position values (1, ?, ?)", position)

    def note(self, at_us: int, what: str, address: str = "", reason: str = "") -> None:
        """Commit one line of the journal."""
        with self._database:
            self._database.execute(
                "insert into journal(at_us, what, address, reason) values (?, ?, ?, ?)", (at_us, what, address, reason)
            )


def read_taken(path: Path) -> list[Taken]:
    """Return the notifications that the traveller of ``path`` committed, in order; empty if it never started."""
    columns = "seq, subject, row, at_us, epoch, number, subscriptions, redelivered, origin"
    return [Taken(*row) for row in _read(path, f"select {columns} from taken order by seq")]


def read_journal(path: Path) -> list[Entry]:
    """Return the journal of ``path``, in the order it was written."""
    return [Entry(*row) for row in _read(path, "select at_us, what, address, reason from journal order by seq")]


def _read(path: Path, query: str) -> Iterable[Any]:
    if not path.exists():
        return []
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()
