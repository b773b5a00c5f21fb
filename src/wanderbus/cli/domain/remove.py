"""``wanderbus domain remove``: a server leaves its domain once nothing needs it any more (SPEC J-11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from wanderbus.channels.directory import preferred_server
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.drain import drained
from wanderbus.cli.domain.move import moved_group
from wanderbus.cli.domain.servers_asked import RESTART_ADVICE, DomainFile, ask_all, existing_domain_file, moved_groups
from wanderbus.cli.domain.status import leaders_by
from wanderbus.cli.domain.up import runs_here
from wanderbus.cli.output import counted, print_json, print_line, print_progress, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, NoResponse
from wanderbus.operator_rows import DrainInfo, GroupInfo, ServerInfo
from wanderbus.runtime.files.domain_file import leave_domain, read_domain, without_server
from wanderbus.settings.event_domain import EventDomain


class LeavingServer(NamedTuple):
    """Report of a server that is to leave, about itself."""

    drain: DrainInfo
    others: Sequence[ServerInfo]
    groups: Sequence[GroupInfo]


@visiting_all
def remove(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Name of the server in the file of the domain.")],
    *,
    connection: ConnectionOptions,
    drain: Annotated[
        bool, typer.Option("--drain", help="First move its sessions and channel groups to the other servers.")
    ] = False,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Write into the domain's file that a server has left, once it has no sessions and groups, and all have its events.

    Otherwise the file stays as it is, and each line says what is missing and which command helps; exit status 1. With
    --drain the command runs these itself. It can be interrupted and repeated. Afterwards stop the server, unless a
    'domain up' that runs does so, copy the file to all others and restart them, one after the other. Needs the role of
    administrator elsewhere.

    Example: wanderbus domain remove s3 --drain

    Example: wanderbus domain remove s3 --event-domain mydomain/domain.toml --user sip:alice@example.org
    """
    file = existing_domain_file(event_domain)
    domain = read_domain(file)
    settings = domain.settings
    if server not in settings.servers:
        raise ConfigurationError(f"the domain has no server {server!r} (expected {' or '.join(settings.present)})")
    missing: list[str] = []
    if server in settings.present:
        _check_others(file, domain, server)
        missing = run_async(_empty(connection, file, domain, server, drain=drain))
        if not missing:
            leave_domain(file, server)
    if json:
        print_json({"server": server, "left": not missing, "missing": missing})
    else:
        for line in missing or _next_steps(file, domain, server):
            print_line(line)
    if missing:
        raise typer.Exit(1)


def _check_others(file: Path, domain: EventDomain, server: str) -> None:
    """Raise :class:`ConfigurationError` if the domain cannot go without a server."""
    if domain.settings.servers_with("directory") == (server,):
        raise ConfigurationError(f"{server} has the role directory; give it to another server in {file} first")
    without_server(domain, server)


def _next_steps(file: Path, domain: EventDomain, server: str) -> Iterator[str]:
    yield f"{server} has left the domain of {file}"
    stops = f"'domain up', which runs, ends {server}" if runs_here(file.parent) else f"stop {server}"
    yield (
        f"next: {stops}, then {RESTART_ADVICE}. The data directory of {server} has the earlier events of the "
        "channels that it led: keep it, or its lake, for history"
    )
    if "decentralised" in domain.models and server in domain.settings.founders("resolution"):
        yield (
            f"do so without delay: {server} spread what servers want in decentralised channels. Until all others have "
            "been restarted, publishes to these are refused with routes_unknown, and those to ordered channels wait"
        )


async def _empty(
    connection: ConnectionOptions, file: Path, domain: EventDomain, server: str, *, drain: bool
) -> list[str]:
    """Return what keeps a server from leaving, after moving what it has if ``drain`` is set."""
    seen = await _ask(connection, file, server)
    if drain:
        await drained(connection, file, server, on=True)
        for group, target in _moves(domain, server, seen.groups):
            print_progress(f"{target} is to lead channel group {group}")
            await moved_group(connection, file, group, target)
        seen = await _ask(connection, file, server)
    return [*_missing(domain, server, seen)]


async def _ask(connection: ConnectionOptions, file: Path, server: str) -> LeavingServer:
    answer = (await ask_all(connection, file, _seen, only=server))[server]
    if answer.found is None:
        raise NoResponse(f"{answer}; a server has to run until it has left")
    return answer.found


async def _seen(operator: Operator) -> LeavingServer:
    return LeavingServer(
        await operator.drain(),
        [row async for row in operator.servers()],
        await moved_groups(operator),
    )


def _led(domain: EventDomain, server: str, groups: Sequence[GroupInfo]) -> list[int]:
    """Return the groups of ordered channels that a server leads."""
    if "ordered" not in domain.models:
        return []
    return list(domain.directory.table.with_leaders(leaders_by([groups])).groups_of(server))


def _moves(domain: EventDomain, server: str, groups: Sequence[GroupInfo]) -> Iterator[tuple[int, str]]:
    """Yield the groups that a server leads, each with one of the others."""
    others = [each for each in domain.settings.servers_with("resolution") if each != server]
    key = bytes.fromhex(domain.settings.hash_key)
    for group in _led(domain, server, groups):
        yield group, preferred_server(group, others, key)


def _missing(domain: EventDomain, server: str, seen: LeavingServer) -> Iterator[str]:
    """Yield a line for each thing that a server still has."""
    if not seen.drain.is_draining:
        yield f"users can still come to {server}; run 'wanderbus domain drain {server}'"
    elif seen.drain.sessions:
        left = counted(seen.drain.sessions, "session")
        yield f"{left} of users at {server} have not moved yet; 'wanderbus domain drain {server}' says why"
    if moves := [*_moves(domain, server, seen.groups)]:
        group, target = moves[0]
        more = f", and {len(moves) - 1} more" if len(moves) > 1 else ""
        yield f"{server} leads channel group {group}{more}; run 'wanderbus domain move {group} {target}' and so on"
    for group in (each.group for each in seen.groups if each.target):
        yield f"channel group {group} is about to move; wait until it has"
    for other in seen.others:
        waits = "'wanderbus domain status' says whether it can be reached"
        if other.waiting_here:
            yield f"{other.server} has not taken {counted(other.waiting_here, 'event')} of {server}; {waits}"
        if other.waiting_publishes:
            yield f"{other.server} has not answered all publishes of {server}; {waits}"
        if other.leaving or other.arriving:
            yield f"sessions are on the way between {server} and {other.server}; wait until they have arrived"
