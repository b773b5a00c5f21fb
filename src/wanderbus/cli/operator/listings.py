"""``wanderbus sessions``, ``subscriptions`` and ``queues``: state of the broker, as a table or as JSON."""

from __future__ import annotations

import asyncio
import fnmatch
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import typer
from msgspec.structs import asdict
from rich.console import Console
from rich.live import Live
from rich.text import Text

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.output import print_json, print_lines, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import UnknownUser
from wanderbus.event_text import escaped
from wanderbus.operator_rows import AdvertisementInfo, DeviceInfo, QueueInfo, SessionInfo, SubscriptionInfo, UnreadInfo
from wanderbus.runtime.system_random import wall_us
from wanderbus.subscription import PATTERN, Restriction, instant_shown

_LINE: Final = 80
_INDENT: Final = "  "

What = Literal["sessions", "subscriptions", "queues"]
Listed = SessionInfo | SubscriptionInfo | QueueInfo
Row = TypeVar("Row", bound=msgspec.Struct)
Columns = Mapping[str, Callable[[Any], object]]

Users = Annotated[
    str | None,
    typer.Argument(
        metavar="USER", help="Only this user: a URI, or those of a pattern with * and ?.", show_default=False
    ),
]
SessionPattern = Annotated[
    str | None, typer.Option("--session", help="Only this session, or those of a pattern with * and ?.")
]
Watch = Annotated[
    float | None, typer.Option("--watch", min=0.1, metavar="SECONDS", help="Repeat the listing with this pause.")
]


class RowPatterns(NamedTuple):
    """A listing, restricted to the rows whose fields match these patterns."""

    what: What
    columns: Columns
    user: str | None
    patterns: Mapping[str, str | None]
    test: Callable[[Any], bool] = lambda row: True

    def details(self, row: Listed) -> Iterator[tuple[str, object]]:
        """Yield the details to print below a row."""
        return _DETAILS[self.what](row)


