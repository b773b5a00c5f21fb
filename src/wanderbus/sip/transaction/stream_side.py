"""The connections of a transaction layer: bytes to messages, keep-alives, and the end of those that misbehave.

RFC 3261 18.3 and RFC 5626 4.4.1. Sockets are the driver's; here a connection is a number. One that sends what cannot
be framed is closed, as is one that begins a message and does not end it.
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
from wanderbus.sip.transaction.transport_table import Ways

MESSAGE_S_MAX: Final = 32.0
"""How long one message may take to arrive: 64*T1, after which its transaction is over anyway."""

TIMER: Final = "stream"
"""First part of the keys of our timers; the second is the connection."""


class _Stream(msgspec.Struct):
    framer: StreamFramer
    source: Address
    waiting: bool = False
    """Whether the timer for an incomplete message runs."""
    doomed: bool = False
    """Whether we asked for its end: what still comes is not read."""


class StreamSide:
    """Every connection of one layer on which something came; ``drops`` counts those closed for what they sent."""

    def __init__(self, ways: Ways, drops: Counter[str]) -> None:
        self._ways = ways
        self._drops = drops
        self._streams: dict[int, _Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def receive(self, item: StreamReceived, now: float) -> tuple[tuple[bytes, ...], list[Output]]:
        """Return the messages that ``item`` completes, and what is to be done after them."""
        stream = self._streams.get(item.connection)
        if stream is None:
            stream = _Stream(StreamFramer(opened_here=item.target is not None), item.source)
            self._streams[item.connection] = stream
            self._ways.opened(item.connection, item.transport, item.source, by_us=item.target is not None)
        if stream.doomed:
            return (), []
        fed = stream.framer.feed(item.data)
        outputs: list[Output] = [PongReceived(item.connection, item.source)] * fed.pongs
        if fed.pings:
            back = Path(self._ways.socket, Target(item.transport, item.source), item.connection)
            outputs.append(back.send(PONG * fed.pings))
        if fed.error is not None:
            self._drops["unframed"] += 1
            return fed.messages, [*outputs, *self._doom(item.connection, stream)]
        return fed.messages, outputs + self._watch(item.connection, stream, bool(fed.messages), now)

    def expire(self, connection: int) -> list[Output]:
        """Close a connection whose message did not end in time."""
        stream = self._streams.get(connection)
        if stream is None or not stream.waiting:
            return []
        self._drops["unfinished"] += 1
        return self._doom(connection, stream)

    def closed(self, item: StreamClosed) -> list[Output]:
        """Forget a connection."""
        stream = self._streams.pop(item.connection, None)
        if stream is None:
            return []
        self._ways.closed(item.connection, stream.source)
        return [CancelTimer((TIMER, item.connection))] if stream.waiting else []

    def ping(self, destination: Target, connection: int | None) -> list[Output]:
        """Send a keep-alive, if we have the transport and it is a stream."""
        path = self._ways.path(destination, connection)
        return [path.send(PING)] if path is not None and destination.reliable else []

    def _watch(self, connection: int, stream: _Stream, progressed: bool, now: float) -> list[Output]:
        """Give every message its own time: the timer starts anew with the next one."""
        incomplete = stream.framer.within_message
        outputs: list[Output] = []
        if stream.waiting and (progressed or not incomplete):
            stream.waiting = False
            outputs.append(CancelTimer((TIMER, connection)))
        if incomplete and not stream.waiting:
            stream.waiting = True
            outputs = [SetTimer((TIMER, connection), now + MESSAGE_S_MAX)]
        return outputs

    def _doom(self, connection: int, stream: _Stream) -> list[Output]:
        stream.doomed = True
        waiting, stream.waiting = stream.waiting, False
        cancelled: list[Output] = [CancelTimer((TIMER, connection))] if waiting else []
        return [*cancelled, CloseStream(self._ways.socket, connection)]
