"""The options of every command that connects to a server, in one place."""

from __future__ import annotations

import asyncio
import functools
import inspect
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from wanderbus.cli.output import log_to_stderr
from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect, user_of
from wanderbus.client.operations import SESSION, Operations
from wanderbus.config import AgentSettings
from wanderbus.config.keys import default_of
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.runtime.files.config_files import load_agent
from wanderbus.runtime.files.device_file import default_state_dir

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line; errors too.")]

_LEAVE_S_MAX: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What the command line says of who we are and how the server is reached; None leaves it to a file of settings."""

    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of settings; the other options come before it. 'wanderbus config sample agent' prints one.",
            envvar="WANDERBUS_CONFIG",
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            help="Who you are: sip:name@domain. Or eci://HOST:PORT of a server with --eci-port: nobody but your "
            "address, over plain UDP without any authentication, which loses what the network loses.",
            envvar="WANDERBUS_USER",
        ),
    ] = None
    password: Annotated[
        str | None,
        typer.Option(help="Your password; the variable keeps it off the process list.", envvar="WANDERBUS_PASSWORD"),
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
        str | None, typer.Option("--transport", help="udp, tcp or tls; tls for a sips: user, else udp.")
    ] = None
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of the authorities that vouch for the server (TLS).")
    ] = None
    broker: Annotated[
        str | None, typer.Option("--broker", help="URI of the broker; sip:broker@DOMAIN unless given.")
    ] = None
    encryption: Annotated[
        bool | None,
        typer.Option(
            help="Whether events travel encrypted; the server has to say the same.",
            show_default=str(default_of(AgentSettings, "encryption")),
        ),
    ] = None
    data_transport: Annotated[
        str | None,
        typer.Option(
            help="What events go over: udp (reliable UDP), tcp, or auto, which takes TCP where UDP does not arrive.",
            show_default=str(default_of(AgentSettings, "data_transport")),
        ),
    ] = None
    connect_s_max: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.1,
            metavar="SECONDS",
            help="Connecting gives up after this time.",
            show_default=str(default_of(AgentSettings, "connect_s_max")),
        ),
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False
    state_dir: Annotated[Path | None, typer.Option(help="Where this device keeps its identity.")] = None

    def agent(self, **more: Any) -> Agent:
        """Return an agent that connects so; ``more`` are further arguments of :func:`~wanderbus.connect`."""
        return connect(self.user, **(self._given() | more))

    @property
    def is_eci(self) -> bool:
        """True for a user of the original ECI, which has neither sessions nor lifetimes."""
        return self.settings().uri.lower().startswith("eci://")

    @property
    def user_uri(self) -> str:
        """The user, as the broker knows them."""
        return user_of(self.settings().uri)

    def settings(self) -> AgentSettings:
        """Return what the options and a file say together."""
        if self.user is None and self.config is None:
            raise ConfigurationError(
                "no user given; use --user or WANDERBUS_USER, or a file of settings (--config or WANDERBUS_CONFIG)"
            )
        given = self._given() | ({} if self.user is None else {"uri": self.user})
        return load_agent(given.pop("config", None), given)

    def device_directory(self) -> Path:
        """Return the directory below which commands keep what devices they are."""
        settings = self.settings()
        return settings.state_dir or default_state_dir(user_of(settings.uri))

    def _given(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("user", "verbose")}
        return {name: value for name, value in values.items() if value is not None}

    @asynccontextmanager
    async def operations(self) -> AsyncIterator[Operations]:
        """Have a connection to ask about the broker, as a device and in a session of its own, and leave nothing of it.

        In another session it would have notifications sent to it, and its queue kept for it.
        """
        with tempfile.TemporaryDirectory(prefix="wanderbus-") as directory:
            async with self.agent(session=SESSION, state_dir=Path(directory)) as agent:
                operations = Operations(agent)
                try:
                    yield operations
                finally:
                    await leave(agent)


async def leave(agent: Agent) -> None:
    """End the membership of a command's device, if the broker can be reached: it leaves nothing behind."""
    with suppress(TimeoutError, WanderbusError):
        async with asyncio.timeout(_LEAVE_S_MAX):
            await Operations(agent).leave()


def visiting(command: Callable[..., None]) -> Callable[..., None]:
    """Do as :func:`connected` for a command that needs :meth:`Connection.operations` alone: it is no lasting device."""
    return connected(command, without="state_dir")


def connected(command: Callable[..., None], *, without: str = "") -> Callable[..., None]:
    """Give ``command`` the options of a connection in place of its parameter ``connection``."""
    types = get_type_hints(Connection, include_extras=True)
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in fields(Connection)
        if each.name != without
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
