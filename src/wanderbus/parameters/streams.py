"""Bounds on the TCP connections of one socket."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec


class StreamLimits(msgspec.Struct, frozen=True):
    """Bounds on the TCP connections of one socket.

    The idle time is above a third of the longest registration (1,200 s), so that a registered device, which refreshes
    by then, keeps its connection. ``ValueError`` names a value that cannot work.
    """

    section: ClassVar[str] = "sip_connections"
    """The table of the settings that contains them."""

    connections_max: int = 4_096
    """Connections at once; fewer if the process may not open as many files."""

    connections_per_host_max: int = 256
    """Accepted connections from one IPv4 address or /64 of IPv6."""

    connections_per_s: float = 50.0
    """Sustained rate of connections from one IPv4 address or /64 of IPv6, per second; a TLS handshake takes a
    millisecond or two. A further connection is closed unread."""

    burst_connections: float = 512.0
    """Burst of connections above that rate: many users behind one address may reconnect after a restart."""

    unsent_bytes_max: int = 2**20
    """Bytes that wait to be sent to one peer."""

    idle_s_max: float | None = 1_800.0
    """Idle time in both directions after which a connection is closed; None for never."""

    silent_s_max: float = 30.0
    """Time after which an accepted connection is closed if nothing was answered on it."""

    connect_s_max: float = 5.0
    """Timeout for opening a connection, including TLS."""

    handshake_s_max: float = 5.0
    """Timeout for the TLS handshake of an accepted connection, and for the wait before it begins."""

    handshakes_max: int = 128
    """TLS handshakes of accepted connections at once: each takes 55 KB. A further one waits; a handshake of another
    source replaces the oldest of the source that has the most."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0")


class DataStreamLimits(StreamLimits, frozen=True):
    """Bounds on the connections of data channels, which may be idle, since subscribers wait.

    A lost SYN is repeated three times within the time to connect (after 1, 3 and 7 s: RFC 6298 2), which is similar to
    the timeouts of the channels.
    """

    section: ClassVar[str] = "data_connections"
    idle_s_max: float | None = None
    connect_s_max: float = 15.0
    handshake_s_max: float = 15.0


DATA_STREAM_LIMITS: Final = DataStreamLimits()
