"""``wanderbus sub``: notifications in the shell.

Each command has a subscription of its own (decision 0036). It never shares one with a program, or with another command,
that subscribes to the same. Without a name the subscription is bound to the command's device and ends with the command.
With a name (``--keep NAME``) it has a session of its own, where the next command with that name continues. Both kinds
expire if the command is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, connected, leave
from wanderbus.cli.devices import DevicePlace, free_place, named_place
from wanderbus.cli.event_output import Format, print_gap, print_notification
from wanderbus.cli.output import OutputFailed, counted, output_closed, print_progress, print_progress_json, run_async
from wanderbus.cli.pattern.pattern_input import given_pattern
from wanderbus.cli.since import since_point
from wanderbus.cli.spans import span_s
from wanderbus.client.agent import Agent
from wanderbus.client.answer_wait import AnswerWait
from wanderbus.client.notifications import Notifications
from wanderbus.client.reports import Reports, StatusChange
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.event import Gap, Notification
from wanderbus.filters import LANGUAGES, parse
from wanderbus.subscription import PATTERN, SincePoint, Subscription

SESSION: Final = "sub"
"""Session of the subscriptions without a name; each subscription with a name has its own session."""

LIFETIME: Final = "1h"
KEPT_LIFETIME: Final = "7d"
_RENEWALS: Final = 3
"""Renewals of a subscription per lifetime, while the command runs."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,47}")


