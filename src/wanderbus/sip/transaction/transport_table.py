"""What a transaction layer can send over, and what it has learnt about the ways (RFC 3261 18.1.1; RFC 5626 for flows).

A request too large for one UDP datagram without fragments goes over TCP where that is enabled; an address where
nobody takes TCP is remembered for a while, so that the next large request need not find out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wanderbus.machine import Address
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.response_routing import make_via
from wanderbus.sip.message.targets import Path, Target, Transport, as_target

UDP_REQUEST_BYTES_MAX: Final = 1_300
"""A larger request goes over a stream where the path MTU is not known (RFC 3261 18.1.1)."""

UDP_ONLY_S: Final = 600.0
"""How long an address that took no TCP is not asked again."""

UDP_ONLY_MAX: Final = 1_024
"""Addresses remembered to take no TCP."""


class Ways:
    """The transports of one layer, our addresses in them, and the connections that are open.

    ``local`` stands in our Via; ``local_streams`` overrides it by transport.
    """

    def __init__(self, socket: str, transports: Iterable[str]) -> None:
        self.socket = socket
        self.transports = frozenset(transports)
        self.local: Address = ("127.0.0.1", 5060)
        self.local_streams: Mapping[str, Address] = {}
        self.connections: dict[int, Transport] = {}
        """Every connection on which something came, until it is closed."""
        self._accepted: dict[tuple[Transport, Address], int] = {}
        """Those of them that the other side opened, by their far end."""
        self._udp_only: dict[Address, float] = {}

    def via(self, transport: Transport, branch: str) -> Via:
        """Return our Via for a message over ``transport``."""
        return make_via(self.local_streams.get(transport, self.local), branch, transport)

    def opened(self, connection: int, transport: Transport, source: Address, *, by_us: bool) -> None:
        """Note that something came from ``source`` on a new ``connection``."""
        self.connections[connection] = transport
        if not by_us:
            self._accepted[transport, source] = connection

    def closed(self, connection: int, source: Address) -> None:
        """Forget a connection."""
        transport = self.connections.pop(connection, None)
        if transport is not None and self._accepted.get((transport, source)) == connection:
            del self._accepted[transport, source]

    def connection_from(self, target: Target) -> int | None:
        """Return the open connection that came from ``target``, None if there is none."""
        return self._accepted.get((target.transport, target.address))

    def path(self, destination: Address | Target, connection: int | None = None) -> Path | None:
        """Return the way to ``destination``, on ``connection`` if that is open; None if we lack the transport.

        A connection of another transport than the destination's is no way there: TLS was asked for to be had. One that
        comes from the destination itself is: phones write its far end into Contact, where nobody accepts another.
        """
        target = as_target(destination)
        if connection is None:
            connection = self.connection_from(target)
        if connection is not None and self.connections.get(connection) == target.transport:
            return Path(self.socket, target, connection)
        return Path(self.socket, target) if target.transport in self.transports else None

    def instead(self, path: Path, size_bytes: int, now: float) -> Path | None:
        """Return the stream that a request of this size has to take instead of ``path``; None if ``path`` will do."""
        if path.target.reliable or size_bytes <= UDP_REQUEST_BYTES_MAX or "TCP" not in self.transports:
            return None
        if self._udp_only.get(path.target.address, now) > now:
            return None
        return Path(self.socket, Target("TCP", path.target.address))

    def takes_no_tcp(self, address: Address, now: float) -> None:
        """Remember that nobody takes TCP at ``address``."""
        self._udp_only.pop(address, None)
        if len(self._udp_only) >= UDP_ONLY_MAX:
            del self._udp_only[next(iter(self._udp_only))]
        self._udp_only[address] = now + UDP_ONLY_S
