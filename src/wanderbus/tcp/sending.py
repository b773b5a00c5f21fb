"""Sending half of a connection: messages are numbered, and kept until the peer acknowledges them (SPEC X37).

Bytes accepted by the operating system may still be lost, so only the peer's ACK removes a message.
"""

from __future__ import annotations

from collections import deque

from wanderbus.errors import RemoteProtocolError
from wanderbus.parameters.transports import TcpConfig
from wanderbus.tcp.frames import DATA, FINISH, encode


class Sender:
    """Frames in the order of their numbers: first the unacknowledged ones, then those that wait."""

    def __init__(self, config: TcpConfig) -> None:
        self.rtt_s: float | None = None
        """Smoothed round trip of the TCP connection in use, None if unknown."""
        self.waiting_bytes = 0
        self.finished = False
        self._config = config
        self._under_way: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._under_way_bytes = 0
        self._confirmed = 0
        self._next = 0
        self._position = 0
        self._grant = 0
        self._timed: tuple[int, float] | None = None
        self._abandoned = False

    @property
    def unacknowledged(self) -> bool:
        """Return whether the peer has frames to acknowledge."""
        return bool(self._under_way)

    @property
    def all_confirmed(self) -> bool:
        """Return whether the peer has acknowledged everything."""
        return not (self._under_way or self._waiting or self._abandoned)

    @property
    def blocked(self) -> bool:
        """Return whether only the peer's next grant permits progress."""
        return bool(self._waiting) and not self._under_way and self._position >= self._grant

    @property
    def overfull(self) -> bool:
        """Return whether more bytes wait than permitted."""
        return self._under_way_bytes + self.waiting_bytes > self._config.send_queue_bytes_max

    def queue(self, message: bytes) -> None:
        """Enqueue ``message`` after all earlier ones; after :meth:`finish` it is ignored."""
        if not self.finished:
            self._queue(encode(DATA, self._next, message))

    def finish(self) -> None:
        """Enqueue a FINISH after the last message."""
        if not self.finished:
            self._queue(encode(FINISH, self._next))
            self.finished = True

    def _queue(self, frame: bytes) -> None:
        self._next += 1
        self._waiting.append(frame)
        self.waiting_bytes += len(frame)

    def take_sendable(self, now: float) -> list[bytes]:
        """Return the frames that may be sent now; they count as unacknowledged from now on."""
        waiting, under_way, most = self._waiting, self._under_way, self._config.unacknowledged_bytes_max
        frames: list[bytes] = []
        while waiting and self._under_way_bytes < most and self._position < self._grant:
            frame = waiting.popleft()
            frames.append(frame)
            self._position += len(frame)
            self._under_way_bytes += len(frame)
            self.waiting_bytes -= len(frame)
        under_way.extend(frames)
        if frames and self._timed is None:
            self._timed = (self._confirmed + len(under_way), now)
        return frames

    def confirm(self, expected: int, grant: int, now: float) -> bool:
        """Remove the frames below ``expected``, which the peer acknowledged; return whether there were any.

        :raises RemoteProtocolError: the peer acknowledges a message that was not sent.
        """
        fresh = expected - self._confirmed
        if fresh > len(self._under_way):
            raise RemoteProtocolError("the peer acknowledged a message that was not sent", status=None)
        for _ in range(fresh):
            self._under_way_bytes -= len(self._under_way.popleft())
        progress = fresh > 0 or grant > self._grant
        self._confirmed = max(expected, self._confirmed)
        self._grant = max(grant, self._grant)
        if self._timed is not None and self._timed[0] <= self._confirmed:
            self.sample(now - self._timed[1])
            self._timed = None
        return progress

    def resume(self, expected: int, grant: int, now: float) -> int:
        """Continue over a new TCP connection with the message ``expected``; return the number of messages sent again.

        :raises RemoteProtocolError: the peer expects an acknowledged message, or one beyond those sent.
        """
        if expected < self._confirmed:
            raise RemoteProtocolError("the peer expects a message that it has already acknowledged", status=None)
        self._timed = self.rtt_s = None
        self.confirm(expected, grant, now)
        repeated = len(self._under_way)
        self._waiting.extendleft(reversed(self._under_way))
        self._under_way.clear()
        self.waiting_bytes += self._under_way_bytes
        self._position -= self._under_way_bytes
        self._under_way_bytes = 0
        return repeated

    def abandon(self) -> None:
        """Discard everything that will not be sent any more."""
        self._abandoned = not self.all_confirmed
        self._under_way.clear()
        self._waiting.clear()
        self.waiting_bytes = self._under_way_bytes = 0

    def sample(self, rtt_s: float) -> None:
        """Add a measured round trip to the estimate."""
        before = self.rtt_s
        self.rtt_s = rtt_s if before is None else before + self._config.rtt_gain * (rtt_s - before)
