"""Settings of an agent: a struct whose fields are the keys of its file.

A field that is a struct is a table of the file. Its default None means the struct's own defaults, so that each default
is defined once; for the same reason the settings take defaults from :class:`AgentProperties`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypedDict

import msgspec

from wanderbus.client.machine.messages import AgentProperties, DataPathKind
from wanderbus.parameters.transports import RudpConfig, TcpConfig

CONFIG_VARIABLE: Final = "WANDERBUS_CONFIG"
"""Environment variable that names the settings file of an agent if nothing else does."""

_AGENT: Final = AgentProperties(uri="", server=("", 0), broker="", device="", epoch=0)
"""Source of the defaults that the agent's machine defines."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an agent; a field without a docstring has the one of :class:`AgentProperties`."""

    uri: str
    """The user, ``sip:name@domain`` or ``name@domain``; ``sips:name@domain`` requires TLS. With ``eci://host:port`` the
    agent speaks the original ECI, which rejects settings that it cannot provide (SPEC A-09)."""

    password: str | Mapping[str, str] | None = None
    """Password that authenticates the user to the server, and the keys of the data channel in both directions; the
    environment variable WANDERBUS_PASSWORD overrides it. In place of the password, a table of its digests in the user's
    domain (RFC 7616 HA1) by algorithm, ``sha-256`` and ``md5``, so that the device does not store the password."""

    password_file: Path | None = None
    """A file with the password on its first line, instead of ``password``."""

    server: str = "127.0.0.1"
    """The home SIP server, ``host`` or ``host:port``; port 5060 unless given, 5061 for TLS."""

    transport: Literal["udp", "tcp", "tls"] | None = None
    """Transport of SIP, ``udp`` unless given; ``tls`` encrypts all of it (SPEC C-11). A broker of another domain
    requires ``tls``, which is then the default (SPEC D-13)."""

    ca_file: Path | None = None
    """PEM file of the certificate authorities to trust for the server; those of the system unless given."""

    broker: str | None = None
    """URI of the broker, which may be of another domain (SPEC D-13); ``sip:broker@domain`` of the user's domain unless
    given."""

    encryption: bool = _AGENT.encryption

    data_transport: Literal["auto", "udp", "tcp"] = "auto"
    """Transport of events: ``udp`` (reliable UDP), ``tcp``, or ``auto``, which uses TCP only where UDP does not get
    through (SPEC F-01, I-08)."""

    data_paths: tuple[DataPathKind, ...] = _AGENT.data_paths
    """Paths that events may take, in the order in which they are tried: ``udp``, ``udp-relay``, ``tcp``,
    ``tcp-relay``; a path that is left out is never used (SPEC I-08)."""

    session: str = _AGENT.session
    """Name of the broker session to join; agents of one user share it (SPEC J-05)."""

    state_dir: Path | None = None
    """Directory in which this device stores its identity; below the user's state directory unless given."""

    keep: bool = _AGENT.keep
    """Keep the session's subscriptions and this device's queue. False ends these subscriptions, except those bound to
    other devices, and discards what is queued for this device (SPEC G-09)."""

    keep_queue: bool = _AGENT.keep_queue

    on_ended: Literal["ignore", "renew", "resubmit"] = _AGENT.on_ended

    outbox_file: Path | None = None
    """File of the outbox. If given, the agent is a separate device, whose identity is stored beside this file;
    otherwise the outbox is in ``state_dir``, with that device's identity (SPEC G-20)."""

    offline: bool = False
    """Open without waiting for the server, so that ``publish(outbox=True)`` can store events from the start.
    ``agent.connected()`` then waits for the server, and raises its refusal."""

    outbox_events_max: int = 10_000
    """Most events in the outbox of this device (SPEC G-20)."""

    outbox_bytes_max: int = 16 * 2**20
    """Most bytes of events in the outbox."""

    publish_per_s: float | None = None
    """Most events published per second; no limit unless given (SPEC G-22)."""

    local_address: str | None = None
    """Local IP address for SIP and events. Unless given, the agent follows the address that routes to the server (SPEC
    D-05)."""

    data_port: int = 0
    """Local UDP port for events, for a firewall that lets one port through; the system chooses one unless given."""

    connect_s_max: float = 10.0
    """Timeout of opening the agent."""

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

    publisher_filtering: bool = _AGENT.publisher_filtering

    rudp: RudpConfig | None = None
    """Parameters of reliable UDP; the sizes have to equal the server's (SPEC F-10)."""

    tcp_channels: TcpConfig | None = None
    """Parameters of a data channel over TCP; the sizes have to equal the server's."""

    def __post_init__(self) -> None:
        for name in ("password_file", "ca_file", "state_dir", "outbox_file"):
            if isinstance(path := getattr(self, name), str):
                msgspec.structs.force_setattr(self, name, Path(path))

    def __repr__(self) -> str:
        return f"AgentSettings(uri={self.uri!r}, ...)"


class AgentArguments(TypedDict, total=False):
    """Settings of an agent as keyword arguments, without ``uri``; :class:`AgentSettings` documents them."""

    password: str | Mapping[str, str] | None
    password_file: Path | str | None
    server: str
    transport: Literal["udp", "tcp", "tls"] | None
    ca_file: Path | str | None
    broker: str | None
    encryption: bool
    data_transport: Literal["auto", "udp", "tcp"]
    data_paths: tuple[DataPathKind, ...]
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
    data_port: int
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
    publisher_filtering: bool
    rudp: RudpConfig | None
    tcp_channels: TcpConfig | None
