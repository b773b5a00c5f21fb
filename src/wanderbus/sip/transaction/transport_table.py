"""Transports, connections and addresses of a transaction layer (RFC 3261 18.1.1; RFC 5626 for flows).

A request too large for one unfragmented UDP datagram is sent over TCP if that is enabled. An address that accepts no
TCP is cached for a while, so that the next large request needs no TCP attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wanderbus.machine import Address
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.response_routing import make_via
from wanderbus.sip.message.targets import Path, Target, Transport, as_target

UDP_REQUEST_BYTES_MAX: Final = 1_300
"""Largest request for UDP if the path MTU is unknown; a larger one is sent over a stream (RFC 3261 18.1.1)."""

UDP_ONLY_S: Final = 600.0
"""Time for which TCP is not tried again at an address that accepts none."""

UDP_ONLY_MAX: Final = 1_024
"""Largest number of cached addresses that accept no TCP."""


class TransportTable:
    """The transports of one layer, our addresses in them, and the open connections.

    ``local`` is the address in our Via; ``local_streams`` overrides it by transport.
    """

    def __init__(self, socket: str, transports: Iterable[str]) -> None:
        self.socket = socket
        self.transports = frozenset(transports)
        self.local: Address = ("127.0.0.1", 5060)
        self.local_streams: Mapping[str, Address] = {}
        self.connections: dict[int, Transport] = {}
        """Every open connection that has received data."""
        self._accepted: dict[tuple[Transport, Address], int] = {}
        """Those of them that the peer opened, by its address."""
        self._udp_only: dict[Address, float] = {}

    def via(self, transport: Transport, branch: str) -> Via:
        """Return our Via for a message over ``transport``."""
        return make_via(self.local_streams.get(transport, self.local), branch, transport)

    def opened(self, connection: int, transport: Transport, source: Address, *, by_us: bool) -> None:
        """Record the new ``connection`` from ``source``."""
        self.connections[connection] = transport
        if not by_us:
            self._accepted[transport, source] = connection

    def closed(self, connection: int, source: Address) -> None:
        """Forget a connection."""
        transport = self.connections.pop(connection, None)
        if transport is not None and self._accepted.get((transport, source)) == connection:
            del self._accepted[transport, source]

    def connection_from(self, target: Target) -> int | None:
        """Return the open connection from ``target``, None if there is none."""
        return self._accepted.get((target.transport, target.address))

    def path(self, destination: Address | Target, connection: int | None = None) -> Path | None:
        """Return the path to ``destination``, on ``connection`` if that is open; None if the transport is not
        available.

        A connection of another transport than the destination's is not used: TLS was explicitly requested. An open
        connection from the destination itself is used: phones write its address into Contact, but accept no connections
        there.
        """
        target = as_target(destination)
        if connection is None:
            connection = self.connection_from(target)
        if connection is not None and self.connections.get(connection) == target.transport:
            return Path(self.socket, target, connection)
        return Path(self.socket, target) if target.transport in self.transports else None

    def instead(self, path: Path, size_bytes: int, now: float) -> Path | None:
        """Return the stream that a request of this size must use instead of ``path``; None to use ``path``."""
        if path.target.reliable or size_bytes <= UDP_REQUEST_BYTES_MAX or "TCP" not in self.transports:
            return None
        if self._udp_only.get(path.target.address, now) > now:
            return None
        return Path(self.socket, Target("TCP", path.target.address))

    def mark_udp_only(self, address: Address, now: float) -> None:
        """Record that ``address`` accepts no TCP."""
        self._udp_only.pop(address, None)
        if len(self._udp_only) >= UDP_ONLY_MAX:
            del self._udp_only[next(iter(self._udp_only))]
        self._udp_only[address] = now + UDP_ONLY_S
