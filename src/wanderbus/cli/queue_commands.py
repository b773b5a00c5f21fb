"""``wanderbus peek``, ``purge`` and ``kick``: into a queue, out of it, and out of a connection."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from msgspec.structs import asdict

from wanderbus.cli.connection_options import AsJson, Connection, visiting
from wanderbus.cli.event_output import Format, say_notification
from wanderbus.cli.output import run_async, say, say_json
from wanderbus.errors import ConfigurationError
from wanderbus.event import Gap

Of = Annotated[str, typer.Argument(metavar="USER", help="Whose: sip:name@domain.", show_default=False)]
SessionName = Annotated[str, typer.Option("--session", help="Name of the session.")]


@visiting
def peek(
    whose: Of,
    *,
    connection: Connection,
    session: SessionName = "default",
    count: Annotated[int, typer.Option(min=1, help="Show so many at most.")] = 100,
    json: AsJson = False,
) -> None:
    """Show what waits in a session, the oldest first, and take nothing.

    What is of others takes the role of operator.

    Example: wanderbus peek sip:alice@localhost --count 10 --user sip:olga@localhost
    """
    run_async(_peek(connection, whose, session, count, json))


@visiting
def purge(
    whose: Of,
    *,
    connection: Connection,
    session: SessionName = "default",
    subscription: Annotated[str | None, typer.Option(help="Only what waits for this subscription.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether that is meant.")] = False,
    json: AsJson = False,
) -> None:
    """Drop what waits in a session; its readers are told that it is gone.

    What is of others takes the role of administrator.

    Example: wanderbus purge sip:alice@localhost --subscription wb1234-17 --yes --user sip:adam@localhost
    """
    what = f"what waits for {subscription}" if subscription else "everything that waits"
    if not yes:
        _confirm(f"Drop {what} in the session {session} of {whose}?")
    run_async(_purge(connection, whose, session, subscription, json))


@visiting
def kick(
    whose: Of,
    device: Annotated[str | None, typer.Argument(help="One device; all of the user's unless given.")] = None,
    *,
    connection: Connection,
    forget: Annotated[bool, typer.Option("--forget", help="Keep nothing in the queue for them any more.")] = False,
    json: AsJson = False,
) -> None:
    """End the connections of a user's devices; they may come back, and find what has waited for them.

    What is of others takes the role of administrator. 'wanderbus sessions' lists the devices.

    Example: wanderbus kick sip:alice@localhost --forget --user sip:adam@localhost
    """
    run_async(_kick(connection, whose, device, forget, json))


async def _peek(connection: Connection, user: str, session: str, count: int, json: bool) -> None:
    async with connection.operations() as operations:
        async for item in operations.peek(user, session, count=count):
            if not isinstance(item, Gap):
                say_notification(item, Format.json if json else Format.text)
            elif json:
                position = asdict(item.position)
                lost = [asdict(loss) for loss in item.lost]
                say_json({"position": position, "missing": item.count, "reason": item.reason, "lost": lost})
            else:
                say(f"{item.position.number} gap of {item.count}: {item.reason}")


async def _purge(connection: Connection, user: str, session: str, subscription: str | None, json: bool) -> None:
    async with connection.operations() as operations:
        purged = await operations.purge(user, session, subscription)
    if json:
        say_json({"purged": purged})
    else:
        say(f"purged {purged}")


async def _kick(connection: Connection, user: str, device: str | None, forget: bool, json: bool) -> None:
    async with connection.operations() as operations:
        rows = await operations.kick(user, device, forget=forget)
    for row in rows:
        if json:
            say_json(row)
        else:
            done = ("kicked" if row["connected"] else "not connected") + (", forgotten" if row["forgotten"] else "")
            say(f"{row['device']} {done}")


def _confirm(question: str) -> None:
    """Ask on a terminal; where there is none, nobody could answer."""
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask on; say --yes if that is meant")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
