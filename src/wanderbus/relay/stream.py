"""One stream of a relay: two sides, each a port that one party sends to, and what passes between them (DESIGN 6.6).

::

    A ──▶ port of side A │ relay │ port of side B ──▶ B      and back the same way

Where a party is, SDP says; behind NAT it is wrong, and later it changes. So a datagram from elsewhere shows where its
sender is now if it begins with a connection id that the other party named in SDP, and is not from before the last
announced move. Who is off the path does not know the id; who is on it is for the two ends, which have keys. Where
nothing was said of ids, the first source after an offer or answer is taken, and none after it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.hosts import is_ip_address, is_link_local, is_loopback, is_single_host
from wanderbus.machine import Address
from wanderbus.parameters.relay import RelayLimits
from wanderbus.relay.description import Medium, Transport
from wanderbus.rudp.frames import PLAIN, SEALED
from wanderbus.tcp.frames import HELLO

SLICE_S: Final = 0.1
"""Rates are kept over slices of so many seconds."""

ID_BYTES: Final = 8
IDS_MAX: Final = 2
"""Ids remembered of a party: the last that it named, and the one before, which an offer that fails leaves in use."""

_KIND_OFFSET: Final = 16
_GENERATION: Final = slice(18, 20)
_HELLO_ID: Final = slice(13, 13 + ID_BYTES)
"""Where the first frame over TCP has the id of the other side, after length, type and number (:mod:`wanderbus.tcp`)."""


class Figures(msgspec.Struct):
    """What came to one side; all rise only. Every datagram is forwarded, or in one of the others."""

    datagrams: int = 0
    """Forwarded; over TCP, pieces."""
    bytes: int = 0
    """Of what was forwarded."""
    unknown_source: int = 0
    """Dropped: from elsewhere, and without a connection id that was named."""
    nowhere: int = 0
    """Dropped: where the other party is, is not known yet."""
    over_rate: int = 0
    """Dropped: more than a stream may carry."""
    unsent: int = 0
    """Dropped: the operating system would not take it."""
    learnt: int = 0
    """Times that the party was found elsewhere than thought."""
    connections: int = 0
    """TCP connections of the party that were joined to the other one."""
    refused: int = 0
    """TCP connections that were closed instead."""


class Side:
    """One party's side of a stream; what :meth:`take` and :meth:`admit` say is done by the owner of the sockets."""

    __slots__ = (
        "_bytes_left",
        "_datagrams_left",
        "_free_at",
        "_generation",
        "_hosts",
        "_is_open",
        "_limits",
        "_loopback",
        "_reported",
        "_slice_until",
        "announced",
        "connects",
        "figures",
        "heard_at",
        "ids",
        "other",
        "port",
        "said",
        "sealed",
        "source",
        "transport",
    )

    other: Side

    def __init__(self, transport: Transport, limits: RelayLimits, *, loopback: bool, now: float) -> None:
        self.transport = transport
        self.figures = Figures()
        self.port = 0
        """The relay's port that this party sends to, 0 while it has none."""
        self.said = False
        """Whether the party has described itself. Before, nobody is taken for it: an offer names any address, and who
        made it could talk to whoever is there without anybody's consent."""
        self.announced: Address | None = None
        """Where SDP says that the party is; None before, and for what cannot be an address of anybody."""
        self.source: Address | None = None
        """Where the party is, as far as is known: sent to, and believed without further question."""
        self.ids: tuple[bytes, ...] = ()
        """What the party called its end of the data channel, newest first; empty where SDP does not say."""
        self.connects = False
        """Whether the party opens the TCP connection."""
        self.sealed = False
        """Whether its TCP connections are under TLS."""
        self.heard_at = now
        self._generation = 0
        self._is_open = False
        self._limits = limits
        self._loopback = loopback
        self._hosts: list[str] = []
        self._reported = (0, 0)
        self._slice_until = 0.0
        self._datagrams_left = self._bytes_left = 0.0
        self._free_at = 0.0

    def __repr__(self) -> str:
        return f"Side({self.transport} {self.port}, {self.source})"

    def announce(self, medium: Medium) -> None:
        """Take what the party says of itself; what was learnt stays while it says the same as before."""
        self.said = True
        address = medium.address if self._is_usable(medium) else None
        if address != self.announced:
            self.announced = self.source = address
        if medium.connection_id is None:
            self.ids = ()
        elif medium.connection_id not in self.ids:
            self.ids = (medium.connection_id, *self.ids)[:IDS_MAX]
        self.connects = medium.connects
        self.sealed = medium.sealed
        self._generation = medium.generation
        self._is_open = True

    def take(self, source: Address, data: bytes | memoryview, now: float) -> Address | None:
        """Return where to send the datagram ``data``, from the port of the other side; None to drop it."""
        figures = self.figures
        if source != self.source and not self._believes(source, data):
            figures.unknown_source += 1
            return None
        size = len(data)
        if now >= self._slice_until:
            self._next_slice(now)
        self._datagrams_left -= 1
        self._bytes_left -= size
        if self._datagrams_left < 0 or self._bytes_left < 0:
            figures.over_rate += 1
            return None
        destination = self.other.source
        if destination is None:
            figures.nowhere += 1
            return None
        self.heard_at = now
        figures.datagrams += 1
        figures.bytes += size
        return destination

    def admit(self, host: str) -> bool:
        """Tell whether one more TCP connection from ``host`` may be there, and count it in; see :meth:`leave`."""
        limits = self._limits
        full = len(self._hosts) >= limits.connections_max or self._hosts.count(host) >= limits.host_connections_max
        if full or self.target is None:
            self.figures.refused += 1
            return False
        self._hosts.append(host)
        return True

    def leave(self, host: str) -> None:
        """Count out a connection that :meth:`admit` let in."""
        self._hosts.remove(host)

    def unreported(self) -> tuple[int, int]:
        """Return the datagrams dropped by the rate, and the connections refused, since the last call."""
        over_rate, refused = self.figures.over_rate, self.figures.refused
        before, self._reported = self._reported, (over_rate, refused)
        return over_rate - before[0], refused - before[1]

    @property
    def target(self) -> Address | None:
        """Return where to connect to for a connection of this party; None if the other one cannot be connected to."""
        return None if self.other.connects else self.other.announced

    def judge(self, opening: bytes) -> bool | None:
        """Tell from its first bytes whether a TCP connection is the party's; None if these are too few to tell.

        TLS shows nothing of it, and what is not our data channel neither: there the ends tell alone.
        """
        ids = self.other.ids
        if not ids or self.sealed:
            return True
        if len(opening) < _HELLO_ID.stop:
            return None
        return opening[4] == HELLO and opening[_HELLO_ID] in ids

    def carry(self, size_bytes: int, now: float) -> float:
        """Count a piece of a TCP connection of this party; return for how many seconds nothing more may be read."""
        self._free_at = max(self._free_at, now) + size_bytes / self._limits.stream_bytes_per_s
        self.heard_at = now
        self.figures.datagrams += 1
        self.figures.bytes += size_bytes
        return max(0.0, self._free_at - now - SLICE_S)

    def _believes(self, source: Address, data: bytes | memoryview) -> bool:
        """Tell whether a datagram from elsewhere is the party's, and take it to be there if that is so now."""
        ids = self.other.ids
        if not self.said:
            return False
        if not ids:
            if not self._is_open:
                return False
        elif bytes(data[:ID_BYTES]) not in ids:
            return False
        elif self._is_from_before(data):
            return True
        self._is_open = False
        self.source = source
        self.figures.learnt += 1
        return True

    def _is_from_before(self, data: bytes | memoryview) -> bool:
        """Tell whether a packet was sent before the last move that was announced; generations are of 16 bits."""
        if len(data) < _GENERATION.stop or data[_KIND_OFFSET] not in (SEALED, PLAIN):
            return False
        behind = (self._generation - int.from_bytes(data[_GENERATION], "big")) & 0xFFFF
        return 0 < behind < 0x8000

    def _next_slice(self, now: float) -> None:
        self._slice_until = now + SLICE_S
        self._datagrams_left = self._limits.stream_datagrams_per_s * SLICE_S
        self._bytes_left = self._limits.stream_bytes_per_s * SLICE_S

    def _is_usable(self, medium: Medium) -> bool:
        """Tell whether ``medium`` has an address of somebody else than everybody, nobody or the relay's own host."""
        host, port = medium.address
        is_usable = is_ip_address(host) and is_single_host(host) and not is_link_local(host)
        return bool(port) and is_usable and (self._loopback or not is_loopback(host))


def joined(transport: Transport, limits: RelayLimits, *, loopback: bool, now: float) -> tuple[Side, Side]:
    """Return the two sides of a new stream."""
    one, other = (Side(transport, limits, loopback=loopback, now=now) for _ in range(2))
    one.other, other.other = other, one
    return one, other
