"""``wanderbus domain move``: another server leads a channel group from now on (SPEC J-08)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.servers_asked import DomainFile, domain_of, moved_groups, operator_at
from wanderbus.cli.output import print_json, print_line, run_async
from wanderbus.errors import ConfigurationError
from wanderbus.operator_rows import MovedGroup


@visiting_all
def move(
    group: Annotated[str, typer.Argument(metavar="GROUP|SUBJECT", help="Number of a channel group, or a subject.")],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Name of the next leader in the domain's file.")],
    *,
    connection: ConnectionOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a leader that is gone; subscribers get a gap.")
    ] = False,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Let another server lead a channel group, or the group of a subject, while events are published.

    All servers of the domain have to run. No event is lost or repeated, and the order of each subject stays; publishes
    wait for some round trips. If the group stays where it is, the command says why. Ctrl-C ends the command, but not
    the move. 'domain status' shows the groups that have moved. Needs the role of administrator elsewhere.

    A leader that is gone makes publishes to its groups wait. --force replaces it, while all other servers run: every
    subscription of the group gets a gap, since events that only the former leader has do not arrive any more, and an
    event whose publish had no answer may be accepted twice. The former leader may come back at any time.

    Example: wanderbus domain move Departure s2 --event-domain mydomain/domain.toml

    Example: wanderbus domain move 17 s3

    Example: wanderbus domain move Departure s2 --force
    """
    servers = domain_of(event_domain).settings.servers_with("resolution")
    if server not in servers:
        raise ConfigurationError(f"no server {server!r} may lead channels (expected {' or '.join(servers)})")
    asked = int(group) if _is_number(group) else group
    moved = run_async(moved_group(connection, event_domain, asked, server, force=force))
    if json:
        print_json(msgspec.structs.asdict(moved))
    else:
        print_line(f"{moved.server} leads channel group {moved.group} under epoch {moved.epoch}")


async def moved_group(
    connection: ConnectionOptions, file: Path | None, group: int | str, server: str, *, force: bool = False
) -> MovedGroup:
    """Ask the next leader, which passes the request to the present one, unless that is gone."""
    async with operator_at(connection, file, server, moved_groups) as operator:
        return await operator.move_group(group, server, force=force)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
