"""One stream of a relay: two sides, each with a port for one party, and the forwarding between them (DESIGN 6.6).

::

    A ──▶ port of side A │ relay │ port of side B ──▶ B     and back the same way

SDP gives the address of each party, which is wrong behind NAT and changes later. A datagram from another address
therefore updates the address of its sender, if it begins with a connection id that the other party named in SDP and was
not sent before the last announced move. An attacker off the path does not know the id; against one on the path, the
two parties have keys. Without ids in SDP, the first source after an offer or answer is used until the next one.
"""

from __future__ import annotations

from typing import Final

from wanderbus.hosts import is_ip_address, is_link_local, is_loopback, is_single_host
from wanderbus.machine import Address
from wanderbus.parameters.relay import RelayLimits
from wanderbus.relay.description import Medium, Transport
from wanderbus.relay.figures import Figures
from wanderbus.rudp.frames import PLAIN, SEALED
from wanderbus.tcp.frames import HELLO

SLICE_S: Final = 0.1
"""Period in seconds over which rates are measured."""

ID_BYTES: Final = 8
IDS_MAX: Final = 2
"""Connection ids kept for each party: the current one, and the previous one, which stays valid if an offer fails."""

_KIND_OFFSET: Final = 16
_GENERATION: Final = slice(18, 20)
_HELLO_ID: Final = slice(13, 13 + ID_BYTES)
"""Offset of the connection id in the first frame over TCP: after length, type and number (:mod:`wanderbus.tcp`)."""


class Side:
    """One party's side of a stream; the owner of the sockets acts on the results of :meth:`take` and :meth:`admit`."""

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
        "ids",
        "is_described",
        "other",
        "port",
        "received_at",
        "sealed",
        "source",
        "transport",
    )

    other: Side

    def __init__(self, transport: Transport, limits: RelayLimits, *, loopback: bool, now: float) -> None:
        self.transport = transport
        self.figures = Figures()
        self.port = 0
        """Port of the relay that this party sends to, 0 while it has none."""
        self.is_described = False
        """True if the party has described itself. Before that, no source is accepted: an offer names any address, and
        its sender could exchange data with a host there without that host's consent."""
        self.announced: Address | None = None
        """Address of the party in SDP; None before SDP arrives, and for an address that no single party can have."""
        self.source: Address | None = None
        """Known address of the party: datagrams go there, and those from there are accepted without a check."""
        self.ids: tuple[bytes, ...] = ()
        """Connection ids that the party named for its end of the data channel, newest first; empty if SDP has none."""
        self.connects = False
        """True if the party opens the TCP connection."""
        self.sealed = False
        """True if its TCP connections use TLS."""
        self.received_at = now
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
        """Apply the party's description; a learnt address stays valid while the description is unchanged."""
        self.is_described = True
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
        """Return the destination of the datagram ``data``, which leaves by the other side's port; None to drop it."""
        figures = self.figures
        if source != self.source and not self._accepts_new_source(source, data):
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
        self.received_at = now
        figures.datagrams += 1
        figures.bytes += size
        return destination

    def admit(self, host: str) -> bool:
        """Return whether one more TCP connection from ``host`` is permitted, and count it; see :meth:`leave`."""
        limits = self._limits
        full = len(self._hosts) >= limits.connections_max or self._hosts.count(host) >= limits.host_connections_max
        if full or self.target is None:
            self.figures.refused += 1
            return False
        self._hosts.append(host)
        return True

    def leave(self, host: str) -> None:
        """Stop counting a connection that :meth:`admit` permitted."""
        self._hosts.remove(host)

    def unreported(self) -> tuple[int, int]:
        """Return the datagrams dropped by the rate limit, and the connections refused, since the last call."""
        over_rate, refused = self.figures.over_rate, self.figures.refused
        before, self._reported = self._reported, (over_rate, refused)
        return over_rate - before[0], refused - before[1]

    @property
    def target(self) -> Address | None:
        """Return the address to connect to for a connection of this party; None if the other party accepts none."""
        return None if self.other.connects else self.other.announced

    def judge(self, opening: bytes) -> bool | None:
        """Return whether a TCP connection with these first bytes is the party's; None if more bytes are needed.

        TLS and protocols other than the data channel show no id: the connection is accepted, and the parties check it.
        """
        ids = self.other.ids
        if not ids or self.sealed:
            return True
        if len(opening) < _HELLO_ID.stop:
            return None
        return opening[4] == HELLO and opening[_HELLO_ID] in ids

    def carry(self, size_bytes: int, now: float) -> float:
        """Count a piece of a TCP connection of this party; return the seconds for which reading must pause."""
        self._free_at = max(self._free_at, now) + size_bytes / self._limits.stream_bytes_per_s
        self.received_at = now
        self.figures.datagrams += 1
        self.figures.bytes += size_bytes
        return max(0.0, self._free_at - now - SLICE_S)

    def _accepts_new_source(self, source: Address, data: bytes | memoryview) -> bool:
        """Return whether a datagram from another address is the party's; if so, update its address."""
        ids = self.other.ids
        if not self.is_described:
            return False
        if not ids:
            if not self._is_open:
                return False
        elif bytes(data[:ID_BYTES]) not in ids:
            return False
        elif self._precedes_last_move(data):
            return True
        self._is_open = False
        self.source = source
        self.figures.learnt += 1
        return True

    def _precedes_last_move(self, data: bytes | memoryview) -> bool:
        """Return whether a packet was sent before the last announced move; generations have 16 bits."""
        if len(data) < _GENERATION.stop or data[_KIND_OFFSET] not in (SEALED, PLAIN):
            return False
        behind = (self._generation - int.from_bytes(data[_GENERATION], "big")) & 0xFFFF
        return 0 < behind < 0x8000

    def _next_slice(self, now: float) -> None:
        self._slice_until = now + SLICE_S
        self._datagrams_left = self._limits.stream_datagrams_per_s * SLICE_S
        self._bytes_left = self._limits.stream_bytes_per_s * SLICE_S

    def _is_usable(self, medium: Medium) -> bool:
        """Return whether ``medium`` has the address of a single host other than the relay's own."""
        host, port = medium.address
        is_usable = is_ip_address(host) and is_single_host(host) and not is_link_local(host)
        return bool(port) and is_usable and (self._loopback or not is_loopback(host))


def joined(transport: Transport, limits: RelayLimits, *, loopback: bool, now: float) -> tuple[Side, Side]:
    """Return the two sides of a new stream."""
    one, other = (Side(transport, limits, loopback=loopback, now=now) for _ in range(2))
    one.other, other.other = other, one
    return one, other
