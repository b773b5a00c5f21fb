"""What the connections of one socket may take."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec


class StreamLimits(msgspec.Struct, frozen=True):
    """What the connections of one socket may take.

    The idle time is above a third of the longest registration (1,200 s), so that a registered device, which refreshes
    by then, keeps its connection. ``ValueError`` names a value that cannot work.
    """

    section: ClassVar[str] = "sip_connections"
    """The table of the settings that it stands in."""

    connections_max: int = 4_096
    """At most so many, and fewer where the process may not open as many files."""

    connections_per_host_max: int = 256
    """Accepted connections from one IPv4 address or /64 of IPv6."""

    connections_per_s: float = 50.0
    """Connections that one IPv4 address or /64 of IPv6 may open a second for ever: a TLS handshake takes a millisecond
    or two, whoever asks for it. One more is closed unread."""

    burst_connections: float = 512.0
    """Connections that it may open at once on top of it: those of many users behind one address, after a restart."""

    unsent_bytes_max: int = 2**20
    """Bytes that one peer has not taken yet."""

    idle_s_max: float | None = 1_800.0
    """A connection on which nothing went either way for so long is closed; None for never."""

    silent_s_max: float = 30.0
    """An accepted connection on which nothing was answered yet is closed after so long."""

    connect_s_max: float = 5.0
    """How long opening a connection may take, TLS included."""

    handshake_s_max: float = 5.0
    """How long the TLS handshake of an accepted connection may take, and how long one may wait for it to begin."""

    handshakes_max: int = 128
    """TLS handshakes of accepted connections under way at once: each takes 55 KB. One more waits; the oldest of the
    source that has the most gives way to one of another."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0")


class DataStreamLimits(StreamLimits, frozen=True):
    """The same of data channels: they may be idle, since subscribers wait.

    A lost SYN is repeated thrice within the time to connect (after 1, 3 and 7 s: RFC 6298 2), which is about as patient
    as the channels are.
    """

    section: ClassVar[str] = "data_connections"
    idle_s_max: float | None = None
    connect_s_max: float = 15.0
    handshake_s_max: float = 15.0


DATA_STREAM_LIMITS: Final = DataStreamLimits()
