"""What a media relay may take of the host that it runs on, and for how long (SPEC I-01, U Taste: bound everything)."""

from __future__ import annotations

import msgspec


class RelayLimits(msgspec.Struct, frozen=True):
    """Bounds of a relay; ``ValueError`` names a value that cannot work. A stream is what one ``m=`` line describes."""

    calls_max: int = 4_000
    """Calls at once; one more is refused as a load limit, so that a proxy asks another relay."""

    media_max: int = 8
    """Streams of one description."""

    idle_s: float = 300.0
    """A call on which nothing came, from its ends or by signalling, for so long is forgotten, and its ports are free.
    Agents try a silent data channel every few seconds, as RFC 4787 REQ-5 asks of what is behind NAT."""

    stream_datagrams_per_s: int = 25_000
    """Datagrams a second of one direction of a stream; what is beyond is dropped."""

    stream_bytes_per_s: int = 25_000_000
    """Bytes a second of one direction of a stream; beyond it datagrams are dropped, and TCP has to wait."""

    connections_max: int = 8
    """TCP connections of one stream at once; one more is closed."""

    host_connections_max: int = 4
    """Of these, from one IP address."""

    opening_s_max: float = 15.0
    """How long a TCP connection may take to say whose it is, and the other side to be reached."""

    buffer_bytes: int = 65_536
    """Bytes that wait for one side of a TCP connection before nothing more is read from the other."""

    replies_max: int = 1_024
    """Answers kept for commands that are repeated: those of the last ten seconds, and so many at the most."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
