"""A link with a fixed round trip between two endpoints, in virtual time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from wanderbus.machine import DatagramReceived, Input, SendDatagram, TimerFired

if TYPE_CHECKING:
    from tests.rudp.conftest import Pair, Side


class Link:
    """The future of a pair; a datagram longer than ``datagram_bytes_max`` is dropped silently."""

    def __init__(self, pair: Pair, rtt_s: float, datagram_bytes_max: int | None = None) -> None:
        self.pair = pair
        self.now = 0.0
        self.largest_burst = 0
        self.datagram_bytes_max = datagram_bytes_max
        self._rtt_s = rtt_s
        self._heap: list[tuple[float, int, Side, Input]] = []
        self._order = 0

    def send(self, *messages: bytes) -> float:
        """Send messages from left to right at once; return the seconds until the last one has arrived."""
        began_s, expected = self.now, len(self.pair.right.received) + len(messages)
        self._carry(self.pair.left, self.pair.left.send(self.now, *messages))
        while len(self.pair.right.received) < expected:
            self._step()
        return self.now - began_s

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            self._step()
        self.now = until

    def _step(self) -> None:
        self.now, _, side, item = heapq.heappop(self._heap)
        if isinstance(item, TimerFired):
            if side.timer_at is None or side.timer_at > self.now:
                return
            side.timer_at = None
        self._carry(side, side.step(self.now, item))

    def _carry(self, side: Side, datagrams: list[SendDatagram]) -> None:
        pair = self.pair
        peer = pair.right if side is pair.left else pair.left
        self.largest_burst = max(self.largest_burst, len(datagrams))
        for datagram in datagrams:
            if self.datagram_bytes_max is None or len(datagram.data) <= self.datagram_bytes_max:
                self._later(self.now + self._rtt_s / 2, peer, DatagramReceived("data", side.address, datagram.data))
        if side.timer_at is not None:
            self._later(side.timer_at, side, TimerFired(side.local_id))

    def _later(self, at: float, side: Side, item: Input) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, side, item))
