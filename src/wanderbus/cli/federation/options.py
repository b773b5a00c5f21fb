"""Arguments and options that commands of a federation share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.errors import ConfigurationError
from wanderbus.peers.far_servers import VisitorsChoice
from wanderbus.settings.federation import ForeignDomainSettings, check_gateway

FederationFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="File of the federation, as 'init' writes it.", show_default=False)
]
DomainName = Annotated[str, typer.Argument(metavar="DOMAIN", help="Name of the foreign domain.", show_default=False)]
Gateways = Annotated[
    list[str] | None,
    typer.Option(
        "--gateway",
        metavar="NAME=HOST:PORT",
        help="Gateway with its address for other domains; repeatable.",
        show_default=False,
    ),
]
Receive = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE", help="Type to receive from the domain, an exact subject; repeatable.", show_default=False
    ),
]
Send = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE", help="Type to send to the domain, an exact subject; repeatable.", show_default=False),
]


Causal = Annotated[
    bool | None,
    typer.Option(help="Whether to have causal order with it, if it asks for that, too.", show_default=False),
]

Visitors = Annotated[
    VisitorsChoice | None,
    typer.Option(
        help="Service for its users who call here: a session of their own here, their session in their own domain, or "
        "that one, which moves here before.",
        show_default=False,
    ),
]


def gateways_in(words: Sequence[str] | None) -> dict[str, str]:
    """Return gateways from values of ``--gateway``; :class:`ConfigurationError` if they cannot be used."""
    found: dict[str, str] = {}
    for word in words or ():
        name, separator, address = word.partition("=")
        if not separator:
            raise ConfigurationError(f"--gateway: {word!r} is not NAME=HOST:PORT")
        if name in found:
            raise ConfigurationError(f"--gateway: {name!r} is given twice; each gateway has one address")
        check_gateway("--gateway", name, address)
        found[name] = address
    if not found:
        raise ConfigurationError("--gateway: none is given; name at least one, as NAME=HOST:PORT")
    return found


def shared_types(domain: ForeignDomainSettings) -> str:
    """Return the types that are shared with a foreign domain, and a service for visitors that was chosen, as text."""
    parts = (("receives", domain.receive), ("sends", domain.send))
    shared = "; ".join(f"{verb} {', '.join(types) if types else 'nothing'}" for verb, types in parts)
    return shared if domain.visitors == "own" else f"{shared}; visitors {domain.visitors}"
