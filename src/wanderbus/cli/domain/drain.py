"""``wanderbus domain drain``: all sessions of a server move to the other servers of its domain (SPEC L-06)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.servers_asked import DomainFile, domain_of, operator_at
from wanderbus.cli.output import print_json, print_line, print_progress, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError
from wanderbus.operator_rows import DrainInfo

_LOOK_S: Final = 0.25
"""Pause until the server is asked again how far it is."""

_SHOWN_S: Final = 2.0
"""Pause between two lines of progress."""


@visiting_all
def drain(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Name of the server in the file of the domain.")],
    *,
    connection: ConnectionOptions,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take sessions again; those that left stay away.")] = False,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Move all sessions of a server to the others, and new ones too, until --cancel; return when none is left.

    Devices connect to the other servers by themselves; no event is lost or repeated. The server goes on draining after
    a restart, and when this command was interrupted; run it again to see how far it is. It still leads its channels.
    Needs the role of administrator elsewhere.

    Example: wanderbus domain drain s1 --event-domain mydomain/domain.toml

    Example: wanderbus domain drain s1 --cancel
    """
    servers = domain_of(event_domain).settings.present
    if server not in servers:
        raise ConfigurationError(f"the domain has no server {server!r} (expected {' or '.join(servers)})")
    found = run_async(drained(connection, event_domain, server, on=not cancel))
    if json:
        print_json(msgspec.structs.asdict(found))
    elif cancel:
        print_line(f"{server} takes sessions again")
    else:
        print_line(f"{server} has no sessions any more; new ones begin at other servers until --cancel")


async def drained(connection: ConnectionOptions, file: Path | None, server: str, *, on: bool) -> DrainInfo:
    """Let a server drain until it has no session, or take sessions again."""
    async with operator_at(connection, file, server, Operator.drain) as operator:
        found = await operator.drain(on=on)
        try:
            return await wait_until_empty(operator, found, print_progress) if on else found
        except asyncio.CancelledError:
            print_progress(f"{server} goes on draining; 'wanderbus domain drain {server} --cancel' ends that")
            raise


async def wait_until_empty(
    operator: Operator, found: DrainInfo, show: Callable[[str], None], stuck_s_max: float | None = None
) -> DrainInfo:
    """Return what the server says when no session is left; show progress meanwhile.

    With ``stuck_s_max``, also return once for so long nothing but sessions that cannot move is left.
    """
    loop = asyncio.get_running_loop()
    shown_at = moved_at = loop.time()
    while found.sessions:
        if found.sessions > sum(found.stuck.values()):
            moved_at = loop.time()
        elif stuck_s_max is not None and loop.time() - moved_at >= stuck_s_max:
            break
        await asyncio.sleep(_LOOK_S)
        found = await operator.drain()
        if found.sessions and loop.time() - shown_at >= _SHOWN_S:
            shown_at = loop.time()
            reasons = "".join(f"; {count} cannot move: {reason}" for reason, count in found.stuck.items())
            show(f"{found.sessions} sessions are left at {found.server}{reasons}")
    return found