def session_of(name: str) -> str:
    """Return the session of the subscription that the command line keeps under ``name``."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"--keep: invalid name {name!r} (expected 1 to 48 letters, digits, dots, dashes or underscores)"
        )
    return f"{SESSION}.{name}"


PatternText = Annotated[
    str | None, typer.Option("--pattern", metavar="TEXT", help="Pattern of compound events, in place of a subject.")
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Keep the subscription under this name when the command ends; alone, continue the one of this name.",
    ),
]
SincePast = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="POINT",
        help="Begin in the past, then continue: -2h, 2026-11-21T10:00:00Z, a day (from 0:00 UTC on), the id of an "
        "event, or earliest.",
    ),
]
InSession = Annotated[str | None, typer.Option("--session", help="Session to use instead of one of the command line.")]
PatternFile = Annotated[Path | None, typer.Option("--pattern-file", help="File with the pattern; - is standard input.")]


@dataclass(frozen=True)
class _Asked:
    """The subscription that the command line asks for, and its output."""

    subject: str
    expression: str
    language: str
    name: str | None
    lifetime_s: float
    count: int | None
    format: Format
    note: Callable[[str, str], None]
    """Prints progress of the command: a word for programs and a line for people."""
    since: SincePoint | None = None

    @property
    def interest(self) -> dict[str, Any]:
        """The subject and the expression, or the pattern, as :meth:`Agent.subscribe` takes them."""
        if self.language == PATTERN:
            return {"pattern": self.expression}
        return {"subject": self.subject, "expression": self.expression, "language": self.language}

    @property
    def subscription_format(self) -> Literal["event", "xml"]:
        """The format in which the broker sends the notifications."""
        return "xml" if self.format is Format.xml else "event"


@connected
def sub(
    subject: Annotated[
        str, typer.Argument(help="Subject of the events; * alone is every subject, and there are no other wildcards.")
    ] = "",
    expression: Annotated[str, typer.Argument(help="Expression of interest; empty matches every event.")] = "",
    *,
    connection: ConnectionOptions,
    pattern: PatternText = None,
    pattern_file: PatternFile = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this number of notifications.")] = None,
    keep: Keep = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="The subscription expires this long after the command last ran: seconds, or with s, min, h or d.",
            show_default=f"{LIFETIME}; {KEPT_LIFETIME} with --keep",
        ),
    ] = None,
    since: SincePast = None,
    session: InSession = None,
    language: Annotated[str, typer.Option(help=f"Language of the expression: {', '.join(LANGUAGES)}.")] = "eci",
    format: Annotated[Format, typer.Option("--format", help="Output format, one notification per line.")] = Format.text,
    json: AsJson = False,
) -> None:
    """Subscribe and print notifications as they arrive; each is acknowledged after it has been printed.

    The subscription ends with the command. With --keep NAME it continues: the next 'wanderbus sub --keep NAME', without
    a subject or with the same one, prints the notifications queued meanwhile, and 'wanderbus unsubscribe NAME' ends it.
    A line of text is NUMBER SUBJECT NAME=VALUE ..., as 'wanderbus pub SUBJECT - --format text' reads it; a line of XML
    is one notification. With --json, a line with "missing" is a gap: notifications that the broker discarded.

    Example: wanderbus sub Departure "(Dest == IAH) and (DepDelay > 30)" --user sip:alice@localhost

    With --since the past that is still kept comes first, and new events follow, each once. A kept subscription
    continues where it stopped.

    Example: wanderbus sub Departure --keep delays --lifetime 30d --user sip:alice@localhost

    Example: wanderbus sub --keep delays --user sip:alice@localhost

    Example: wanderbus sub Departure --since -2h --user sip:alice@localhost

    With a pattern each notification is a detection of it, in new events; events has the ids of its events.

    Example: wanderbus sub --pattern-file late.pattern --user sip:alice@localhost
    """
    if keep is not None and session is not None:
        raise ConfigurationError(
            "--session cannot be combined with --keep: a subscription with a name has its own session"
        )
    subject, expression, language = _interest(
        subject, expression, language, pattern, pattern_file, is_kept=keep is not None
    )
    format = Format.json if json else format
    asked = _Asked(
        subject,
        expression,
        language,
        keep,
        span_s(lifetime or (LIFETIME if keep is None else KEPT_LIFETIME), "--lifetime"),
        count,
        format,
        print_progress_json if json else lambda word, line: print_progress(line),
        None if since is None else since_point(since, datetime.now(UTC)),
    )
    run_async(until_closed(_sub(connection, asked, session)))


def _interest(
    subject: str, expression: str, language: str, pattern: str | None, pattern_file: Path | None, *, is_kept: bool
) -> tuple[str, str, str]:
    """Return subject, expression and language of what the command line asks for, which is valid.

    All are empty if it names only a kept subscription.
    """
    if pattern is not None or pattern_file is not None:
        if subject or expression or language != "eci":
            raise ConfigurationError("give either a subject with an expression, or a pattern")
        read = given_pattern(pattern, pattern_file, "--pattern-file")
        return read.declaration.subject, read.text, PATTERN
    if not subject:
        if is_kept and not expression and language == "eci":
            return "", "", language
        raise ConfigurationError(
            "give a subject, or a pattern with --pattern or --pattern-file; --keep NAME alone continues a subscription"
        )
    parse(expression, language)
    return subject, expression, language


async def until_closed(printing: Coroutine[Any, Any, None]) -> None:
    """Print until done, or until the output pipe has lost its reader."""
    tasks = [asyncio.create_task(printing), asyncio.create_task(output_closed())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not tasks[0].cancelled():
        tasks[0].result()


async def _sub(connection: ConnectionOptions, asked: _Asked, session: str | None) -> None:
    if connection.is_eci:
        if asked.since is not None:
            raise ConfigurationError("--since cannot be combined with eci://: the original ECI knows no history")
        if asked.language == PATTERN:
            raise ConfigurationError("--pattern cannot be combined with eci://: the original ECI knows no patterns")
        if not asked.subject:
            raise ConfigurationError(
                "--keep cannot be combined with eci://: the original ECI keeps nothing; give a subject"
            )
        agent = connection.agent()
        reading = agent.subscribe(**asked.interest, format=asked.subscription_format, gaps=True)
        async with agent, reading as notifications:
            await _print_each(notifications, asked)
        return
    with _place(connection, asked.name) as place:
        agent = connection.agent(
            state_dir=place.directory,
            session=session or (SESSION if asked.name is None else session_of(asked.name)),
            # End what a killed command left of this device; only the command line's own sessions hold nothing else.
            keep=asked.name is not None or session is not None,
            on_ended="renew",
        )
        await _print(agent, asked, connection.connect_s_max)


def _place(connection: ConnectionOptions, name: str | None) -> contextlib.AbstractContextManager[DevicePlace]:
    base = connection.device_directory()
    if name is None:
        return free_place(base / SESSION)
    session_of(name)
    return named_place(base / "kept" / name, f"'wanderbus sub --keep {name}'")


async def _print(agent: Agent, asked: _Asked, limit_s: float | None) -> None:
    changes, since = agent.changes(), asked.since
    async with agent:
        if asked.name is not None:
            kept = await agent.subscriptions()
            asked = asked if asked.subject else _as_kept(kept, asked)
            _check_same(kept, asked)
            since = kept[0].since if kept else since
        reading = agent.subscribe(
            **asked.interest,
            format=asked.subscription_format,
            keep=asked.name is not None,
            lifetime_s=asked.lifetime_s,
            this_device_only=asked.name is None,
            since=since,
            gaps=True,
        )
        try:
            notifications = await AnswerWait(asked.note, limit_s).of(reading.__aenter__(), "the subscription")
            async with contextlib.aclosing(notifications), _beside(_renew(agent, reading, asked.lifetime_s)):
                asked.note("ready", f"subscribed to {asked.subject}, waiting for notifications")
                async with _beside(_report(changes, asked)):
                    await _print_each(notifications, asked)
                if notifications.ended is not None:
                    asked.note("ended", f"the subscription has ended ({notifications.ended})")
        finally:
            if asked.name is None:
                await leave(agent)


async def _print_each(notifications: Notifications[Notification | Gap], asked: _Asked) -> None:
    """Print and acknowledge each notification, and gaps: as a line of JSON, or beside the output."""
    printed = 0
    async for notification in notifications:
        if isinstance(notification, Gap):
            if asked.format is Format.json:
                print_gap(notification)
            else:
                print_progress(f"gap of {notification.count}: {notification.reason}")
            notifications.ack()
            continue
        try:
            print_notification(notification, asked.format)
        except OutputFailed as failed:
            written = counted(printed, "notification")
            raise OutputFailed(f"{failed}; {written} were written, and the next one is not acknowledged") from None
        notifications.ack()
        printed += 1
        if printed == asked.count:
            return


def _as_kept(subscriptions: Sequence[Subscription], asked: _Asked) -> _Asked:
    """Return what the subscription under the name asks for; :class:`ConfigurationError` if there is none."""
    for each in subscriptions:
        form = Format.xml if each.format == "xml" and asked.format is Format.text else asked.format
        return replace(asked, subject=each.subject, expression=each.expression, language=each.language, format=form)
    raise ConfigurationError(f"--keep: there is no subscription {asked.name} to continue; give its subject to make it")


def _check_same(subscriptions: Sequence[Subscription], asked: _Asked) -> None:
    """Raise :class:`ConfigurationError` if the name belongs to a different subscription."""
    for each in subscriptions:
        remedy = f"give another name, or end it with 'wanderbus unsubscribe {asked.name}'"
        if (each.subject, each.expression, each.language) != (asked.subject, asked.expression, asked.language):
            raise ConfigurationError(
                f"--keep: the subscription {asked.name} has the subject {each.subject} and the expression "
                f"{each.expression!r}; {remedy}"
            )
        if each.format != asked.subscription_format:
            form = "was made with" if each.format == "xml" else "was made without"
            raise ConfigurationError(f"--keep: the subscription {asked.name} {form} --format xml; {remedy}")


async def _renew(agent: Agent, reading: Notifications[Any], lifetime_s: float) -> None:
    while True:
        await asyncio.sleep(lifetime_s / _RENEWALS)
        # A subscription that expires before its renewal is renewed afterwards (on_ended).
        with contextlib.suppress(WanderbusError):
            await agent.renew(reading.subscription.id, lifetime_s)


async def _report(changes: Reports[StatusChange], asked: _Asked) -> None:
    """Report each loss of the connection, and each reconnection."""
    status = "CONNECTED"
    async for change in changes:
        if change.status != status:
            status = change.status
            if status == "CONNECTED":
                asked.note("connected", "reconnected")
            else:
                asked.note("disconnected", f"connection lost ({change.reason}); reconnecting")


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` in a task while the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
