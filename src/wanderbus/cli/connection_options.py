"""Command-line options shared by every command that connects to a server."""

from __future__ import annotations

import asyncio
import functools
import inspect
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from wanderbus.cli.output import log_to_stderr
from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect
from wanderbus.client.operator import Operator
from wanderbus.client.user_uri import user_of
from wanderbus.config import AgentSettings
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.runtime.files.config_files import load_agent
from wanderbus.runtime.files.device_file import default_state_dir
from wanderbus.settings.keys import default_of

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line; errors too.")]

_LEAVE_S_MAX: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Options for the user's identity and the connection to the server; None: use the file of settings."""

    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of settings; the other options override it. 'wanderbus config sample agent' prints one.",
            envvar="WANDERBUS_CONFIG",
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            help="Your user: sip:name@domain. With eci://HOST:PORT of a server that runs with --eci-port, your address "
            "identifies you, over plain UDP: no authentication, and datagrams may get lost.",
            envvar="WANDERBUS_USER",
        ),
    ] = None
    password: Annotated[
        str | None,
        typer.Option(
            help="Your password; the environment variable keeps it out of the process list.",
            envvar="WANDERBUS_PASSWORD",
        ),
    ] = None
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            help="SIP server, host or host:port.",
            envvar="WANDERBUS_SERVER",
            show_default=str(default_of(AgentSettings, "server")),
        ),
    ] = None
    transport: Annotated[
        str | None,
        typer.Option(
            "--transport", help="SIP transport: udp, tcp or tls; unless given, tls for a sips: user, else udp."
        ),
    ] = None
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate authorities to trust for the server (TLS).")
    ] = None
    broker: Annotated[
        str | None, typer.Option("--broker", help="URI of the broker; sip:broker@DOMAIN unless given.")
    ] = None
    encryption: Annotated[
        bool | None,
        typer.Option(
            help="Encrypt events; the server needs the same setting.",
            show_default=str(default_of(AgentSettings, "encryption")),
        ),
    ] = None
    data_transport: Annotated[
        str | None,
        typer.Option(
            help="Transport of events: udp (reliable UDP), tcp, or auto (TCP only where UDP does not get through).",
            show_default=str(default_of(AgentSettings, "data_transport")),
        ),
    ] = None
    connect_s_max: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.1,
            metavar="SECONDS",
            help="Timeout for connecting.",
            show_default=str(default_of(AgentSettings, "connect_s_max")),
        ),
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False
    state_dir: Annotated[Path | None, typer.Option(help="Directory in which this device stores its identity.")] = None

    def agent(self, **more: Any) -> Agent:
        """Return an agent with these options; ``more`` are further arguments of :func:`~wanderbus.connect`."""
        return connect(self.user, **(self._given() | more))

    @property
    def is_eci(self) -> bool:
        """True for a user of the original ECI, which has neither sessions nor lifetimes."""
        return self.settings().uri.lower().startswith("eci://")

    @property
    def user_uri(self) -> str:
        """The user's canonical URI, as the broker stores it."""
        return user_of(self.settings().uri)

    def settings(self) -> AgentSettings:
        """Return the settings from the file, overridden by the options."""
        if self.user is None and self.config is None:
            raise ConfigurationError(
                "no user given; use --user or WANDERBUS_USER, or a file of settings (--config or WANDERBUS_CONFIG)"
            )
        given = self._given() | ({} if self.user is None else {"uri": self.user})
        return load_agent(given.pop("config", None), given)

    def device_directory(self) -> Path:
        """Return the directory that holds the identities of the commands' devices."""
        settings = self.settings()
        return settings.state_dir or default_state_dir(user_of(settings.uri))

    def _given(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("user", "verbose")}
        return {name: value for name, value in values.items() if value is not None}

    @asynccontextmanager
    async def visitor(self) -> AsyncIterator[Agent]:
        """Connect for requests about the broker, as a temporary device in a separate session; remove both at the end.

        In any other session the broker would send notifications to this device and keep a queue for it.
        """
        with tempfile.TemporaryDirectory(prefix="wanderbus-") as directory:
            async with self.agent(session=Operator.SESSION, state_dir=Path(directory)) as agent:
                try:
                    yield agent
                finally:
                    await leave(agent)


async def leave(agent: Agent) -> None:
    """Remove a command's device from its session, if the broker can be reached, so that nothing is queued for it."""
    with suppress(TimeoutError, WanderbusError):
        async with asyncio.timeout(_LEAVE_S_MAX):
            await agent.leave()


def visiting(command: Callable[..., None]) -> Callable[..., None]:
    """Apply :func:`connected` without ``--state-dir``, for a command that only uses :meth:`Connection.visitor`."""
    return connected(command, without=("state_dir",))


def visiting_all(command: Callable[..., None]) -> Callable[..., None]:
    """Apply :func:`visiting` without ``--server``, for a command that asks all servers of a domain."""
    return connected(command, without=("state_dir", "server"))


def connected(command: Callable[..., None], *, without: Sequence[str] = ()) -> Callable[..., None]:
    """Replace the parameter ``connection`` of ``command`` by the connection options."""
    types = get_type_hints(Connection, include_extras=True)
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in fields(Connection)
        if each.name not in without
    ]

    @functools.wraps(command)
    def connecting(**given: Any) -> None:
        connection = Connection(**{option.name: given.pop(option.name) for option in options})
        log_to_stderr(verbose=connection.verbose)
        command(**given, connection=connection)

    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    place = next(index for index, parameter in enumerate(parameters) if parameter.name == "connection")
    parameters[place : place + 1] = options
    connecting.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return connecting
