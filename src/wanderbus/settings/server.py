"""Settings of servers, proxies and relays: one struct each, whose fields are the keys of its file.

A field that is a struct is a table of the file. Its default None means the struct's own defaults, so that each default
is defined once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import msgspec

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.relay import RelayLimits
from wanderbus.parameters.signalling import FloodLimits, LoginLimits
from wanderbus.parameters.transports import (
    DataStreamLimits,
    LightLimits,
    PageLimits,
    RudpConfig,
    StreamLimits,
    TcpConfig,
)

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a media relay."""

    address: str | None = None
    """IP address of the relayed streams, advertised to both sides, which have to reach it (SPEC I-01). Unless given,
    ``host`` in a server, and 127.0.0.1 in a relay process."""

    advertise: str | None = None
    """IP address to advertise instead of ``address``, for a relay behind NAT, as in clouds."""

    ports: str = "30000-39999"
    """Range of ports for streams, first and last; a stream takes two, of UDP or TCP."""

    ng_listen: str = "127.0.0.1:2223"
    """Address for the commands of proxies, ``host:port`` over UDP; port 0 takes a free one."""

    ng_from: tuple[str, ...] = ()
    """IP addresses of these proxies. Required unless ``ng_listen`` is on loopback, since a sender of commands can open
    ports and cause datagrams to be sent."""

    loopback_peers: bool = False
    """Allow a party at 127.0.0.1 or ::1 even if ``address`` is not, such as a broker on the same host (SPEC I-05).
    Otherwise such an address in a description is rejected as forged."""

    limits: RelayLimits | None = None
    """Bounds of the relay."""


class DomainsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a registrar and proxy for other home domains."""

    routes: Mapping[str, tuple[str, ...]] = {}
    """Servers of a domain, each as ``address``, ``address:port`` or ``address:port;transport=tcp`` with an IP address.
    The default is TLS at port 5061; ``udp`` and ``tcp`` have no protection. If a server does not answer, the next one
    is tried (SPEC D-13)."""

    lookup: bool = True
    """Look up domains without a route in the DNS, for servers over TLS (RFC 3263 4)."""

    name_servers: tuple[str, ...] = ()
    """Name servers to query, ``address`` or ``address:port``; those of the system unless given."""

    trusted: tuple[str, ...] = ()
    """Domains whose servers may assert the identity of their users, and receive the asserted identity of ours (RFC
    3325); over TLS only."""

    ca_file: Path | None = None
    """PEM file of the certificate authorities to trust for servers of other domains; those of the system unless
    given."""


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the choice among several brokers that register under one name."""

    user: str | None = None
    """User name under which the brokers register; ``broker_user`` unless given, and ``broker`` in a process without a
    broker. Requests to any other user go to all devices of that user at once."""

    choice: Literal["hash", "least_loaded"] = "hash"
    """Choice of the broker for a new session: by ``hash`` of the caller's URI, so that all devices of a user reach the
    same broker; or ``least_loaded``, the one with the fewest calls from this proxy in the last minutes. If the broker
    does not answer, the next one is tried."""

    nearest: Mapping[str, str] = {}
    """Networks of callers, each with the ``address`` or ``address:port`` of the broker that serves them if it is
    registered. The smallest network counts."""


class ExtensionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's extensions of the broker, each ``module:object``; docs/extending.md describes their rules."""

    restrictions: Mapping[str, str] = {}
    """Kinds of restriction by their names, each a ``Kind`` (SPEC H-10)."""

    queue_policies: Mapping[str, str] = {}
    """Queue policies by their names, each a function (SPEC G-23)."""

    disconnection: str | None = None
    """A function that decides what happens when a device disconnects, reconnects or leaves (SPEC G-24)."""

    detector: str | None = None
    """A function that returns a failure detector for each data channel of a device (SPEC G-26)."""


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a registrar and proxy, in a process of its own or as a part of a server."""

    domain: str
    """SIP domain to serve; users are ``sip:name@domain``, the broker is ``sip:broker@domain``."""

    users: Path | Mapping[str, str]
    """Names and passwords: a table, or a file of ``name:password`` lines. If the broker is not in the registrar's
    process, one of them is the broker's own."""

    data_dir: Path
    """Directory of log, state, registrations and keys; created if missing, used by one server at a time."""

    host: str = "127.0.0.1"
    """IP address to listen on; agents have to reach it."""

    advertise: str | None = None
    """IP address to advertise instead of ``host``, for a host behind NAT that forwards all ports, as in clouds. Agents
    have to reach it; this host need not."""

    port: Port = 5060
    """UDP and TCP port of registrar and proxy; 0 takes a free one."""

    tcp: bool = True
    """Serve SIP over TCP as well as UDP."""

    tls_certificate: Path | None = None
    """PEM file with the server's certificate chain; without it TLS is not served."""

    tls_key: Path | None = None
    """PEM file with the certificate's key; the file of the certificate unless given."""

    tls_port: Port | None = None
    """TCP port of TLS; one above ``port`` unless given, 0 takes a free one."""

    http: str | None = None
    """Address of the pages for monitoring, ``host:port``: ``/metrics``, ``/healthz`` and ``/readyz``. Port 0 takes a
    free one; none are served unless given. On loopback everybody may read them. Elsewhere they need
    ``tls_certificate``, and the metrics name and password of a user with the role of operator (SPEC U-08)."""

    sip_trace: Path | None = None
    """File for every SIP message sent and received, without secrets and bounded in size."""

    relays: tuple[str, ...] = ()
    """External media relays, each ``host:port`` of its ng control port, our relay or rtpengine; port 2223 unless given
    (SPEC I-05)."""

    relay_calls: Literal["nat", "all"] = "nat"
    """Calls that pass a media relay: ``nat``, those with a side behind NAT or whose agent requests a relay because a
    firewall drops its events; or ``all`` (SPEC I-02, I-08). Without a relay, none."""

    stay_on_path: bool = False
    """Keep the proxy on the path of every call. Otherwise it stays only where it has to, for example if a side is
    behind NAT or a relay may be needed; other calls bypass it (SPEC D-09). Most telephones need true over TCP and
    TLS."""

    edge_proxies: tuple[str, ...] = ()
    """IP addresses of SIP proxies between users and this server. Devices that register through these are called at
    their Contact; all others at the source address of their REGISTER, whatever their Contact."""

    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = ("SHA-256", "MD5")
    """Digests that users may authenticate with, best first, at the registrar and at the broker; with ``sip_server``
    also those that the broker itself may use. A few telephones register only with ``["MD5"]``."""

    flood: FloodLimits | None = None
    """Rate limits of requests from one source, for registrar and proxy, and again for the broker (SPEC C-20)."""

    logins: LoginLimits | None = None
    """Limits of wrong passwords, at registrar and proxy, and again at the broker (SPEC C-20)."""

    sip_connections: StreamLimits | None = None
    """Limits of SIP connections over TCP and TLS, of registrar and proxy, and again of the broker (SPEC U Taste)."""

    http_connections: PageLimits | None = None
    """Limits of connections to the pages of ``http``."""

    relay: RelaySettings | None = None
    """Media relay in the same process, instead of ``relays``; it runs if this table exists, even if empty."""

    domains: DomainsSettings | None = None
    """Other domains, which users may call if this table exists, even if empty; ``tls_certificate`` then has to be valid
    for ``domain`` (SPEC D-13)."""

    access: AccessSettings | None = None
    """Choice among several brokers that register under one name (SPEC J-01)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(domain={self.domain!r}, ...)"


class ServerSettings(ProxySettings, frozen=True, kw_only=True):
    """Settings of a server."""

    sip_server: str | None = None
    """External registrar and proxy, ``sip:host:port``, ``sip:host:port;transport=tcp`` or ``sips:host:port``: the
    broker registers there, and this process runs neither (DESIGN 6.4). ``host`` is then the address of the broker."""

    broker_user: str = "broker"
    """User name of the broker."""

    broker_password: str | None = None
    """Password of the broker at ``sip_server``; the one in ``users`` unless given. Without ``sip_server``, the password
    with which other brokers of an event domain register here; none can unless given."""

    broker_password_file: Path | None = None
    """File with that password on its first line, instead of ``broker_password``."""

    ca_file: Path | None = None
    """PEM file of the certificate authorities to trust for ``sip_server``; those of the system unless given."""

    user_domains: tuple[str, ...] = ()
    """Other domains whose users may use the broker. The proxy has to assert their identity: in this process,
    ``domains.trusted`` has to contain the domain; a ``sip_server`` has to be reached over TLS and to trust the domain
    (SPEC D-13)."""

    broker_port: Port | None = None
    """UDP port of the broker's SIP, for requests that bypass the proxy. Unless given, the first start chooses a free
    port, which is kept. If ``sip_server`` is reached over TCP, also the TCP port."""

    data_port: Port | None = None
    """UDP port of events over reliable UDP; chosen like ``broker_port`` unless given."""

    stream_port: Port | None = None
    """TCP port of events over TCP; chosen like ``broker_port`` unless given."""

    disk_reserve_bytes: int = 64 * 2**20
    """Reserve of free disk space. With less, new events and subscriptions are refused (``disk_full``), so that
    acknowledgements and departures of devices can still be written."""

    log_keep_s: float | None = None
    """Age up to which records are kept in the event log. Older ones are removed when nobody needs them any more and
    ``log_keep_bytes`` allows it. Every record is kept if neither of the two is given (SPEC T-01)."""

    log_keep_bytes: int | None = None
    """Size of the event log down to which nothing is removed, whatever its age. Together with ``log_keep_s`` both have
    to be exceeded; 0 removes everything that nobody needs."""

    encryption: bool = True
    """Encrypt events; agents need the same setting (SPEC U-05)."""

    eci_port: Port | None = None
    """UDP port of the original ECI, without any authentication; not served unless given, 0 takes a free port (SPEC
    A-09)."""

    eci_host: str = "127.0.0.1"
    """IP address of ``eci_port``; loopback unless given, independent of ``host``."""

    light: str | None = None
    """Address for lightweight clients over TLS, ``host:port``; not served unless given. A port alone is on loopback; 0
    takes a free port (SPEC P-02)."""

    event_domain: Path | None = None
    """File of the event domain that this server belongs to, as ``wanderbus domain init`` writes it (SPEC J-01)."""

    event_server: str | None = None
    """Name of this server in ``event_domain``."""

    event_key: Path | None = None
    """File of its private key; ``keys/NAME.key`` beside ``event_domain`` unless given."""

    federation: Path | None = None
    """File of the federation, the same for all servers of the domain, as ``wanderbus federation init`` writes it; the
    domain shares no events with other domains unless given (SPEC S-01)."""

    federation_gateway: str | None = None
    """Name of this server among the ``gateways`` of ``federation``, that of ``event_server`` if there is one; unless
    given, this server has no links to other domains."""

    federation_key: Path | None = None
    """File of the private key of the domain, for a gateway; that beside ``federation`` unless given, with its name and
    the suffix ``.key``."""

    broker: BrokerConfig | None = None
    """Bounds of the broker; a refusal or a counted discard names the key of the bound (SPEC G-15, U-02)."""

    engine: Literal["broker", "spark"] = "broker"
    """With ``spark``, the server starts and supervises the matching engine on Spark, for the subjects of
    ``broker.spark_subjects``, or for all if that is empty; it needs the extra ``pipeline``. With ``broker``, these
    subjects wait for an engine that was started apart, by ``wanderbus pipeline engine`` (SPEC T-06)."""

    rudp: RudpConfig | None = None
    """Parameters of reliable UDP; agents should have the same ``datagram_bytes_max`` and ``message_bytes_max`` (SPEC
    F-10)."""

    tcp_channels: TcpConfig | None = None
    """Parameters of data channels over TCP; agents should have the same ``message_bytes_max``."""

    data_connections: DataStreamLimits | None = None
    """Limits of TCP connections of data channels."""

    light_connections: LightLimits | None = None
    """Limits of the connections of lightweight clients."""

    eci: BaselineConfig | None = None
    """Bounds of the original ECI."""

    extensions: ExtensionSettings | None = None
    """Extensions of the operator that run in the broker."""


class ProxyArguments(TypedDict, total=False):
    """Settings of a registrar and proxy as keyword arguments; :class:`ProxySettings` documents them."""

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
    http: str | None
    sip_trace: Path | str | None
    relays: tuple[str, ...]
    relay_calls: Literal["nat", "all"]
    stay_on_path: bool
    edge_proxies: tuple[str, ...]
    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...]
    flood: FloodLimits | None
    logins: LoginLimits | None
    sip_connections: StreamLimits | None
    http_connections: PageLimits | None
    relay: RelaySettings | None
    domains: DomainsSettings | None
    access: AccessSettings | None


class ServerArguments(ProxyArguments, total=False):
    """Settings of a server as keyword arguments; :class:`ServerSettings` documents them."""

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
    log_keep_s: float | None
    log_keep_bytes: int | None
    encryption: bool
    eci_port: int | None
    eci_host: str
    light: str | None
    event_domain: Path | str | None
    event_server: str | None
    event_key: Path | str | None
    federation: Path | str | None
    federation_gateway: str | None
    federation_key: Path | str | None
    broker: BrokerConfig | None
    engine: Literal["broker", "spark"]
    rudp: RudpConfig | None
    tcp_channels: TcpConfig | None
    data_connections: DataStreamLimits | None
    light_connections: LightLimits | None
    eci: BaselineConfig | None
    extensions: ExtensionSettings | None
