"""Connections of a transaction layer: framing, keep-alives, and closing of faulty ones.

RFC 3261 18.3 and RFC 5626 4.4.1. The driver owns the sockets; here a connection is a number. A connection is closed if
its data cannot be framed, or if a message stays incomplete.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

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
from wanderbus.sip.message.targets import Path, Target
from wanderbus.sip.transaction.transaction_signals import PongReceived
from wanderbus.sip.transaction.transport_table import TransportTable

MESSAGE_S_MAX: Final = 32.0
"""Largest time for one message to arrive: 64*T1, after which its transaction has ended anyway."""

TIMER: Final = "stream"
"""First part of the keys of our timers; the second is the connection."""


class _Stream(msgspec.Struct):
    framer: StreamFramer
    source: Address
    waiting: bool = False
    """True if the timer for an incomplete message runs."""
    closing: bool = False
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
