"""``wanderbus session export`` and ``import``: a session as a file (SPEC J-05)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.output import counted, print_json, print_line, print_unchanged, run_async
from wanderbus.client.agent import Agent
from wanderbus.client.user_uri import user_of
from wanderbus.errors import ConfigurationError, Refused
from wanderbus.operator_rows import ImportedSession
from wanderbus.protocol.session_copy import SessionCopy
from wanderbus.runtime.files.session_file import read_session, write_session

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the session.", show_default=False)]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="File for the copy; a new one.", show_default=False)]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="File with the copy.", show_default=False)]
Whose = Annotated[
    str | None,
    typer.Option("--of", metavar="USER", help="User who has the session; unless given, yourself.", show_default=False),
]


@visiting
def export(
    name: Name,
    file: Target,
    *,
    connection: ConnectionOptions,
    of: Whose = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the session once the file has it.")] = False,
    json: AsJson = False,
) -> None:
    """Write a copy of a session to a file: its subscriptions, and the notifications that wait.

    The session goes on. With --remove it is removed once the file has everything; none of its devices may be connected
    then. Patterns, and subscriptions of one device alone, cannot be copied. Sessions of others need the role of
    operator, and that of administrator with --remove. In a domain, ask the server that has the session.

    Example: wanderbus session export sub.delays delays.session --user sip:bob@localhost

    Example: wanderbus session export default bob.session --remove --of sip:bob@localhost --user sip:adam@localhost
    """
    if file.exists():
        raise ConfigurationError(f"{file} exists; give a new file, or remove it first")
    run_async(_export(connection, user_given(connection, of), name, file, remove, json))


@visiting
def import_session(
    file: Source,
    *,
    connection: ConnectionOptions,
    of: Whose = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new session, unless that of the copy.", show_default=False)
    ] = None,
    json: AsJson = False,
) -> None:
    """Make a session from a file that 'wanderbus session export' has written.

    Its subscriptions are live from now on, and are kept; what waited in the copy waits again. Ids and numbers are new,
    so who has received a notification before cannot recognise it. Subscriptions that have expired are left out. A
    session of that name is never overwritten, unless nothing is in it, nor made while another server of the domain has
    it. A copy of another user's session needs --of, and a session for others the role of administrator.

    Example: wanderbus session import delays.session --user sip:bob@localhost

    Example: wanderbus session import bob.session --of sip:carol@localhost --name delays --user sip:adam@localhost
    """
    copy, user = read_session(file), user_given(connection, of)
    if of is None and copy.user != user:
        raise ConfigurationError(f"{file} has a session of {copy.user}; give --of {user} to import it for {user}")
    imported = run_async(_import(connection, copy, user, name))
    if json:
        print_json({"user": user, **msgspec.structs.asdict(imported)})
    else:
        parts = f"{counted(imported.subscriptions, 'subscription')}, {counted(imported.notifications, 'notification')}"
        print_line(f"the session {imported.session} of {user} has {parts}")


def user_given(connection: ConnectionOptions, of: str | None) -> str:
    """Return the canonical URI of the user who has the session."""
    return connection.user_uri if of is None else user_of(of)


async def _import(connection: ConnectionOptions, copy: SessionCopy, user: str, name: str | None) -> ImportedSession:
    async with connection.visitor() as agent:
        return await agent.operator.import_session(copy, user=user, session=name)


async def _export(connection: ConnectionOptions, user: str, name: str, file: Path, remove: bool, json: bool) -> None:
    async with connection.visitor() as agent:
        if remove:
            await _check_unused(agent, user, name)
        copy = await agent.operator.copy_session(user, name)
        if copy.left_out and remove:
            raise Refused(
                f"{counted(copy.left_out, 'subscription')} cannot be copied, so the session stays; end patterns and "
                "subscriptions of one device first"
            )
        write_session(file, copy)
        if remove:
            copy = await _remove(agent, copy, file)
    row = {"subscriptions": len(copy.subscriptions), "notifications": copy.notifications, "left_out": copy.left_out}
    if json:
        print_json({"user": user, "session": name, "file": str(file), **row, "removed": remove})
        return
    if copy.left_out:
        print_unchanged(f"left out: {counted(copy.left_out, 'subscription')} to patterns or of one device alone")
    parts = f"{counted(len(copy.subscriptions), 'subscription')}, {counted(copy.notifications, 'notification')}"
    print_line(f"{file} has {parts}{', and the session is removed' if remove else ''}")


async def _check_unused(agent: Agent, user: str, name: str) -> None:
    """Raise :class:`Refused` if a device of the session is connected: it would go on reading."""
    rows = [row async for row in agent.operator.sessions(user) if row.session == name]
    if connected := [each.device for row in rows for each in row.devices if each.status == "CONNECTED"]:
        raise Refused(f"the device {connected[0]} is connected; end its program before the session is removed")


async def _remove(agent: Agent, copy: SessionCopy, file: Path) -> SessionCopy:
    """End the subscriptions, write again what waits then, and remove the session."""
    copy = await agent.operator.end_copied(copy)
    write_session(file, copy)
    await agent.operator.discard(copy.user, copy.session)
    return copy
