"""``wanderbus session share``: another application reads the subscriptions of a session (SPEC J-05)."""

from __future__ import annotations

from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, connected, leave
from wanderbus.cli.devices import named_place
from wanderbus.cli.domain.session_files import Name
from wanderbus.cli.event_output import Format, print_gap, print_notification
from wanderbus.cli.output import counted, print_progress, print_progress_json, run_async
from wanderbus.cli.sub import until_closed
from wanderbus.client.agent import Agent
from wanderbus.errors import UnknownUser
from wanderbus.event import Gap


@connected
def share(
    name: Name,
    *,
    connection: ConnectionOptions,
    count: Annotated[int | None, typer.Option(min=1, help="End after this number of notifications.")] = None,
    json: AsJson = False,
) -> None:
    """Read all subscriptions of an own session beside the applications that read it already, and print what comes.

    Each application gets everything. This command begins behind what the others have acknowledged, and leaves the
    session when it ends; the subscriptions go on. Those of one device alone are left out.

    Example: wanderbus session share ticker --user sip:bob@localhost
    """
    run_async(until_closed(_share(connection, name, count, json)))


async def _share(connection: ConnectionOptions, name: str, count: int | None, json: bool) -> None:
    async with connection.visitor() as visitor:
        known = {row.session async for row in visitor.operator.sessions(connection.user_uri)}
    if name not in known:
        raise UnknownUser(f"{connection.user_uri} has no session {name!r}; 'wanderbus sessions' lists those that exist")
    with named_place(connection.device_directory() / "shared" / name, f"'wanderbus session share {name}'") as place:
        async with connection.agent(state_dir=place.directory, session=name, keep=True) as agent:
            try:
                await _print(agent, name, count, json)
            finally:
                await leave(agent)


async def _print(agent: Agent, name: str, count: int | None, json: bool) -> None:
    shared = [each for each in await agent.subscriptions() if each.device is None]
    if not shared:
        raise UnknownUser(f"the session {name!r} has no subscription that can be shared")
    printed = 0
    async with agent.merged(*(agent.read(each, gaps=True) for each in shared)) as items:
        line = f"reading {counted(len(shared), 'subscription')} of the session {name}"
        print_progress_json("ready", line) if json else print_progress(line)
        async for item in items:
            if not isinstance(item, Gap):
                print_notification(item, Format.json if json else Format.text)
                printed += 1
            elif json:
                print_gap(item)
            else:
                print_progress(f"gap of {item.count}: {item.reason}")
            items.ack()
            if printed == count:
                return
