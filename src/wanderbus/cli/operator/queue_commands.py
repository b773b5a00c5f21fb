"""``wanderbus peek``, ``purge``, ``kick`` and ``discard``: commands on the sessions and connections of users."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.event_output import Format, print_gap, print_notification
from wanderbus.cli.output import counted, print_json, print_line, run_async
from wanderbus.errors import ConfigurationError, UnknownUser
from wanderbus.event import Gap
from wanderbus.event_text import escaped

Of = Annotated[str, typer.Argument(metavar="USER", help="The user: sip:name@domain.", show_default=False)]
SessionName = Annotated[
    str | None,
    typer.Option("--session", help="Name of the session; without it, the sessions are named.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@visiting
def peek(
    whose: Of,
    *,
    connection: ConnectionOptions,
    session: SessionName = None,
    count: Annotated[int, typer.Option(min=1, help="Most notifications to show.")] = 100,
    json: AsJson = False,
) -> None:
    """Show the notifications queued in a session, the oldest first, without removing them.

    Sessions of other users require the role of operator.

    Example: wanderbus peek sip:alice@localhost --session default --count 10 --user sip:olga@localhost
    """
    run_async(_peek(connection, whose, _named(connection, whose, session), count, json))


@visiting
def purge(
    whose: Of,
    *,
    connection: ConnectionOptions,
    session: SessionName = None,
    subscription: Annotated[str | None, typer.Option(help="Only notifications for this subscription.")] = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Discard the notifications queued in a session; its readers receive a gap in their place.

    Sessions of other users require the role of administrator.

    Example: wanderbus purge sip:alice@localhost --session sub.delays --yes --user sip:adam@localhost
    """
    session = _named(connection, whose, session)
    what = f"the notifications for {subscription}" if subscription else "all notifications"
    if not yes:
        _confirm(f"Discard {what} queued in the session {session} of {whose}?")
    run_async(_purge(connection, whose, session, subscription, json))


@visiting
def kick(
    whose: Of,
    device: Annotated[str | None, typer.Argument(help="Only this device; unless given, all of the user.")] = None,
    *,
    connection: ConnectionOptions,
    forget: Annotated[
        bool, typer.Option("--forget", help="Also remove them from their sessions: nothing is queued for them.")
    ] = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Close the connections of a user's devices; they may reconnect and then receive what was queued for them.

    Devices of other users require the role of administrator. 'wanderbus sessions' lists the devices.

    Example: wanderbus kick sip:alice@localhost --forget --yes --user sip:adam@localhost
    """
    if not yes:
        which = f"the device {device}" if device else "all devices"
        _confirm(f"Close the connections of {which} of {whose}{', and remove them from their sessions' * forget}?")
    run_async(_kick(connection, whose, device, forget, json))


@visiting
def discard(
    whose: Of,
    *,
    connection: ConnectionOptions,
    session: SessionName = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Remove a session: its devices, its subscriptions and its queue, as for a user who has left.

    Its counters are added to those of the user's sessions that are over. Sessions of other users require the role of
    administrator, your own require none. A device that still runs joins again, without subscriptions: remove the user
    first, see 'wanderbus users'.

    Example: wanderbus discard sip:alice@localhost --session sub.delays --yes --user sip:adam@localhost
    """
    session = _named(connection, whose, session)
    if not yes:
        _confirm(f"Remove the session {session} of {whose}, with all subscriptions and queued notifications?")
    run_async(_discard(connection, whose, session, json))


def _named(connection: ConnectionOptions, user: str, session: str | None) -> str:
    """Return ``session`` if it is given; :class:`ConfigurationError` names the user's sessions otherwise."""
    if session is not None:
        return session
    names = run_async(_sessions_of(connection, user))
    if not names:
        raise UnknownUser(f"the broker has no session of {user}; 'wanderbus sessions' lists the users that have one")
    raise ConfigurationError(f"give the session with --session NAME: {user} has {', '.join(sorted(names))}")


async def _sessions_of(connection: ConnectionOptions, user: str) -> list[str]:
    async with connection.visitor() as agent:
        return [escaped(row.session) async for row in agent.operator.sessions(user) if row.session]


async def _peek(connection: ConnectionOptions, user: str, session: str, count: int, json: bool) -> None:
    async with connection.visitor() as agent:
        async for item in agent.operator.peek(user, session, count=count):
            if not isinstance(item, Gap):
                print_notification(item, Format.json if json else Format.text)
            elif json:
                print_gap(item)
            else:
                print_line(f"{item.position.number} gap of {item.count}: {item.reason}")


async def _purge(connection: ConnectionOptions, user: str, session: str, subscription: str | None, json: bool) -> None:
    async with connection.visitor() as agent:
        purged = await agent.operator.purge(user, session, subscription)
    if json:
        print_json({"purged": purged})
    else:
        print_line(f"purged {purged}")


async def _kick(connection: ConnectionOptions, user: str, device: str | None, forget: bool, json: bool) -> None:
    async with connection.visitor() as agent:
        rows = await agent.operator.kick(user, device, forget=forget)
    for row in rows:
        if json:
            print_json(row)
        else:
            done = ("kicked" if row.connected else "not connected") + (", forgotten" if row.forgotten else "")
            print_line(f"{row.device} {done}")


async def _discard(connection: ConnectionOptions, user: str, session: str, json: bool) -> None:
    async with connection.visitor() as agent:
        row = await agent.operator.discard(user, session)
    if json:
        print_json(row)
    else:
        devices, subscriptions = counted(row.devices, "device"), counted(row.subscriptions, "subscription")
        print_line(f"removed {devices}, ended {subscriptions}, purged {row.matches}")


def _confirm(question: str) -> None:
    """Ask for confirmation on the terminal; :class:`ConfigurationError` if there is none."""
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask for confirmation; give --yes to confirm")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
