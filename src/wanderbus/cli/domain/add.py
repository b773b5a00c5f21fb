"""``wanderbus domain add``: another server in the file of a domain (SPEC J-11)."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.domain.servers_asked import RESTART_ADVICE, DomainFile, existing_domain_file
from wanderbus.cli.domain.up import runs_here
from wanderbus.cli.output import print_json, print_line
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.domain_file import add_server, key_file
from wanderbus.settings.event_domain import ROLES, Role, address_in


def _roles(text: str) -> tuple[Role, ...]:
    words = text.split(",")
    found = tuple(role for role in ROLES if role in words)
    if len(found) != len(words) or "directory" in found:
        raise ConfigurationError(f"--roles: {text!r} is not usable (expected access, resolution, or both with a comma)")
    return found


def add(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Name of the new server.")],
    address: Annotated[
        str | None,
        typer.Option(help="Address for the other servers, HOST:PORT.", show_default="a free one, if all are 127.0.0.N"),
    ] = None,
    sip: Annotated[str | None, typer.Option(help="Address for agents, HOST:PORT with an IP address.")] = None,
    roles: Annotated[str, typer.Option(help="Roles of the server, with commas.")] = "access,resolution",
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Add a server to the file of a domain, and write its key beside it.

    The domain stays up: start the new server with the changed file, then copy the file to all others and restart them,
    one after the other. A 'domain up' that runs starts it by itself. It serves users at once, and leads channel groups
    once they are moved to it.

    Example: wanderbus domain add s4

    Example: wanderbus domain add s4 --address 192.0.2.4:5601 --sip 192.0.2.4:5060 --event-domain mydomain/domain.toml
    """
    file = existing_domain_file(event_domain)
    for option, place in (("--address", address), ("--sip", sip)):
        if place is not None and address_in(place) is None:
            raise ConfigurationError(f"{option}: {place!r} is not HOST:PORT")
    added = add_server(file, server, address, sip, _roles(roles))
    if json:
        print_json({"server": server, **msgspec.structs.asdict(added), "key": str(key_file(file, server))})
        return
    agents = "" if added.sip is None else f", {added.sip} for agents"
    print_line(f"{file} has {server} at {added.address}{agents}; its key is {key_file(file, server)}")
    starts = f"'domain up', which runs, starts {server}" if runs_here(file.parent) else f"start {server} with this file"
    print_line(f"next: {starts}, then {RESTART_ADVICE}")
