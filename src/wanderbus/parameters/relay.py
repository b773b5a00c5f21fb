"""Bounds on the resources of a media relay (SPEC I-01, U Taste: bound everything)."""

from __future__ import annotations

import msgspec


class RelayLimits(msgspec.Struct, frozen=True):
    """Bounds of a relay; ``ValueError`` names a value that cannot work. One ``m=`` line describes one stream."""

    calls_max: int = 4_000
    """Calls at once; a further call is refused as a load limit, so that a proxy asks another relay."""

    media_max: int = 8
    """Streams of one description."""

    idle_s: float = 300.0
    """Idle time, without data or signalling, after which a call is removed and its ports are freed. Agents probe a
    silent data channel every few seconds, as RFC 4787 REQ-5 requires behind NAT."""

    stream_datagrams_per_s: int = 25_000
    """Datagrams per second of one direction of a stream; datagrams beyond it are dropped."""

    stream_bytes_per_s: int = 25_000_000
    """Bytes per second of one direction of a stream; beyond it datagrams are dropped, and TCP has to wait."""

    connections_max: int = 8
    """TCP connections of one stream at once; a further connection is closed."""

    host_connections_max: int = 4
    """TCP connections of one stream from one IP address."""

    opening_s_max: float = 15.0
    """Time in which a TCP connection must identify itself, and the other side must be reached."""

    buffer_bytes: int = 65_536
    """Bytes that wait for one side of a TCP connection; with more, the relay stops reading from the other side."""

    replies_max: int = 1_024
    """Largest number of answers kept for repeated commands; they are kept for ten seconds."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
