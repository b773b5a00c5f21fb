"""``wanderbus.connect``: from what a program knows to an agent that can be opened.

The scheme of the URI says which system it is: ``sip:`` and ``sips:`` name a user, who may move; ``eci:`` names the
broker alone, since to the original ECI a user is an address (SPEC A-09, A-10).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from wanderbus.agent.messages import AgentProperties
from wanderbus.api.agent import Agent
from wanderbus.api.ends import BaselineEnd, MobileEnd
from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.event import Position
from wanderbus.rudp import RudpConfig
from wanderbus.runtime.ambient import SystemRandom
from wanderbus.runtime.device import default_state_dir
from wanderbus.runtime.names import name_in, resolve
from wanderbus.runtime.tls import client_tls
from wanderbus.sip.targets import PORTS, TRANSPORTS, Transport
from wanderbus.sip.uri import canonical_uri
from wanderbus.tcp import TcpConfig

_ECI_SCHEME: Final = "eci://"


def connect(
    uri: str,
    *,
    password: str | None = None,
    server: str = "127.0.0.1",
    transport: Literal["udp", "tcp", "tls"] | None = None,
    ca_file: Path | str | None = None,
    broker: str | None = None,
    encryption: bool = True,
    data_transport: Literal["udp", "tcp"] = "udp",
    rudp: RudpConfig | None = None,
    tcp_channels: TcpConfig | None = None,
    session: str = "default",
    state_dir: Path | str | None = None,
    resume: Position | None = None,
    keep: bool = True,
    local_address: str | None = None,
    connect_s_max: float = 10.0,
) -> Agent:
    """Return an agent for the user ``uri``, to be opened with ``async with``.

    With ``eci://host:port`` it is one of the original ECI, known by its address: plain UDP without authentication,
    encryption or repetition, to a server that serves it there. A move makes it somebody else, and what is lost is
    lost. Of the other parameters only the last three have a meaning then; those that promise more are refused.

    :param uri: the user, ``sip:name@domain`` or ``name@domain``; ``sips:name@domain`` asks for TLS
    :param password: proves to the server who we are, and in both directions whose keys the data channel has
    :param server: the home SIP server, ``host`` or ``host:port``; port 5060 unless given, 5061 for TLS
    :param transport: what signalling goes over, ``udp`` unless given; with ``tls`` none of it is sent in the clear
    :param ca_file: PEM file of the authorities that may vouch for the server; those of the system unless given
    :param broker: URI of the broker; ``sip:broker@domain`` of the user's domain unless given
    :param encryption: False sends events in the clear, to a broker that was told so too (SPEC U-05)
    :param data_transport: what events go over, ``udp`` (reliable UDP) or ``tcp`` (SPEC F-01)
    :param rudp: parameters of reliable UDP; sizes have to be those of the server
    :param tcp_channels: parameters of a data channel over TCP; the same holds
    :param session: name of the broker session to join; agents of one user share it (SPEC J-05)
    :param state_dir: where this device keeps its identity; below the user's state directory unless given
    :param resume: the last position that the application has committed with its results (DESIGN 5.5)
    :param keep: False discards the subscriptions and the queue that the session has (SPEC G-09)
    :param local_address: use this local IP address; the one that routes to the server is followed unless given
    :param connect_s_max: opening gives up after this time
    :raises ConfigurationError: a URI or an address that cannot be read, or a parameter that cannot be kept to
    """
    if uri.lower().startswith(_ECI_SCHEME):
        named, over_tcp = session != "default" or None, data_transport != "udp" or None
        _check_promises(password=password, transport=transport, ca_file=ca_file, broker=broker, session=named)
        _check_promises(resume=resume, data_transport=over_tcp, rudp=rudp, tcp_channels=tcp_channels)
        return Agent(_baseline_end(uri, keep=keep, local_address=local_address), connect_s_max=connect_s_max)
    user, broker_uri = _uris(uri, broker)
    over = _transport(uri, transport)
    properties = AgentProperties(
        uri=user,
        server=resolve(server, default_port=PORTS[over]),
        transport=over,
        server_name=name_in(server) if over == "TLS" else None,
        broker=broker_uri,
        device="",
        epoch=_fresh_epoch(),
        password=password,
        encryption=encryption,
        data_transport=_data_transport(data_transport),
        session=session,
        resume=resume,
        keep=keep,
    )
    directory = default_state_dir(user) if state_dir is None else Path(state_dir)
    tls = client_tls(None if ca_file is None else Path(ca_file)) if over == "TLS" else None
    end = MobileEnd(properties, rudp, tcp_channels, state_dir=directory, local_address=local_address, tls=tls)
    return Agent(end, connect_s_max=connect_s_max)


def _uris(user: str, broker: str | None) -> tuple[str, str]:
    try:
        canonical = canonical_uri(user)
        return canonical, canonical_uri(broker) if broker else f"sip:broker@{canonical.partition('@')[2]}"
    except SIPParseError as error:
        raise ConfigurationError(f"{error}; write sip:name@domain") from None


def _data_transport(wanted: str) -> Literal["UDP", "TCP"]:
    if wanted not in ("udp", "tcp"):
        raise ConfigurationError(f"{wanted!r} is no transport of the data channel; use udp or tcp")
    return "UDP" if wanted == "udp" else "TCP"


def _check_promises(**given: object) -> None:
    """Raise :class:`ConfigurationError` for what the original ECI cannot keep: its caller counts on it."""
    if names := [name for name, value in given.items() if value is not None]:
        raise ConfigurationError(f"original ECI ({_ECI_SCHEME}) has no {' and no '.join(names)}; leave that out")


def _baseline_end(uri: str, *, keep: bool, local_address: str | None) -> BaselineEnd:
    properties = AgentProperties(
        uri=uri,
        server=resolve(uri[len(_ECI_SCHEME) :], default_port=0),
        broker=uri,
        device="",
        epoch=_fresh_epoch(),
        keep=keep,
    )
    return BaselineEnd(properties, local_address=local_address)


def _fresh_epoch() -> int:
    """Return a name for this life of an agent."""
    return int.from_bytes(SystemRandom().token(7), "big")


def _transport(uri: str, wanted: str | None) -> Transport:
    """Return the transport for ``uri``; :class:`ConfigurationError` for one that is unknown, or less than it asks."""
    secure = uri.strip().lower().startswith("sips:")
    over = TRANSPORTS.get(wanted or ("tls" if secure else "udp"))
    if over is None:
        raise ConfigurationError(f"{wanted!r} is no transport; use udp, tcp or tls")
    if secure and over != "TLS":
        raise ConfigurationError(f"{uri} asks for TLS, so the transport cannot be {wanted}")
    return over