@visiting
def sessions(
    whose: Users = None,
    *,
    connection: ConnectionOptions,
    session: SessionPattern = None,
    status: Annotated[
        str | None, typer.Option(help="Only sessions with this status: CONNECTED or DISCONNECTED.")
    ] = None,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List sessions: their users, devices, counts of matches, and unread subscriptions.

    Lists only yours; with the role of operator everybody's.

    Example: wanderbus sessions "sip:a*" --status DISCONNECTED --user sip:olga@localhost
    """
    patterns = {"session": session, "status": status and status.upper()}
    _list(connection, RowPatterns("sessions", SESSIONS, whose, patterns), watch, json)


@visiting
def subscriptions(
    whose: Users = None,
    *,
    connection: ConnectionOptions,
    session: SessionPattern = None,
    subject: Annotated[str | None, typer.Option(help="Only this subject, or those of a pattern with * and ?.")] = None,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List subscriptions: how many notifications are queued for each, and why if they are not read.

    Lists only yours; with the role of operator everybody's.

    Example: wanderbus subscriptions --subject "Dep*" --user sip:alice@localhost
    """
    patterns = {"session": session, "subject": subject}
    _list(connection, RowPatterns("subscriptions", SUBSCRIPTIONS, whose, patterns), watch, json)


@visiting
def queues(
    whose: Users = None,
    *,
    connection: ConnectionOptions,
    session: SessionPattern = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only queues that are not empty.")] = False,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List the queue of each session: length, age, gaps, bounds, and unread subscriptions.

    Lists only yours; with the role of operator everybody's.

    Example: wanderbus queues --waiting --watch 2 --user sip:olga@localhost
    """
    test = (lambda row: row.notifications > 0) if waiting else (lambda row: True)
    _list(connection, RowPatterns("queues", QUEUES, whose, {"session": session}, test), watch, json)


def _list(connection: ConnectionOptions, wanted: RowPatterns, watch_s: float | None, json: bool) -> None:
    show(connection, lambda operator: _rows(operator, wanted), lambda rows: _table(rows, wanted), watch_s, json)


def show(
    connection: ConnectionOptions,
    rows: Callable[[Operator], AsyncIterator[Row]],
    table: Callable[[list[Row]], str],
    watch_s: float | None,
    json: bool,
) -> None:
    """Show ``rows`` as a ``table``, or as JSON; repeat every ``watch_s`` seconds if that is given."""
    as_json = json or (watch_s is not None and not sys.stdout.isatty())
    run_async(_print(connection, rows, watch_s) if as_json else _show(connection, rows, table, watch_s))


async def _print(
    connection: ConnectionOptions, rows: Callable[[Operator], AsyncIterator[Row]], watch_s: float | None
) -> None:
    """Print each row as a line of JSON; with ``watch_s``, repeatedly and with the time of the listing."""
    async with connection.visitor() as agent:
        while True:
            at_us = wall_us()
            async for row in rows(agent.operator):
                print_json(_json(row) if watch_s is None else {"at_us": at_us, **_json(row)})
            if watch_s is None:
                return
            await asyncio.sleep(watch_s)


def _json(row: msgspec.Struct) -> Mapping[str, object]:
    """Return the fields of a row; its own identifier is ``id``, as in the other outputs."""
    name = {SubscriptionInfo: "subscription", AdvertisementInfo: "advertisement"}.get(type(row))
    return {"id" if field == name else field: value for field, value in asdict(row).items()}


async def _show(
    connection: ConnectionOptions,
    rows: Callable[[Operator], AsyncIterator[Row]],
    table: Callable[[list[Row]], str],
    watch_s: float | None,
) -> None:
    async with connection.visitor() as agent:
        if watch_s is None:
            print_lines(table([row async for row in rows(agent.operator)]))
            return
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(Text(table([row async for row in rows(agent.operator)])), refresh=True)
                await asyncio.sleep(watch_s)


async def _rows(operator: Operator, wanted: RowPatterns) -> AsyncIterator[Listed]:
    """Yield the wanted rows; user patterns are matched here, since the broker only accepts a whole URI."""
    is_pattern = wanted.user is not None and any(character in wanted.user for character in "*?[")
    patterns = {**wanted.patterns, "user": wanted.user if is_pattern else None}
    found = False
    async for row in getattr(operator, wanted.what)(None if is_pattern else wanted.user):
        found = True
        if wanted.test(row) and all(
            pattern is None or fnmatch.fnmatchcase(getattr(row, name), pattern) for name, pattern in patterns.items()
        ):
            yield row
    if not found and wanted.user is not None and not is_pattern:
        await _check_known(operator, wanted.user)


async def _check_known(operator: Operator, user: str) -> None:
    """Raise :class:`UnknownUser` if the broker has no session of ``user``."""
    async for _ in operator.sessions(user):
        return
    raise UnknownUser(f"the broker has no session of {user}; 'wanderbus sessions' lists the users that have one")


def _table(rows: Sequence[Listed], wanted: RowPatterns) -> str:
    """Return the headings and the rows, with the details of each row below it."""
    found = sorted(rows, key=lambda row: (row.user, row.session))
    heading, *lines = aligned(found, wanted.columns)
    table = [heading]
    for row, line in zip(found, lines, strict=True):
        table += [line, *_details(wanted.details(row))]
    return "\n".join(table)


def aligned(rows: Sequence[object], columns: Columns) -> list[str]:
    """Return a line of headings, and one of cells for each row."""
    cells = [list(columns), *([_cell(column(row)) for column in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def session_details(row: SessionInfo) -> list[str]:
    """Return the lines with the details of a session: its devices, what it has lost, and what nobody reads."""
    return list(_details(_of_session(row)))


def _details(given: Iterator[tuple[str, object]]) -> Iterator[str]:
    for name, value in given:
        yield from wrap(
            f"{name} {_cell(value)}",
            _LINE,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT * 2,
            break_long_words=False,
        )


def _cell(value: object) -> str:
    """Return a value escaped for a terminal: names that users chose must not control it."""
    return "" if value is None else escaped(str(value))


def _field(name: str) -> Callable[[Listed], object]:
    return lambda row: getattr(row, name)


def _instant(at_us: int | None) -> str:
    return "" if at_us is None else instant_shown(at_us)


def span(seconds: float | None) -> str:
    """Return a duration in the largest unit of which it has at least two."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _user(row: Listed) -> str:
    return row.user.removeprefix("sip:")


def _device(device: DeviceInfo) -> str:
    place = f"at {device.address}" if device.address else ""
    away = "" if device.away_s is None else f"for {span(device.away_s)}"
    reading = f"reads {device.reading}" if device.reading else ""
    return " ".join(filter(None, (device.device, device.status, away or place, reading)))


def _unread(subscription: UnreadInfo | SubscriptionInfo) -> str:
    """Return how much is queued for a subscription that is not being read, and why."""
    waiting = f"{subscription.queued} waiting, the oldest for {span(subscription.oldest_s)}"
    if subscription.state == "not_read":
        return f"{waiting}; nobody reads it"
    readers = (f"{each.device} has {each.unacknowledged} unacknowledged" for each in subscription.readers)
    return "; ".join((waiting, f"blocked for {span(subscription.blocked_s)}", *readers))


def _bounds(row: QueueInfo) -> str:
    values = {name: getattr(row, name) for name in ("notifications_max", "bytes_max", "age_max_s")}
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _restriction(restriction: Restriction) -> str:
    given = {name: value for name, value in asdict(restriction).items() if value not in (None, (), "always")}
    return " ".join((type(restriction).__name__.lower(), *(f"{name}={value}" for name, value in given.items())))


SESSIONS: Final[Columns] = {
    "user": _user,
    "session": lambda row: row.session or "(over)",
    "status": _field("status"),
    "subs": _field("subscriptions"),
    "queued": _field("queued"),
    "taken": _field("delivered"),
    "lost": lambda row: sum(row.dropped.values()),
}

SUBSCRIPTIONS: Final[Columns] = {
    "id": _field("subscription"),
    "user": _user,
    "session": _field("session"),
    "subject": _field("subject"),
    "queued": _field("queued"),
}

QUEUES: Final[Columns] = {
    "user": _user,
    "session": _field("session"),
    "waiting": _field("notifications"),
    "bytes": _field("queued_bytes"),
    "oldest": lambda row: span(row.oldest_s),
    "gaps": _field("gaps"),
    "missing": _field("missing"),
}


def _of_session(row: SessionInfo) -> Iterator[tuple[str, object]]:
    for device in row.devices:
        yield "device", _device(device)
    if row.dropped:
        yield "lost", ", ".join(f"{count} {reason}" for reason, count in row.dropped.items())
    if row.restricted:
        yield "restricted", row.restricted
    yield from _unread_of(row)


def _unread_of(row: SessionInfo | QueueInfo) -> Iterator[tuple[str, object]]:
    """Yield the subscriptions that are not being read, as many as the row of a session or queue contains."""
    shown = row.unread_subscriptions
    for subscription in shown:
        yield "unread", f"{subscription.subscription}: {_unread(subscription)}"
    if more := row.unread - len(shown):
        yield "unread", f"{more} more; 'wanderbus subscriptions' lists them"


def _of_subscription(row: SubscriptionInfo) -> Iterator[tuple[str, object]]:
    if row.language == PATTERN:
        yield row.language, f"{' '.join(row.expression.split())} (keeps {row.pattern_events or 0} events)"
    elif row.expression:
        yield row.language, row.expression
    for restriction in row.restrictions:
        yield "restriction", _restriction(restriction)
    if row.device:
        yield "device", row.device
    times = {"expires": row.expires_us, "last": row.last_us}
    if shown := ", ".join(f"{name} {_instant(at_us)}" for name, at_us in times.items() if at_us is not None):
        name, _, rest = shown.partition(" ")
        yield name, rest
    if row.state != "reading":
        yield "unread", _unread(row)
    elif row.readers:
        yield "read by", ", ".join(each.device for each in row.readers)


def _of_queue(row: QueueInfo) -> Iterator[tuple[str, object]]:
    yield from _unread_of(row)
    yield "bounds", _bounds(row)


_DETAILS: Final[Mapping[What, Callable[[Any], Iterator[tuple[str, object]]]]] = {
    "sessions": _of_session,
    "subscriptions": _of_subscription,
    "queues": _of_queue,
}
