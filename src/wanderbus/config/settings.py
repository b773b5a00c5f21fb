"""The settings of a server and of an agent: one struct each, whose fields are the keys of its file.

A field that is a struct is a table of the file. Its default None stands for the struct's own defaults, so that no
default is said twice; the same is true of what an agent's machine defines (:class:`AgentProperties`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec

from wanderbus.client.machine.messages import AgentProperties
from wanderbus.client.machine.path_choice import Way
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.relay import RelayLimits
from wanderbus.parameters.streams import DataStreamLimits, StreamLimits
from wanderbus.rudp import RudpConfig
from wanderbus.sip.authentication.login_guard import LoginLimits
from wanderbus.sip.transaction.flood_limits import FloodLimits
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
    """What signalling goes over, ``udp`` unless given; with ``tls`` none of it is sent in the clear (SPEC C-11). For a
    broker of another domain it is ``tls`` unless given, and cannot be less (SPEC D-13)."""

    ca_file: Path | None = None
    """PEM file of the authorities that may vouch for the server; those of the system unless given."""

    broker: str | None = None
    """URI of the broker, which may be of another domain (SPEC D-13); ``sip:broker@domain`` of the user's domain unless
    given."""

    encryption: bool = _AGENT.encryption

    data_transport: Literal["auto", "udp", "tcp"] = "auto"
    """What events go over: ``udp`` (reliable UDP), ``tcp``, or ``auto``, which takes TCP where UDP does not arrive
    (SPEC F-01, I-08)."""

    data_ways: tuple[Way, ...] = _AGENT.data_ways
    """The ways that events may take, in the order in which they are tried: ``udp``, ``udp-relay``, ``tcp``,
    ``tcp-relay``; one that is left out is never taken (SPEC I-08)."""

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

    offline: bool = False
    """Whether opening returns at once, the server being reached or not, so that ``publish(outbox=True)`` stores events
    from the start. ``agent.connected()`` then waits for the server, and says why it refuses."""

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

    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = _AGENT.digest_algorithms

    untaken_bytes_max: int = _AGENT.untaken_bytes_max

    strangers_per_s: float = _AGENT.strangers_per_s

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


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a media relay may be told."""

    address: str | None = None
    """The IP address that streams pass; what both sides are told, and have to reach (SPEC I-01). In a server its
    ``host`` unless given, else 127.0.0.1."""

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


class DomainsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Other home domains, as registrar and proxy see them."""

    routes: Mapping[str, tuple[str, ...]] = {}
    """Servers of a domain, ``address``, ``address:port`` or ``address:port;transport=tcp`` with an IP address each; TLS
    at port 5061 unless said otherwise, and ``udp`` or ``tcp`` without any protection. The others are tried where one
    does not answer (SPEC D-13)."""

    lookup: bool = True
    """Whether domains without a route are looked up in the DNS, for servers over TLS (RFC 3263 4)."""

    name_servers: tuple[str, ...] = ()
    """Name servers to ask, ``address`` or ``address:port``; those of the system unless given."""

    trusted: tuple[str, ...] = ()
    """Domains whose servers may assert their users to us, and ours are asserted to (RFC 3325); over TLS alone."""

    ca_file: Path | None = None
    """PEM file of the authorities that may vouch for servers of other domains; those of the system unless given."""


class ExtensionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Code of the operator that runs in the broker, each ``module:object``; docs/extending.md says what it may do."""

    restrictions: Mapping[str, str] = {}
    """Kinds of restriction by their names, each a ``Kind`` (SPEC H-10)."""

    queue_policies: Mapping[str, str] = {}
    """Queue policies by their names, each a function (SPEC G-23)."""

    disconnection: str | None = None
    """A function that decides what happens when a device disconnects, reconnects or leaves (SPEC G-24)."""


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a registrar and proxy may be told, alone or as a part of a server."""

    domain: str
    """The SIP domain served; users are ``sip:name@domain``, the broker is ``sip:broker@domain``."""

    users: Path | Mapping[str, str]
    """Names and passwords: a table, or a file of ``name:password`` lines. Where the broker is in another process than
    the registrar, one of them is the broker's own."""

    data_dir: Path
    """Where log, state, registrations and keys live; created if need be, one server at a time."""

    host: str = "127.0.0.1"
    """The IP address to listen on, one that agents can reach."""

    advertise: str | None = None
    """The IP address that others are told in place of ``host``, where that one stands before this host and all of its
    ports lead here, as in clouds. Agents have to reach it, this host need not."""

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

    sip_trace: Path | None = None
    """A file for every SIP message sent and received, without secrets and bounded in size."""

    relays: tuple[str, ...] = ()
    """Media relays elsewhere, each ``host:port`` where it takes the commands of proxies (ng), ours or rtpengine; port
    2223 unless given (SPEC I-05)."""

    relay_calls: Literal["nat", "all"] = "nat"
    """What passes a media relay: with ``nat`` calls with a side behind NAT, and those whose agent asks for a relay
    because a firewall drops its events; or ``all`` (SPEC I-02, I-08). Without a relay none does."""

    stay_on_path: bool = False
    """Whether the proxy stays on the path of every call; else only where it has to, as where a side is behind NAT or a
    relay may be needed, and calls go past it (SPEC D-09). Most telephones need it over TCP and TLS."""

    edge_proxies: tuple[str, ...] = ()
    """The IP addresses of SIP proxies between users and this server. Devices that register through these are called at
    the Contact that they name; all others at the address that their REGISTER came from, whatever they name."""

    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = ("SHA-256", "MD5")
    """The digests that users may prove themselves by, best first, to the registrar and to the broker; with a
    ``sip_server`` also those that the broker proves itself by. A few telephones register with ``["MD5"]`` alone."""

    flood: FloodLimits | None = None
    """How many requests one source may send to registrar and proxy, and as many to the broker (SPEC C-20)."""

    logins: LoginLimits | None = None
    """How often wrong passwords may be tried, at registrar and proxy, and as often at the broker (SPEC C-20)."""

    sip_connections: StreamLimits | None = None
    """TCP and TLS connections of SIP, of registrar and proxy, and as many of the broker (SPEC U Taste)."""

    relay: RelaySettings | None = None
    """A media relay in the same process, in place of ``relays``; there is one if this table is there, be it empty."""

    domains: DomainsSettings | None = None
    """Other domains, which users may call if this table is there, be it empty; ``tls_certificate`` has to name
    ``domain`` then (SPEC D-13)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(domain={self.domain!r}, ...)"


class ServerSettings(ProxySettings, frozen=True, kw_only=True):
    """What a server may be told."""

    sip_server: str | None = None
    """Registrar and proxy elsewhere, ``sip:host:port``, ``sip:host:port;transport=tcp`` or ``sips:host:port``: the
    broker is a user agent there, and here is neither (DESIGN 6.4). ``host`` is then where the broker is."""

    broker_user: str = "broker"
    """The user that the broker is."""

    broker_password: str | None = None
    """Its password at ``sip_server``; the one in ``users`` unless given."""

    broker_password_file: Path | None = None
    """A file with that password on its first line, in place of ``broker_password``."""

    ca_file: Path | None = None
    """PEM file of the authorities that may vouch for ``sip_server``; those of the system unless given."""

    user_domains: tuple[str, ...] = ()
    """Other domains whose users may use the broker. The proxy has to vouch for them: in this process the domain is in
    ``domains.trusted``, and ``sip_server`` has to be reached over TLS and to believe that domain (SPEC D-13)."""

    broker_port: Port | None = None
    """UDP port where the broker is called, past the proxy; unless given a free one, taken at the first start and kept.
    Where ``sip_server`` is reached over TCP, the TCP port of that number too."""

    data_port: Port | None = None
    """UDP port of events over reliable UDP; so too."""

    stream_port: Port | None = None
    """TCP port of events over TCP; so too."""

    disk_reserve_bytes: int = 64 * 2**20
    """With less free space than this, new events and subscriptions are refused (``disk_full``), so that what devices
    take and what they leave can still be written."""

    encryption: bool = True
    """Whether events travel encrypted; agents have to be told the same (SPEC U-05)."""

    eci_port: Port | None = None
    """UDP port where the original ECI is served, without any authentication; none unless given, 0 takes a free one
    (SPEC A-09)."""

    eci_host: str = "127.0.0.1"
    """The IP address of that; loopback unless given, wherever ``host`` is."""

    broker: BrokerConfig | None = None
    """Bounds of the broker; a refusal or a counted drop names the key of this table that was met (SPEC G-15, U-02)."""

    rudp: RudpConfig | None = None
    """Parameters of reliable UDP; agents should have the same ``datagram_bytes_max`` and ``message_bytes_max`` (SPEC
    F-10)."""

    tcp_channels: TcpConfig | None = None
    """Parameters of data channels over TCP; so too with ``message_bytes_max``."""

    data_connections: DataStreamLimits | None = None
    """TCP connections of data channels."""

    eci: BaselineConfig | None = None
    """Bounds of the original ECI."""

    extensions: ExtensionSettings | None = None
    """Code of the operator that runs in the broker."""


class AgentArguments(TypedDict, total=False):
    """The same as keyword arguments, ``uri`` apart; see :class:`AgentSettings` for what they mean."""

    password: str | None
    password_file: Path | str | None
    server: str
    transport: Literal["udp", "tcp", "tls"] | None
    ca_file: Path | str | None
    broker: str | None
    encryption: bool
    data_transport: Literal["auto", "udp", "tcp"]
    data_ways: tuple[Way, ...]
    session: str
    state_dir: Path | str | None
    keep: bool
    keep_queue: bool
    on_ended: Literal["ignore", "renew", "resubmit"]
    outbox_file: Path | str | None
    offline: bool
    outbox_events_max: int
    outbox_bytes_max: int
    publish_per_s: float | None
    local_address: str | None
    connect_s_max: float
    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...]
    untaken_bytes_max: int
    strangers_per_s: float
    register_expires_s: int
    keepalive_s: float
    probe_s: float
    heal_s: float
    heal_s_max: float
    drain_s: float
    answer_s_max: float
    rudp: RudpConfig | None
    tcp_channels: TcpConfig | None


class ProxyArguments(TypedDict, total=False):
    """The same as keyword arguments; see :class:`ProxySettings` for what they mean."""

    domain: str
    users: Path | str | Mapping[str, str]
    data_dir: Path | str
    host: str
    advertise: str | None
    port: int
    tcp: bool
    tls_certificate: Path | str | None
    tls_key: Path | str | None
    tls_port: int | None
    sip_trace: Path | str | None
    relays: tuple[str, ...]
    relay_calls: Literal["nat", "all"]
    stay_on_path: bool
    edge_proxies: tuple[str, ...]
    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...]
    flood: FloodLimits | None
    logins: LoginLimits | None
    sip_connections: StreamLimits | None
    relay: RelaySettings | None
    domains: DomainsSettings | None


class ServerArguments(ProxyArguments, total=False):
    """The same as keyword arguments; see :class:`ServerSettings` for what they mean."""

    sip_server: str | None
    broker_user: str
    broker_password: str | None
    broker_password_file: Path | str | None
    ca_file: Path | str | None
    user_domains: tuple[str, ...]
    broker_port: int | None
    data_port: int | None
    stream_port: int | None
    disk_reserve_bytes: int
    encryption: bool
    eci_port: int | None
    eci_host: str
    broker: BrokerConfig | None
    rudp: RudpConfig | None
    tcp_channels: TcpConfig | None
    data_connections: DataStreamLimits | None
    eci: BaselineConfig | None
    extensions: ExtensionSettings | None


OPTIONAL: Final = frozenset({"relay", "domains"})
"""Tables that are a thing in itself: without the table there is no such thing."""

SECRETS: Final = frozenset({"password", "broker_password", "users"})
"""Keys whose values are never shown."""

_OWN: Final = {"consume_at_once", "ack_delay_s", "keepalive_s"}
_OF_NG: Final = {"ng_listen", "ng_from"}

NO_KEYS: Final[Mapping[tuple[Any, str], set[str]]] = {
    (AgentSettings, "rudp"): _OWN,
    (AgentSettings, "tcp_channels"): _OWN,
    (ServerSettings, "rudp"): {"consume_at_once", "ack_delay_s"},
    (ServerSettings, "tcp_channels"): {"consume_at_once"},
    (ServerSettings, "broker"): {"server", "domain"},
    (ServerSettings, "relay"): _OF_NG,
    (ProxySettings, "relay"): _OF_NG,
}
"""Fields of a table that are the program's to say: how it consumes and acknowledges, what ``keepalive_s`` above says
of both transports, the server's name, which belongs to its log, its domain, and how a proxy commands the relay beside
it."""
