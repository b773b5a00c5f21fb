"""Transports, connections and addresses of a transaction layer (RFC 3261 18.1.1; RFC 5626 for flows).

A request too large for one unfragmented UDP datagram is sent over TCP if that is enabled. An address that accepts no
TCP is cached for a while, so that the next large request needs no TCP attempt.

The driver owns the sockets; here a connection is a number. A connection is closed if its data cannot be framed, or if a
message stays incomplete (RFC 3261 18.3, RFC 5626 4.4.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    Output,
    SetTimer,
    StreamClosed,
    StreamReceived,
)
from wanderbus.sip.message.framing import PING, PONG, StreamFramer
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.targets import Path, Target, Transport, as_target, make_via
from wanderbus.sip.transaction.transaction_signals import PongReceived

UDP_REQUEST_BYTES_MAX: Final = 1_300
"""Largest request for UDP if the path MTU is unknown; a larger one is sent over a stream (RFC 3261 18.1.1)."""

UDP_ONLY_S: Final = 600.0
"""Time for which TCP is not tried again at an address that accepts none."""

UDP_ONLY_MAX: Final = 1_024
"""Largest number of cached addresses that accept no TCP."""

MESSAGE_S_MAX: Final = 32.0
"""Largest time for one message to arrive: 64*T1, after which its transaction has ended anyway."""

TIMER: Final = "stream"
"""First part of the keys of our timers; the second is the connection."""


class TransportTable:
    """The transports of one layer, our addresses in them, and the open connections.

    ``local`` is the address in our Via; ``local_streams`` overrides it by transport.
    """

    def __init__(
        self, socket: str, transports: Iterable[str], local: Address, local_streams: Mapping[str, Address] | None = None
    ) -> None:
        self.socket = socket
        self.transports = frozenset(transports)
        self.local = local
        self.local_streams = local_streams or {}
        self.connections: dict[int, Transport] = {}
        """Every open connection that has received data."""
        self._accepted: dict[tuple[Transport, Address], int] = {}
        """Those of them that the peer opened, by its address."""
        self._udp_only: dict[Address, float] = {}

    def move(self, local: Address) -> None:
        """Put ``local`` into our Via from now on."""
        self.local = local

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


class _Stream:
    """One connection."""

    __slots__ = ("closing", "framer", "source", "waiting")

    def __init__(self, framer: StreamFramer, source: Address) -> None:
        self.framer = framer
        self.source = source
        self.waiting = False
        """True if the timer for an incomplete message runs."""
        self.closing = False
        """True if we requested its end: further data are discarded."""


class StreamSide:
    """Every connection of one layer that has received data; ``drops`` counts those closed for faulty data."""

    def __init__(self, transports: TransportTable, drops: Counter[str]) -> None:
        self._transports = transports
        self._drops = drops
        self._streams: dict[int, _Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def receive(self, item: StreamReceived, now: float) -> tuple[tuple[bytes, ...], list[Output]]:
        """Return the messages that ``item`` completes, and the outputs that follow them."""
        stream = self._streams.get(item.connection)
        if stream is None:
            stream = _Stream(StreamFramer(opened_here=item.target is not None), item.source)
            self._streams[item.connection] = stream
            self._transports.opened(item.connection, item.transport, item.source, by_us=item.target is not None)
        if stream.closing:
            return (), []
        fed = stream.framer.feed(item.data)
        outputs: list[Output] = [PongReceived(item.connection, item.source)] * fed.pongs
        if fed.pings:
            back = Path(self._transports.socket, Target(item.transport, item.source), item.connection)
            outputs.append(back.send(PONG * fed.pings))
        if fed.error is not None:
            self._drops["unframed"] += 1
            return fed.messages, [*outputs, *self._close_faulty(item.connection, stream)]
        return fed.messages, outputs + self._watch(item.connection, stream, bool(fed.messages), now)

    def expire(self, connection: int) -> list[Output]:
        """Close a connection whose message is still incomplete at the timeout."""
        stream = self._streams.get(connection)
        if stream is None or not stream.waiting:
            return []
        self._drops["unfinished"] += 1
        return self._close_faulty(connection, stream)

    def closed(self, item: StreamClosed) -> list[Output]:
        """Forget a connection."""
        stream = self._streams.pop(item.connection, None)
        if stream is None:
            return []
        self._transports.closed(item.connection, stream.source)
        return [CancelTimer((TIMER, item.connection))] if stream.waiting else []

    def ping(self, destination: Target, connection: int | None) -> list[Output]:
        """Send a keep-alive, if the transport is available and a stream."""
        path = self._transports.path(destination, connection)
        return [path.send(PING)] if path is not None and destination.reliable else []

    def _watch(self, connection: int, stream: _Stream, progressed: bool, now: float) -> list[Output]:
        """Give every message its own timeout: the timer restarts with the next one."""
        incomplete = stream.framer.within_message
        outputs: list[Output] = []
        if stream.waiting and (progressed or not incomplete):
            stream.waiting = False
            outputs.append(CancelTimer((TIMER, connection)))
        if incomplete and not stream.waiting:
            stream.waiting = True
            outputs = [SetTimer((TIMER, connection), now + MESSAGE_S_MAX)]
        return outputs

    def _close_faulty(self, connection: int, stream: _Stream) -> list[Output]:
        stream.closing = True
        waiting, stream.waiting = stream.waiting, False
        cancelled: list[Output] = [CancelTimer((TIMER, connection))] if waiting else []
        return [*cancelled, CloseStream(self._transports.socket, connection)]
