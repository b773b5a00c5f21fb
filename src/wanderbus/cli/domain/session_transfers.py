"""``wanderbus session dormant`` and ``transfer``: a session's end point goes to another device (SPEC L-07)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, perhaps_visiting, visiting_as_user
from wanderbus.cli.domain.servers_asked import ask_all
from wanderbus.cli.domain.session_files import Name, Whose, user_given
from wanderbus.cli.output import print_error, print_json, print_line, print_progress, print_progress_json, run_async
from wanderbus.client.agent import Agent
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, UnknownUser, WanderbusError
from wanderbus.operator_rows import TransferredSession
from wanderbus.runtime.child_process import ChildProcess

_END_S_MAX: Final = 10.0
"""Time for the application to end, after which it is killed."""

As = Annotated[
    str, typer.Option("--as", metavar="DEVICE", help="Name of the dormant instance, for example of the device.")
]


@visiting_as_user
def dormant(
    name: Name,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="Command that starts the application.", show_default=False)
    ],
    *,
    connection: ConnectionOptions,
    as_: As,
    json: AsJson = False,
) -> None:
    """Wait until the end point of a session is transferred to this device, and start its application then.

    The command is started without a shell, on this device alone: nobody else can say what is started. It has to join
    the session, and to subscribe as the present instance does. When it has ended, this command waits again. Ctrl-C
    ends both.

    Example: wanderbus session dormant sub.ticker --as desk --user sip:bob@localhost -- wanderbus sub Tick --keep
    ticker --user sip:bob@localhost
    """
    if shutil.which(command[0]) is None:
        raise ConfigurationError(f"COMMAND: there is no program {command[0]!r} that can be started")
    run_async(_dormant(connection, name, as_, command, json))


@perhaps_visiting
def transfer(
    name: Name,
    *,
    connection: ConnectionOptions,
    to: Annotated[str, typer.Option("--to", metavar="DEVICE", help="Name of the dormant instance.")],
    device: Annotated[
        str | None,
        typer.Option("--from", metavar="DEVICE", help="Only this device of the session.", show_default="all"),
    ] = None,
    of: Whose = None,
    event_domain: Annotated[
        Path | None,
        typer.Option(
            "--event-domain", help="File of the domain: ask the server that has the session.", show_default=False
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Transfer the end point of a session to the dormant instance of its application on another device.

    The present instance gets nothing more, and finishes what it has; its iteration ends. The dormant one is started and
    goes on behind that, so no notification is lost or repeated. One that the present instance does not finish within
    10 seconds is delivered again, and marked as redelivered. Sessions of others need the role of administrator. In a
    domain, ask the server that has the session, or give --event-domain to find it; the dormant instance may wait at
    another one.

    Example: wanderbus session transfer ticker --to desk --user sip:bob@localhost
    """
    if event_domain is None:
        connection = connection.logged_in(may_be_operator=True)
    user = user_given(connection, of)
    row = run_async(_transfer(connection, event_domain, user, name, to, device))
    if json:
        print_json({"user": row.user, "session": row.session, "device": row.name})
    else:
        print_line(f"the session {row.session} of {row.user} is read at {row.name} now")


async def _transfer(
    connection: ConnectionOptions, domain: Path | None, user: str, name: str, to: str, device: str | None
) -> TransferredSession:
    if domain is not None:
        connection = await _server_with(connection, domain, user, name)
    async with connection.visitor() as agent:
        return await agent.operator.transfer(user, name, to, device=device)


async def _server_with(connection: ConnectionOptions, domain: Path, user: str, name: str) -> ConnectionOptions:
    """Return the options to ask the server of a domain that has a session."""

    async def has_session(operator: Operator) -> bool:
        return name in [row.session async for row in operator.sessions(user)]

    answers = (await ask_all(connection, domain, has_session)).values()
    for answer in answers:
        if answer.found and answer.connection is not None:
            return answer.connection
    if silent := [str(answer) for answer in answers if answer.found is None]:
        raise WanderbusError(f"no server that answers has a session {name!r} of {user}; {'; '.join(silent)}")
    raise UnknownUser(f"no server has a session {name!r} of {user}")


async def _dormant(connection: ConnectionOptions, session: str, name: str, command: Sequence[str], json: bool) -> None:
    note = print_progress_json if json else lambda word, line: print_progress(line)
    waits = f"waiting as {name} for the session {session}"
    async with connection.visitor() as agent:
        while True:
            waiting = asyncio.create_task(agent.operator.dormant(session, name))
            noting = asyncio.create_task(_note_waiting(agent, waiting, lambda: note("waiting", waits)))
            try:
                await waiting
            finally:
                noting.cancel()
                await asyncio.wait([noting])
            note("started", f"the session {session} comes to {name}")
            status = await _run(command)
            note("ended", f"{command[0]} has ended with status {status}")


async def _note_waiting(agent: Agent, waiting: asyncio.Task[TransferredSession], note: Callable[[], None]) -> None:
    """Print that the request waits at the broker: it has answered a later one."""
    async for _ in agent.operator.sessions(agent.uri):
        break
    if not waiting.done():
        note()


async def _run(command: Sequence[str]) -> int:
    """Run a program until it ends, and print what it prints; end it if this command is to end."""
    process = await ChildProcess.start(command, print_line, print_error)
    try:
        return await process.wait()
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(_END_S_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
