"""The settings of a server and of an agent: one struct each, whose fields are the keys of its file.

A field that is a struct is a table of the file. Its default None stands for the struct's own defaults, so that no
default is said twice; the same is true of what an agent's machine defines (:class:`AgentProperties`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec

from wanderbus.agent.messages import AgentProperties
from wanderbus.broker.config import BrokerConfig
from wanderbus.domain.baseline import BaselineConfig
from wanderbus.relay import RelayLimits
from wanderbus.rudp import RudpConfig
from wanderbus.sip.flood import FloodLimits
from wanderbus.tcp import TcpConfig

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]

_AGENT: Final = AgentProperties(uri="", server=("", 0), broker="", device="", epoch=0)
"""An agent of whom nothing is said that need not be."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may be told; a field without a docstring is one of :class:`AgentProperties`."""

    uri: str
    """The user, ``sip:name@domain`` or ``name@domain``; ``sips:name@domain`` asks for TLS. With ``eci://host:port`` it
    is the original ECI, where nothing that promises more can be set (SPEC A-09)."""

    password: str | None = None
    """Proves to the server who we are, and in both directions whose keys the data channel has; the environment's
    WANDERBUS_PASSWORD comes before it."""

    password_file: Path | None = None
    """A file with the password on its first line, in place of ``password``."""

    server: str = "127.0.0.1"
    """The home SIP server, ``host`` or ``host:port``; port 5060 unless given, 5061 for TLS."""

    transport: Literal["udp", "tcp", "tls"] | None = None
    """What signalling goes over, ``udp`` unless given; with ``tls`` none of it is sent in the clear (SPEC C-11)."""

    ca_file: Path | None = None
    """PEM file of the authorities that may vouch for the server; those of the system unless given."""

    broker: str | None = None
    """URI of the broker; ``sip:broker@domain`` of the user's domain unless given."""

    encryption: bool = _AGENT.encryption

    data_transport: Literal["udp", "tcp"] = "udp"
    """What events go over, ``udp`` (reliable UDP) or ``tcp`` (SPEC F-01)."""

    session: str = _AGENT.session
    """Name of the broker session to join; agents of one user share it (SPEC J-05)."""

    state_dir: Path | None = None
    """Where this device keeps its identity; below the user's state directory unless given."""

    keep: bool = _AGENT.keep
    """False ends the subscriptions that the session has, but for those bound to other devices, and drops what waits
    for this device (SPEC G-09)."""

    keep_queue: bool = _AGENT.keep_queue

    on_ended: Literal["ignore", "renew", "resubmit"] = _AGENT.on_ended

    outbox_file: Path | None = None
    """The outbox, and with it a device of its own, whose identity is kept beside it; in ``state_dir``, as the device
    there, unless given (SPEC G-20)."""

    outbox_events_max: int = 10_000
    """Events that may wait in the outbox of this device (SPEC G-20)."""

    outbox_bytes_max: int = 16 * 2**20
    """Bytes of them."""

    publish_per_s: float | None = None
    """Events that are published a second at most; any number unless given (SPEC G-22)."""

    local_address: str | None = None
    """Use this local IP address for signalling and events; the one that routes to the server is followed unless
    given (SPEC D-05)."""

    connect_s_max: float = 10.0
    """Opening gives up after this time."""

    register_expires_s: int = _AGENT.register_expires_s

    keepalive_s: float = _AGENT.keepalive_s

    probe_s: float = _AGENT.probe_s

    heal_s: float = _AGENT.heal_s

    heal_s_max: float = _AGENT.heal_s_max

    drain_s: float = _AGENT.drain_s

    answer_s_max: float = _AGENT.answer_s_max

    rudp: RudpConfig | None = None
    """Parameters of reliable UDP; sizes have to be those of the server (SPEC F-10)."""

    tcp_channels: TcpConfig | None = None
    """Parameters of a data channel over TCP; the same holds."""

    def __repr__(self) -> str:
        return f"AgentSettings(uri={self.uri!r}, ...)"


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server may be told."""

    domain: str
    """The SIP domain served; users are ``sip:name@domain``, the broker is ``sip:broker@domain``."""

    users: Path | Mapping[str, str]
    """Names and passwords: a table, or a file of ``name:password`` lines."""

    data_dir: Path
    """Where log and state live; created if need be, one server at a time."""

    disk_reserve_bytes: int = 64 * 2**20
    """With less free space than this, new events and subscriptions are refused (``disk_full``), so that what devices
    take and what they leave can still be written."""

    host: str = "127.0.0.1"
    """The IP address to listen on, one that agents can reach."""

    port: Port = 5060
    """UDP and TCP port of registrar and proxy; 0 takes a free one."""

    tcp: bool = True
    """Whether SIP is served over TCP besides UDP."""

    tls_certificate: Path | None = None
    """A PEM file with the server's certificate chain; without it TLS is not served."""

    tls_key: Path | None = None
    """A PEM file with its key; the file of the certificate unless given."""

    tls_port: Port | None = None
    """TCP port of TLS; one above ``port`` unless given, 0 takes a free one."""

    encryption: bool = True
    """Whether events travel encrypted; agents have to be told the same (SPEC U-05)."""

    eci_port: Port | None = None
    """UDP port where the original ECI is served, without any authentication; none unless given, 0 takes a free one
    (SPEC A-09)."""

    eci_host: str = "127.0.0.1"
    """The IP address of that; loopback unless given, wherever ``host`` is."""

    sip_trace: Path | None = None
    """A file for every SIP message sent and received, without secrets and bounded in size."""

    broker: BrokerConfig | None = None
    """Bounds of the broker; a refusal or a counted drop names the key of this table that was met (SPEC G-15, U-02)."""

    rudp: RudpConfig | None = None
    """Parameters of reliable UDP; agents should have the same ``datagram_bytes_max`` and ``message_bytes_max`` (SPEC
    F-10)."""

    tcp_channels: TcpConfig | None = None
    """Parameters of data channels over TCP; so too with ``message_bytes_max``."""

    eci: BaselineConfig | None = None
    """Bounds of the original ECI."""

    flood: FloodLimits | None = None
    """How many requests one source may send to registrar and proxy (SPEC C-20)."""

    def __repr__(self) -> str:
        return f"ServerSettings(domain={self.domain!r}, ...)"


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a media relay may be told."""

    address: str = "127.0.0.1"
    """The IP address that streams pass; what both sides are told, and have to reach (SPEC I-01)."""

    advertise: str | None = None
    """The IP address that is told instead, where another stands before ``address``, as in clouds."""

    ports: str = "30000-39999"
    """The ports that may be handed out, first and last; a stream takes two, of UDP or TCP."""

    ng_listen: str = "127.0.0.1:2223"
    """Where proxies give their commands, ``host:port`` over UDP; port 0 takes a free one."""

    ng_from: tuple[str, ...] = ()
    """The IP addresses of these proxies. They must be given where ``ng_listen`` is not on loopback, since whoever may
    command a relay may open ports and have datagrams sent."""

    loopback_peers: bool = False
    """Whether a party may be at 127.0.0.1 or ::1 though ``address`` is not, as a broker on the same host (SPEC I-05).
    Otherwise such an address in a description is taken for a trick."""

    limits: RelayLimits | None = None
    """Bounds of the relay."""


class AgentArguments(TypedDict, total=False):
    """The same as keyword arguments, ``uri`` apart; see :class:`AgentSettings` for what they mean."""

    password: str | None
    password_file: Path | str | None
    server: str
    transport: Literal["udp", "tcp", "tls"] | None
    ca_file: Path | str | None
    broker: str | None
    encryption: bool
    data_transport: Literal["udp", "tcp"]
    session: str
    state_dir: Path | str | None
    keep: bool
    keep_queue: bool
    on_ended: Literal["ignore", "renew", "resubmit"]
    outbox_file: Path | str | None
    outbox_events_max: int
    outbox_bytes_max: int
    publish_per_s: float | None
    local_address: str | None
    connect_s_max: float
    register_expires_s: int
    keepalive_s: float
    probe_s: float
    heal_s: float
    heal_s_max: float
    drain_s: float
    answer_s_max: float
    rudp: RudpConfig | None
    tcp_channels: TcpConfig | None


class ServerArguments(TypedDict, total=False):
    """The same as keyword arguments; see :class:`ServerSettings` for what they mean."""

    domain: str
    users: Path | str | Mapping[str, str]
    data_dir: Path | str
    disk_reserve_bytes: int
    host: str
    port: int
    tcp: bool
    tls_certificate: Path | str | None
    tls_key: Path | str | None
    tls_port: int | None
    encryption: bool
    eci_port: int | None
    eci_host: str
    sip_trace: Path | str | None
    broker: BrokerConfig | None
    rudp: RudpConfig | None
    tcp_channels: TcpConfig | None
    eci: BaselineConfig | None
    flood: FloodLimits | None


SECRETS: Final = frozenset({"password", "users"})
"""Keys whose values are never shown."""

_OWN: Final = {"consume_at_once", "ack_delay_s", "keepalive_s"}

NO_KEYS: Final[Mapping[tuple[Any, str], set[str]]] = {
    (AgentSettings, "rudp"): _OWN,
    (AgentSettings, "tcp_channels"): _OWN,
    (ServerSettings, "rudp"): {"consume_at_once", "ack_delay_s"},
    (ServerSettings, "tcp_channels"): {"consume_at_once"},
    (ServerSettings, "broker"): {"server"},
}
"""Fields of a table that are the program's to say: how it consumes and acknowledges, what ``keepalive_s`` above says
of both transports, and the server's name, which belongs to its log."""
