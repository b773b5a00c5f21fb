"""How a reliable UDP data channel is written in SDP, and when an answer means the same channel (DESIGN 6.1, 6.3).

Each side names its end of the connection, and numbers its own moves, so that an old path cannot override a new
one::

    m=application 40000 UDP x-wanderbus
    a=rudp-connection:1f00c3a8d2b94e61
    a=rudp-generation:3
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, Output
from wanderbus.rudp import ChangePath, CloseConnection, Endpoint, OpenConnection
from wanderbus.sip.sdp import MediaDescription

CONNECTION: Final = "rudp-connection"
GENERATION: Final = "rudp-generation"


class ChannelEnd(msgspec.Struct, frozen=True):
    """One side's end: where it receives, what it calls the connection, and how often it has moved."""

    address: Address
    connection: int
    generation: int


def describe_end(end: ChannelEnd) -> MediaDescription:
    """Return the SDP media description of ``end``."""
    return MediaDescription(
        address=end.address[0],
        port=end.address[1],
        attributes=((CONNECTION, f"{end.connection:016x}"), (GENERATION, str(end.generation))),
    )


def read_end(media: MediaDescription) -> ChannelEnd:
    """Return the end that ``media`` describes; :class:`SIPParseError` with status 488 if it describes none."""
    try:
        connection = int(media.attribute(CONNECTION) or "", 16)
        generation = int(media.attribute(GENERATION) or "")
    except ValueError:
        raise SIPParseError(f"the media description needs {CONNECTION} and {GENERATION}", 488) from None
    if not 0 < connection < 2**64 or not 0 <= generation < 2**32:
        raise SIPParseError(f"{CONNECTION} or {GENERATION} is out of range", 488)
    return ChannelEnd((media.address, media.port), connection, generation)


class DataChannel:
    """This side of one session's data channel: which pair of connection ids is agreed and alive.

    A side that has lost its connection offers or answers with a fresh id, and a pair that is not alive on both
    sides is begun anew on both; so sequence numbers of two connections can never meet.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.local = 0
        """Our id of the live or offered connection, 0 before the first."""
        self.remote: ChannelEnd | None = None
        """The other end of the live connection, None while there is none."""

    def offer(self, now: float) -> list[Output]:
        """Make :attr:`local` the id to offer: the live connection's, or a fresh one."""
        if self.remote is not None:
            return []
        outputs = self.close(now)
        self.local = self._endpoint.allocate()
        return outputs

    def agreed(self, remote: ChannelEnd, now: float) -> tuple[bool, list[Output]]:
        """Our offer was answered with ``remote``; return whether that is a new connection, and what to do."""
        return self._settle(remote, self.local, now)

    def accept(self, remote: ChannelEnd, now: float) -> tuple[bool, list[Output]]:
        """Take up the offer of ``remote``, to be answered with :attr:`local`; return as :meth:`agreed` does."""
        return self._settle(remote, 0, now)

    def lost(self) -> None:
        """The connection failed or was reset: what is agreed next is a new one."""
        self.remote = None

    def close(self, now: float) -> list[Output]:
        """Forget the connection."""
        self.remote = None
        return self._endpoint.step([CloseConnection(self.local)], now)

    def _settle(self, remote: ChannelEnd, offered: int, now: float) -> tuple[bool, list[Output]]:
        alive = self.remote is not None and self.remote.connection == remote.connection
        self.remote = remote
        if alive:
            return False, self._endpoint.step([ChangePath(self.local, remote.address, remote.generation)], now)
        closing = CloseConnection(self.local)
        self.local = offered or self._endpoint.allocate()
        opening = OpenConnection(self.local, remote.connection, remote.address, remote.generation)
        return True, self._endpoint.step([closing, opening], now)
