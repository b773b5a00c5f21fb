"""Requests of an operator to all servers of a domain, each at its address for agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Generic, TypeVar

import typer

from wanderbus.cli.connection_options import Connection
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, Refused, WanderbusError
from wanderbus.runtime.files.domain_file import FILE_NAME, read_domain
from wanderbus.settings.event_domain import EventDomain

_PLACES: Final = (Path(FILE_NAME), Path("wanderbus-domain") / FILE_NAME)

PLACES_SHOWN: Final = " or ".join(map(str, _PLACES))

DomainFile = Annotated[
    Path | None, typer.Option("--event-domain", help="File of the domain.", show_default=PLACES_SHOWN)
]

Row = TypeVar("Row")


class Answer(Generic[Row]):
    """Answer of one server, or the reason for which there is none."""

    def __init__(self, server: str, address: str, *, found: Row | None = None, error: str | None = None) -> None:
        self.server = server
        self.address = address
        self.found = found
        self.error = error

    def __str__(self) -> str:
        """Return the reason in one line, for a server without an answer."""
        return f"{self.server} at {self.address} gives no answer: {self.error}"


def domain_of(file: Path | None) -> EventDomain:
    """Return the domain in ``file``, or in the usual places; :class:`ConfigurationError` if that is unusable."""
    if file is None:
        file = next((each for each in _PLACES if each.exists()), None)
    if file is None:
        raise ConfigurationError(
            f"no domain given, and neither {' nor '.join(map(str, _PLACES))} exists; give --event-domain FILE"
        )
    return read_domain(file)


async def ask_all(
    connection: Connection, domain: EventDomain, question: Callable[[Operator], Awaitable[Row]]
) -> Mapping[str, Answer[Row]]:
    """Ask every server at the same time; return the answers by the names of the servers.

    :raises ConfigurationError: the options cannot be used
    """
    if connection.is_eci:
        raise ConfigurationError("the servers of a domain are asked over SIP; give --user sip:NAME@DOMAIN")
    servers = domain.settings.servers
    answers = await asyncio.gather(
        *(_ask(connection, server, described.sip, question) for server, described in servers.items())
    )
    return {answer.server: answer for answer in answers}


async def _ask(
    connection: Connection, server: str, address: str | None, question: Callable[[Operator], Awaitable[Row]]
) -> Answer[Row]:
    if address is None:
        return Answer(server, "?", error=f"the file of the domain has no address for agents (servers.{server}.sip)")
    # Connecting has a timeout of its own; a server that stops answering afterwards must not hold up the rest.
    timeout_s = 2 * connection.settings().connect_s_max
    try:
        async with asyncio.timeout(timeout_s), replace(connection, server=address).visitor() as agent:
            return Answer(server, address, found=await question(agent.operator))
    except ConfigurationError:
        raise
    except Refused as error:
        return Answer(server, address, error=f"it refuses: {error}")
    except WanderbusError as error:
        return Answer(server, address, error=str(error))
    except TimeoutError:
        return Answer(server, address, error=f"no answer within {timeout_s:g} s")
