"""Transports, connections and addresses of a transaction layer (RFC 3261 18.1.1; RFC 5626 for flows).

A request too large for one unfragmented UDP datagram is sent over TCP if that is enabled. An address that accepts no
TCP is cached for a while, so that the next large request needs no TCP attempt. So is the size of a request that was
answered over TCP alone: some paths drop longer datagrams silently.

The driver owns the sockets; here a connection is a number. A connection is closed if its data cannot be framed, or if a
message stays incomplete (RFC 3261 18.3, RFC 5626 4.4.1). Whole messages before such data are answered first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
)
from wanderbus.sip.message.framing import PING, PONG, StreamFramer
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.targets import Path, Target, Transport, as_target, make_via
from wanderbus.sip.transaction.transaction_signals import LayerOutput, PongReceived

ANSWER_S_MAX: Final = 1.0
"""Time for the answers to the messages before faulty data, before their connection is closed: a registration is stored
first."""

UDP_REQUEST_BYTES_MAX: Final = 1_300
"""Largest request for UDP if the path MTU is unknown; a larger one is sent over a stream (RFC 3261 18.1.1)."""

UDP_SAFE_BYTES: Final = 548
"""Size of a request that no path drops for its size: every host accepts packets of 576 bytes (RFC 791 3.1)."""

UDP_ONLY_S: Final = 600.0
"""Time for which TCP is not tried again at an address that accepts none, or UDP for large requests at one that answers
none."""

UDP_ONLY_MAX: Final = 1_024
"""Largest number of cached addresses of each kind."""

ANSWERED_S: Final = 32.0
"""Time for which an answer by UDP shows that an address can be reached."""

MESSAGE_S_MAX: Final = 32.0
"""Largest time for one message to arrive: 64*T1, after which its transaction has ended anyway."""

Cached = TypeVar("Cached")

TIMER: Final = "stream"
"""First part of the keys of our timers; the second is the connection."""


class TransportTable:
    """The transports of one layer, our addresses in them, and the open connections.

    ``local`` is the address in our Via; ``local_streams`` overrides it by transport. With ``narrow_paths``, a request
    by UDP that may be too long for its path is sent over TCP too, even if TCP is none of the ``transports``.
    """

    def __init__(
        self,
        socket: str,
        transports: Iterable[str],
        local: Address,
        local_streams: Mapping[str, Address] | None = None,
        *,
        narrow_paths: bool = False,
    ) -> None:
        self.socket = socket
        self._narrow_paths = narrow_paths
        self.transports = frozenset(transports)
        self.local = local
        self.local_streams = local_streams or {}
        self.connections: dict[int, Transport] = {}
        """Every open connection that has received data."""
        self._accepted: dict[tuple[Transport, Address], int] = {}
        """Those of them that the peer opened, by its address."""
        self._udp_only: dict[Address, float] = {}
        self._narrow: dict[Address, tuple[float, int]] = {}
        """Until when requests of how many bytes are not sent by UDP to an address."""
        self._answered: dict[Address, float] = {}
        """Until when an answer by UDP from an address counts."""

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
        until, narrow_bytes = self._narrow.get(path.target.address, (now, 0))
        is_long = size_bytes > UDP_REQUEST_BYTES_MAX and "TCP" in self.transports
        if path.target.reliable or not (is_long or (until > now and size_bytes >= narrow_bytes)):
            return None
        return self._tcp(path.target.address, now)

    def beyond_narrow_path(self, path: Path, size_bytes: int, now: float) -> Path | None:
        """Return the stream for a request that was repeated on ``path`` without an answer; None to use ``path``.

        The path may drop datagrams of ``size_bytes``, if the address has answered a smaller request.
        """
        address = path.target.address
        is_reachable = self._answered.get(address, now) > now
        if not self._narrow_paths or path.target.reliable or size_bytes <= UDP_SAFE_BYTES or not is_reachable:
            return None
        return self._tcp(address, now)

    def _tcp(self, address: Address, now: float) -> Path | None:
        return None if self._udp_only.get(address, now) > now else Path(self.socket, Target("TCP", address))

    def mark_udp_only(self, address: Address, now: float) -> None:
        """Record that ``address`` accepts no TCP."""
        self._narrow.pop(address, None)
        _put(self._udp_only, address, now + UDP_ONLY_S)

    def mark_narrow(self, address: Address, size_bytes: int, now: float) -> None:
        """Record that ``address`` has answered a request of this size over TCP, and not by UDP."""
        _put(self._narrow, address, (now + UDP_ONLY_S, size_bytes))

    def mark_answered(self, address: Address, now: float) -> None:
        """Record that ``address`` has answered a request by UDP."""
        if self._narrow_paths:
            _put(self._answered, address, now + ANSWERED_S)


def _put(cache: dict[Address, Cached], address: Address, value: Cached) -> None:
    """Make ``value`` the newest in ``cache``; the oldest gives way."""
    cache.pop(address, None)
    if len(cache) >= UDP_ONLY_MAX:
        del cache[next(iter(cache))]
    cache[address] = value


class _Stream:
    """One connection."""

    __slots__ = ("closing", "framer", "source", "waiting")

    def __init__(self, framer: StreamFramer, source: Address) -> None:
        self.framer = framer
        self.source = source
        self.waiting = False
        """True if the timer for an incomplete message runs, or that for the end of a connection with faulty data."""
        self.closing = False
        """True if its end is certain: further data are discarded."""


class StreamSide:
    """Every connection of one layer that has received data; ``drops`` counts those closed for faulty data."""

    def __init__(self, transports: TransportTable, drops: Counter[str]) -> None:
        self._transports = transports
        self._drops = drops
        self._streams: dict[int, _Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def receive(self, item: StreamReceived, now: float) -> tuple[tuple[bytes, ...], list[LayerOutput]]:
        """Return the messages that ``item`` completes, and the outputs that follow them."""
        stream = self._streams.get(item.connection)
        if stream is None:
            stream = _Stream(StreamFramer(opened_here=item.target is not None), item.source)
            self._streams[item.connection] = stream
            self._transports.opened(item.connection, item.transport, item.source, by_us=item.target is not None)
        if stream.closing:
            return (), []
        fed = stream.framer.feed(item.data)
        outputs: list[LayerOutput] = [PongReceived(item.connection, item.source)] * fed.pongs
        if fed.pings:
            back = Path(self._transports.socket, Target(item.transport, item.source), item.connection)
            outputs.append(back.send(PONG * fed.pings))
        if fed.error is not None:
            self._drops["unframed"] += 1
            faulty = self._close_later if fed.messages else self._close_faulty
            return fed.messages, [*outputs, *faulty(item.connection, stream, now)]
        return fed.messages, outputs + self._watch(item.connection, stream, bool(fed.messages), now)

    def expire(self, connection: int) -> list[LayerOutput]:
        """Close a connection whose message is still incomplete at the timeout, or whose messages had time to answer."""
        stream = self._streams.get(connection)
        if stream is None or not stream.waiting:
            return []
        if not stream.closing:
            self._drops["unfinished"] += 1
        stream.waiting = False
        return self._close_faulty(connection, stream)

    def closed(self, item: StreamClosed) -> list[LayerOutput]:
        """Forget a connection."""
        stream = self._streams.pop(item.connection, None)
        if stream is None:
            return []
        self._transports.closed(item.connection, stream.source)
        return [CancelTimer((TIMER, item.connection))] if stream.waiting else []

    def ping(self, destination: Target, connection: int | None) -> list[LayerOutput]:
        """Send a keep-alive, if the transport is available and a stream."""
        path = self._transports.path(destination, connection)
        return [path.send(PING)] if path is not None and destination.reliable else []

    def _watch(self, connection: int, stream: _Stream, progressed: bool, now: float) -> list[LayerOutput]:
        """Give every message its own timeout: the timer restarts with the next one."""
        incomplete = stream.framer.within_message
        outputs: list[LayerOutput] = []
        if stream.waiting and (progressed or not incomplete):
            stream.waiting = False
            outputs.append(CancelTimer((TIMER, connection)))
        if incomplete and not stream.waiting:
            stream.waiting = True
            outputs = [SetTimer((TIMER, connection), now + MESSAGE_S_MAX)]
        return outputs

    def _close_later(self, connection: int, stream: _Stream, now: float) -> list[LayerOutput]:
        """Discard all further data; close the connection when the messages before them had time to be answered."""
        stream.closing = stream.waiting = True
        return [SetTimer((TIMER, connection), now + ANSWER_S_MAX)]

    def _close_faulty(self, connection: int, stream: _Stream, now: float = 0.0) -> list[LayerOutput]:
        stream.closing = True
        waiting, stream.waiting = stream.waiting, False
        cancelled: list[LayerOutput] = [CancelTimer((TIMER, connection))] if waiting else []
        return [*cancelled, CloseStream(self._transports.socket, connection)]
