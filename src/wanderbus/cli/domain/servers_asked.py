"""Requests of an operator to all servers of a domain, each at its address for agents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Generic, TypeVar

import typer

from wanderbus.cli.connection_options import LOGIN_S_MAX, ConnectionOptions
from wanderbus.cli.operator.local_login import PLACES as DATA_PLACES
from wanderbus.cli.operator.local_login import login_at_server
from wanderbus.client.agent_sockets import ECI_SCHEME
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, NoResponse, Refused, WanderbusError
from wanderbus.operator_rows import GroupInfo
from wanderbus.runtime.files.domain_file import FILE_NAME, data_directory, read_domain
from wanderbus.settings.event_domain import EventDomain

_PLACES: Final = (Path(FILE_NAME), Path("wanderbus-domain") / FILE_NAME)

PLACES_SHOWN: Final = " or ".join(map(str, _PLACES))

DomainFile = Annotated[
    Path | None, typer.Option("--event-domain", help="File of the domain.", show_default=PLACES_SHOWN)
]

RESTART_ADVICE: Final = (
    "restart all other servers with this file, one after the other, as 'wanderbus domain upgrade' does"
)
"""Advice for whoever has changed the servers in the file."""

Row = TypeVar("Row")


class ServerAnswer(Generic[Row]):
    """Answer of one server, or the reason for which there is none; and the options to ask it again."""

    def __init__(
        self,
        server: str,
        address: str,
        *,
        found: Row | None = None,
        error: str | None = None,
        failure: WanderbusError | None = None,
        connection: ConnectionOptions | None = None,
    ) -> None:
        self.server = server
        self.address = address
        self.found = found
        self.error = error
        self.failure = failure
        """The error behind ``error``, if it is one of this package."""
        self.connection = connection

    def __str__(self) -> str:
        """Return the reason in one line, for a server without an answer."""
        return f"{self.server} at {self.address} gives no answer: {self.error}"


def domain_of(file: Path | None) -> EventDomain:
    """Return the domain in ``file``, or in the usual places; :class:`ConfigurationError` if that is unusable."""
    return read_domain(existing_domain_file(file))


def existing_domain_file(file: Path | None) -> Path:
    """Return ``file``, or the first of the usual places that exists; :class:`ConfigurationError` if none does."""
    if file is None:
        file = next((each for each in _PLACES if each.exists()), None)
    if file is None:
        raise ConfigurationError(
            f"no domain given, and neither {' nor '.join(map(str, _PLACES))} exists; give --event-domain FILE"
        )
    return file


async def ask_all(
    connection: ConnectionOptions,
    file: Path | None,
    question: Callable[[Operator], Awaitable[Row]],
    only: str | None = None,
) -> Mapping[str, ServerAnswer[Row]]:
    """Ask every server of the domain in ``file`` at the same time; return the answers by the names of the servers.

    With ``only``, ask that server alone.

    :raises ConfigurationError: the options cannot be used
    """
    if (connection.user or "").lower().startswith(ECI_SCHEME):
        raise ConfigurationError("the servers of a domain are asked over SIP; give --user sip:NAME@DOMAIN")
    file = existing_domain_file(file)
    servers = {name: each for name, each in read_domain(file).settings.present.items() if only in (None, name)}
    # A server that is suspended keeps its caller waiting.
    logins = (asyncio.to_thread(_logged_in, connection, server, file.parent) for server in servers)
    asked = dict(zip(servers, await asyncio.gather(*logins), strict=True))
    if all(each is None for each in asked.values()):
        raise ConfigurationError(
            "no user given, and no server of the domain runs on this computer in "
            f"{connection.data_dir or file.parent} or {DATA_PLACES[0]}; give --data-dir, or --user and --password"
        )
    answers = await asyncio.gather(
        *(_ask(asked[server], server, described.sip, question) for server, described in servers.items())
    )
    return {answer.server: answer for answer in answers}


def is_lone(connection: ConnectionOptions, file: Path | None) -> bool:
    """Return whether a command is for a server that is alone in its domain: the options name it, or there is no file.

    :raises ConfigurationError: the options name such a server, and a file of a domain
    """
    if connection.server is not None and file is not None:
        raise ConfigurationError(
            "--server names a server that is alone in its domain, and --event-domain a domain of several; leave one out"
        )
    return connection.server is not None or (file is None and not any(each.exists() for each in _PLACES))


async def ask_lone(
    connection: ConnectionOptions, question: Callable[[Operator], Awaitable[Row]]
) -> Mapping[str, ServerAnswer[Row]]:
    """Ask a server that is alone in its domain; return its answer by its address.

    :raises ConfigurationError: the options cannot be used
    """
    options = await asyncio.to_thread(connection.logged_in, may_be_operator=True)
    address = options.settings().server
    return {address: await _ask(options, address, address, question)}


@contextlib.asynccontextmanager
async def operator_at(
    connection: ConnectionOptions,
    file: Path | None,
    server: str,
    question: Callable[[Operator], Awaitable[object]],
) -> AsyncIterator[Operator]:
    """Visit one server of the domain in ``file``, once it has answered ``question``.

    :raises NoResponse: it gives no answer
    """
    answer = (await ask_all(connection, file, question, only=server))[server]
    if answer.found is None or answer.connection is None:
        raise NoResponse(str(answer))
    async with answer.connection.visitor() as agent:
        yield agent.operator


def _logged_in(connection: ConnectionOptions, server: str, directory: Path) -> ConnectionOptions | NoResponse | None:
    """Return the options for ``server``, with its login if it runs on this computer; None if they have no user then.

    If it runs here and does not answer, return that error.
    """
    if connection.is_local:
        directory = connection.data_dir or directory
        places = (data_directory(directory, server), directory, DATA_PLACES[0])
        try:
            login = login_at_server(places, server, connection.user, connection.connect_s_max or LOGIN_S_MAX)
        except NoResponse as error:
            return error
        if login is not None:
            return connection.with_login(login)
    return None if connection.user is None and connection.config is None else connection


async def moved_groups(operator: Operator) -> list[GroupInfo]:
    """Return the channel groups that have moved, or are about to."""
    return [row async for row in operator.groups()]


async def _ask(
    connection: ConnectionOptions | NoResponse | None,
    server: str,
    address: str | None,
    question: Callable[[Operator], Awaitable[Row]],
) -> ServerAnswer[Row]:
    if isinstance(connection, NoResponse):
        return ServerAnswer(server, address or "?", error=str(connection))
    if connection is not None and connection.login is not None:
        address = connection.login.server
    if address is None:
        return ServerAnswer(
            server, "?", error=f"the file of the domain has no address for agents (servers.{server}.sip)"
        )
    if connection is None:
        return ServerAnswer(server, address, error="it does not run on this computer; give --user and --password")
    # Connecting has a timeout of its own; a server that stops answering afterwards must not hold up the rest.
    timeout_s = 2 * connection.settings().connect_s_max
    options = replace(connection, server=address)
    try:
        async with asyncio.timeout(timeout_s), options.visitor() as agent:
            return ServerAnswer(server, address, found=await question(agent.operator), connection=options)
    except ConfigurationError:
        raise
    except Refused as error:
        return ServerAnswer(server, address, error=f"it refuses: {error}", failure=error)
    except WanderbusError as error:
        return ServerAnswer(server, address, error=str(error), failure=error)
    except TimeoutError:
        return ServerAnswer(server, address, error=f"no answer within {timeout_s:g} s")
