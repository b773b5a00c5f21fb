"""``wanderbus sessions``, ``subscriptions`` and ``queues``: what is at the broker, as a table or as JSON."""

from __future__ import annotations

import asyncio
import fnmatch
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wanderbus.api.operations import Operations, Row
from wanderbus.cli.connection import AsJson, Connection, visiting
from wanderbus.cli.output import run_async, say_json
from wanderbus.errors import UnknownUser
from wanderbus.runtime.ambient import wall_us

_WIDTH_OF_A_FILE: Final = 200
"""Characters of a line where there is no terminal to say how many."""

_WHOLE: Final = frozenset({"user", "session", "status", "subscription"})
"""Columns that are not cut in two where the terminal is narrow: they are copied into other commands."""

What = Literal["sessions", "subscriptions", "queues"]
Columns = Mapping[str, Callable[[Row], object]]

Users = Annotated[
    str | None, typer.Argument(metavar="USER", help="Whose: a URI, or a pattern with * and ?.", show_default=False)
]
SessionPattern = Annotated[str | None, typer.Option("--session", help="Only sessions of this name; * and ? match.")]
Watch = Annotated[
    float | None, typer.Option("--watch", min=0.1, metavar="SECONDS", help="List again and again, after this pause.")
]


class Wanted(NamedTuple):
    """What to list, and of that the rows whose fields match these patterns."""

    what: What
    columns: Columns
    user: str | None
    patterns: Mapping[str, str | None]
    test: Callable[[Row], bool] = lambda row: True


