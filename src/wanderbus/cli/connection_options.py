"""Command-line options shared by every command that connects to a server."""

from __future__ import annotations

import asyncio
import functools
import inspect
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from wanderbus.cli.operator.local_login import PLACES_SHOWN, login_at, login_nearby
from wanderbus.cli.output import log_to_stderr
from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect
from wanderbus.client.user_uri import user_of
from wanderbus.config import AgentSettings
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.runtime.files.config_files import load_agent
from wanderbus.runtime.files.device_file import default_state_dir
from wanderbus.runtime.services.login import Login
from wanderbus.settings.keys import default_of

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line; errors too.")]

_LEAVE_S_MAX: Final = 2.0

LOGIN_S_MAX: Final = 10.0
"""Longest wait for a login, unless --timeout is given."""

_NO_OPTION: Final = "no option"
"""Key in the metadata of a field that is no option."""


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
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
            help="Your user: sip:name@domain, or only the name beside a server of yours (--data-dir); the requests of "
            "operators need no user there. With eci://HOST:PORT of a server that runs with --eci-port, your address "
            "identifies you, over plain UDP: no authentication, and datagrams may get lost.",
            envvar="WANDERBUS_USER",
        ),
    ] = None
    password: Annotated[
        str | None,
        typer.Option(
            help="Your password; the environment variable keeps it out of the process list. Not needed beside a server "
            "of yours (--data-dir).",
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
            help="Timeout for connecting. If given, pub and sub also end after this time without an answer, with exit "
            "status 4; what was sent may still appear.",
            show_default=str(default_of(AgentSettings, "connect_s_max")),
        ),
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Data directory of a server that you run on this computer, or of a domain: it accepts the user that "
            "runs it, and root, without a password. Unless given, this is tried without --password and --server.",
            show_default=PLACES_SHOWN,
        ),
    ] = None
    state_dir: Annotated[Path | None, typer.Option(help="Directory in which this device stores its identity.")] = None

    login: Login | None = field(default=None, metadata={_NO_OPTION: True})
    """Login that a server on this computer has given."""

    def logged_in(self, *, may_be_operator: bool) -> ConnectionOptions:
        """Return these options with the login of a server on this computer, if they leave that to it.

        :param may_be_operator: True if the command makes requests of operators, so that it needs no user
        :raises ConfigurationError: the options contradict each other, or no server runs in ``data_dir``
        :raises UnknownUser: the server has no such user
        :raises AuthenticationError: it belongs to another user of this computer
        """
        if not self.is_local or (self.user is None and not may_be_operator):
            return self
        timeout_s = self.connect_s_max or LOGIN_S_MAX
        if self.data_dir is not None:
            return self.with_login(login_at(self.data_dir, self.user, timeout_s))
        login = login_nearby(self.user, timeout_s)
        if login is None and self.user is None:
            raise ConfigurationError(
                f"no user given, and no server runs in {PLACES_SHOWN}; start one there, or give --data-dir of one that "
                "you run, or --user and --password"
            )
        if login is None and self.user is not None and not set("@:") & set(self.user):
            raise ConfigurationError(
                f"{self.user!r} is only a name, and no server runs in {PLACES_SHOWN}; start one there, give --data-dir "
                f"of one that you run, or write {self.user}@localhost, or the domain of its server, and --password"
            )
        return self if login is None else self.with_login(login)

    def with_login(self, login: Login) -> ConnectionOptions:
        """Return these options as the user of ``login``."""
        return replace(self, user=login.user, login=login)

    @property
    def is_local(self) -> bool:
        """True if a server on this computer is asked to let the user in; :class:`ConfigurationError` if it cannot."""
        is_elsewhere = self.server is not None or self.transport == "tls"
        scheme = (self.user or "").partition(":")[0].lower()
        if self.data_dir is None:
            if self.password is not None and self.user is None and self.config is None:
                raise ConfigurationError(
                    "a password is given (--password or WANDERBUS_PASSWORD), and no user: give --user, or no password "
                    "beside a server that you run"
                )
            is_given = self.password is not None or self.config is not None
            return not (is_elsewhere or is_given or scheme in ("eci", "sips"))
        if is_elsewhere:
            raise ConfigurationError("--data-dir names a server on this computer; leave out --server and TLS")
        if scheme in ("eci", "sips"):
            raise ConfigurationError(f"--data-dir does not go with {scheme}:; give --user NAME")
        return True

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
        settings = (each.name for each in _options() if each.name not in ("user", "verbose", "data_dir"))
        values = {name: value for name in settings if (value := getattr(self, name)) is not None}
        login = self.login
        if login is None:
            return values
        own: dict[str, Any] = {name: getattr(login, name) for name in ("server", "transport", "broker", "encryption")}
        if login.ca_file is not None:
            own["ca_file"] = Path(login.ca_file)
        return {**own, **values, "password": login.digests}

    @asynccontextmanager
    async def visitor(self) -> AsyncIterator[Agent]:
        """Connect for requests about the broker, as a temporary device in a separate session; remove both at the end.

        In any other session the broker would send notifications to this device and keep a queue for it.
        """
        from wanderbus.client.operator import Operator

        with tempfile.TemporaryDirectory(prefix="wanderbus-") as directory:
            async with self.agent(session=Operator.SESSION, state_dir=Path(directory)) as agent:
                try:
                    yield agent
                finally:
                    await leave(agent)


def _options() -> list[Field[Any]]:
    return [each for each in fields(ConnectionOptions) if _NO_OPTION not in each.metadata]


async def leave(agent: Agent) -> None:
    """Remove a command's device from its session, if the broker can be reached, so that nothing is queued for it."""
    with suppress(TimeoutError, WanderbusError):
        async with asyncio.timeout(_LEAVE_S_MAX):
            await agent.leave()


def visiting_as_user(command: Callable[..., None]) -> Callable[..., None]:
    """Apply :func:`connected` without ``--state-dir``: the command uses :meth:`ConnectionOptions.visitor` alone."""
    return connected(command, without=("state_dir",))


def visiting(command: Callable[..., None]) -> Callable[..., None]:
    """Apply :func:`visiting_as_user` to a command of operators, which needs no user beside a server."""
    return connected(command, without=("state_dir",), may_be_operator=True)


def perhaps_visiting(command: Callable[..., None]) -> Callable[..., None]:
    """Apply :func:`visiting` to a command that logs in itself, where it needs a server at all."""
    return connected(command, without=("state_dir",), logs_in=False)


def visiting_all(command: Callable[..., None]) -> Callable[..., None]:
    """Apply :func:`visiting` without ``--server``, for a command that asks all servers of a domain.

    It logs in at each server itself.
    """
    return connected(command, without=("state_dir", "server"), logs_in=False)


def connected(
    command: Callable[..., None],
    *,
    without: Sequence[str] = (),
    may_be_operator: bool = False,
    logs_in: bool = True,
) -> Callable[..., None]:
    """Replace the parameter ``connection`` of ``command`` by the connection options, and log in beside a server."""
    types = get_type_hints(ConnectionOptions, include_extras=True)
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in _options()
        if each.name not in without
    ]

    @functools.wraps(command)
    def connecting(**given: Any) -> None:
        connection = ConnectionOptions(**{option.name: given.pop(option.name) for option in options})
        log_to_stderr(verbose=connection.verbose)
        if logs_in:
            connection = connection.logged_in(may_be_operator=may_be_operator)
        command(**given, connection=connection)

    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    place = next(index for index, parameter in enumerate(parameters) if parameter.name == "connection")
    parameters[place : place + 1] = options
    connecting.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return connecting
