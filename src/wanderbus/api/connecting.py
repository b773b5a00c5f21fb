"""``wanderbus.connect``: from what a program knows to an agent that can be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from wanderbus.agent.messages import AgentProperties
from wanderbus.api.agent import Agent
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.event import Position
from wanderbus.runtime.ambient import SystemRandom
from wanderbus.runtime.device import default_state_dir
from wanderbus.runtime.names import name_in, resolve
from wanderbus.runtime.tls import client_tls
from wanderbus.sip.targets import PORTS, TRANSPORTS, Transport
from wanderbus.sip.uri import canonical_uri


def connect(
    uri: str,
    *,
    password: str | None = None,
    server: str = "127.0.0.1",
    transport: Literal["udp", "tcp", "tls"] | None = None,
    ca_file: Path | str | None = None,
    broker: str | None = None,
    session: str = "default",
    state_dir: Path | str | None = None,
    resume: Position | None = None,
    keep: bool = True,
    local_address: str | None = None,
    connect_s_max: float = 10.0,
) -> Agent:
    """Return an agent for the user ``uri``, to be opened with ``async with``.

    :param uri: the user, ``sip:name@domain`` or ``name@domain``; ``sips:name@domain`` asks for TLS
    :param server: the home SIP server, ``host`` or ``host:port``; port 5060 unless given, 5061 for TLS
    :param transport: what signalling goes over, ``udp`` unless given; with ``tls`` none of it is sent in the clear
    :param ca_file: PEM file of the authorities that may vouch for the server; those of the system unless given
    :param broker: URI of the broker; ``sip:broker@domain`` of the user's domain unless given
    :param session: name of the broker session to join; agents of one user share it (SPEC J-05)
    :param state_dir: where this device keeps its identity; below the user's state directory unless given
    :param resume: the last position that the application has committed with its results (DESIGN 5.5)
    :param keep: False discards the subscriptions and the queue that the session has (SPEC G-09)
    :param local_address: use this local IP address; the one that routes to the server is followed unless given
    :param connect_s_max: opening gives up after this time
    :raises ConfigurationError: a URI or an address that cannot be read
    """
    try:
        user = canonical_uri(uri)
        broker_uri = canonical_uri(broker) if broker else f"sip:broker@{user.partition('@')[2]}"
    except SIPParseError as error:
        raise ConfigurationError(f"{error}; write sip:name@domain") from None
    over = _transport(uri, transport)
    properties = AgentProperties(
        uri=user,
        server=resolve(server, default_port=PORTS[over]),
        transport=over,
        server_name=name_in(server) if over == "TLS" else None,
        broker=broker_uri,
        device="",
        epoch=int.from_bytes(SystemRandom().token(7), "big"),
        password=password,
        session=session,
        resume=resume,
        keep=keep,
    )
    directory = default_state_dir(user) if state_dir is None else Path(state_dir)
    tls = client_tls(None if ca_file is None else Path(ca_file)) if over == "TLS" else None
    return Agent(properties, state_dir=directory, local_address=local_address, connect_s_max=connect_s_max, tls=tls)


def _transport(uri: str, wanted: str | None) -> Transport:
    """Return the transport for ``uri``; :class:`ConfigurationError` for one that is unknown, or less than it asks."""
    secure = uri.strip().lower().startswith("sips:")
    over = TRANSPORTS.get(wanted or ("tls" if secure else "udp"))
    if over is None:
        raise ConfigurationError(f"{wanted!r} is no transport; use udp, tcp or tls")
    if secure and over != "TLS":
        raise ConfigurationError(f"{uri} asks for TLS, so the transport cannot be {wanted}")
    return over