@visiting
def sessions(
    whose: Users = None,
    *,
    connection: Connection,
    session: SessionPattern = None,
    status: Annotated[str | None, typer.Option(help="Only of users who are CONNECTED or DISCONNECTED.")] = None,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List sessions: who is connected with which devices, and what became of matches.

    Yours; with the role of operator everybody's.

    Example: wanderbus sessions "sip:a*" --status DISCONNECTED --user sip:olga@localhost
    """
    patterns = {"session": session, "status": status and status.upper()}
    _list(connection, Wanted("sessions", SESSIONS, whose, patterns), watch, json)


@visiting
def subscriptions(
    whose: Users = None,
    *,
    connection: Connection,
    session: SessionPattern = None,
    subject: Annotated[str | None, typer.Option(help="Only of this subject; * and ? match.")] = None,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List subscriptions, with what waits for each. Yours; with the role of operator everybody's.

    Example: wanderbus subscriptions --subject "Dep*" --user sip:alice@localhost
    """
    patterns = {"session": session, "subject": subject}
    _list(connection, Wanted("subscriptions", SUBSCRIPTIONS, whose, patterns), watch, json)


@visiting
def queues(
    whose: Users = None,
    *,
    connection: Connection,
    session: SessionPattern = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those in which something waits.")] = False,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List the queue of each session: how long, how old, its gaps and its bounds.

    Yours; with the role of operator everybody's.

    Example: wanderbus queues --waiting --watch 2 --user sip:olga@localhost
    """
    test = (lambda row: row["notifications"] > 0) if waiting else (lambda row: True)
    _list(connection, Wanted("queues", QUEUES, whose, {"session": session}, test), watch, json)


def _list(connection: Connection, wanted: Wanted, watch_s: float | None, json: bool) -> None:
    as_json = json or (watch_s is not None and not sys.stdout.isatty())
    run_async(_print(connection, wanted, watch_s) if as_json else _show(connection, wanted, watch_s))


async def _print(connection: Connection, wanted: Wanted, watch_s: float | None) -> None:
    """Print a line of JSON for each row; of a row that is watched, when it was so."""
    async with connection.operations() as operations:
        while True:
            at_us = wall_us()
            async for row in _rows(operations, wanted):
                say_json(row if watch_s is None else {"at_us": at_us, **row})
            if watch_s is None:
                return
            await asyncio.sleep(watch_s)


async def _show(connection: Connection, wanted: Wanted, watch_s: float | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    async with connection.operations() as operations:
        if watch_s is None:
            console.print(await _table(operations, wanted))
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(await _table(operations, wanted), refresh=True)
                await asyncio.sleep(watch_s)


async def _rows(operations: Operations, wanted: Wanted) -> AsyncIterator[Row]:
    """Yield what is wanted; a pattern of users is matched here, as the broker knows users by their URI alone."""
    is_pattern = wanted.user is not None and any(character in wanted.user for character in "*?[")
    patterns = {**wanted.patterns, "user": wanted.user if is_pattern else None}
    found = False
    async for row in getattr(operations, wanted.what)(None if is_pattern else wanted.user):
        found = True
        if wanted.test(row) and all(
            pattern is None or fnmatch.fnmatchcase(str(row[name]), pattern) for name, pattern in patterns.items()
        ):
            yield row
    if not found and wanted.user is not None and not is_pattern and wanted.what == "sessions":
        raise UnknownUser(f"the broker has no session of {wanted.user}; 'wanderbus sessions' lists who has one")


async def _table(operations: Operations, wanted: Wanted) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in wanted.columns:
        table.add_column(heading, overflow="fold", no_wrap=heading in _WHOLE)
    found = [row async for row in _rows(operations, wanted)]
    for row in sorted(found, key=lambda row: (row["user"], row["session"])):
        table.add_row(*[Text(_printable(column(row))) for column in wanted.columns.values()])
    return table


def _printable(value: object) -> str:
    """Return a value as a terminal may have it: what users call their things must not steer it."""
    text = "" if value is None else str(value)
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text)


def _field(name: str) -> Callable[[Row], object]:
    return lambda row: row.get(name)


def _instant(at_us: int | None) -> str:
    return "" if at_us is None else f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%SZ}"


def _span(seconds: float | None) -> str:
    """Return a time in the largest unit that leaves some of it."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _devices(row: Row) -> str:
    return "\n".join(map(_device, row.get("devices", ())))


def _device(device: Row) -> str:
    place = f"at {device['address']}" if device["address"] else ""
    away = "" if device["away_s"] is None else f"for {_span(device['away_s'])}"
    waiting = f"{device['waiting']} waiting" if device["waiting"] else ""
    return " ".join(filter(None, (device["device"], device["status"], away or place, waiting)))


def _counts(counts: Mapping[str, Any]) -> str:
    return "\n".join(f"{count} {reason}" for reason, count in counts.items())


def _bounds(row: Row) -> str:
    names = ("notifications_max", "bytes_max", "age_max_s")
    return " ".join(f"{name}={row[name]}" for name in names if row[name] is not None)


def _restrictions(row: Row) -> str:
    return "\n".join(map(_restriction, row.get("restrictions", ())))


def _restriction(restriction: Mapping[str, Any]) -> str:
    values = {
        name: value for name, value in restriction.items() if name != "type" and value not in (None, [], "always")
    }
    return " ".join((str(restriction["type"]), *(f"{name}={value}" for name, value in values.items())))


SESSIONS: Final[Columns] = {
    "user": _field("user"),
    "session": _field("session"),
    "status": _field("status"),
    "devices": _devices,
    "subscriptions": _field("subscriptions"),
    "queued": _field("queued"),
    "delivered": _field("delivered"),
    "dropped": lambda row: _counts(row.get("dropped", {})),
    "restricted": _field("restricted"),
}

SUBSCRIPTIONS: Final[Columns] = {
    "subscription": _field("subscription"),
    "user": _field("user"),
    "session": _field("session"),
    "subject": _field("subject"),
    "expression": _field("expression"),
    "language": _field("language"),
    "expires": lambda row: _instant(row["expires_us"]),
    "restrictions": _restrictions,
    "device": _field("device"),
    "queued": _field("queued"),
    "last": lambda row: _instant(row["last_us"]),
}

QUEUES: Final[Columns] = {
    "user": _field("user"),
    "session": _field("session"),
    "notifications": _field("notifications"),
    "bytes": _field("queued_bytes"),
    "oldest": lambda row: _span(row["oldest_s"]),
    "gaps": _field("gaps"),
    "missing": _field("missing"),
    "bounds": _bounds,
}
