"""The sending half of a connection: messages are numbered, and kept until the peer has them (SPEC X37).

That the operating system took bytes does not say that they arrived, so only the peer's ACK lets a message go.
"""

from __future__ import annotations

from collections import deque

from wanderbus.errors import RemoteProtocolError
from wanderbus.tcp.config import TcpConfig
from wanderbus.tcp.frames import DATA, FINISH, encode


class Sender:
    """Frames in the order of their numbers: first those under way, then those that wait."""

    def __init__(self, config: TcpConfig) -> None:
        self.rtt_s: float | None = None
        """The smoothed round trip of the present TCP connection, None if unknown."""
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
        """Whether the peer owes an ACK, should it be reachable."""
        return bool(self._under_way)

    @property
    def all_confirmed(self) -> bool:
        """Whether the peer has acknowledged everything."""
        return not (self._under_way or self._waiting or self._abandoned)

    @property
    def blocked(self) -> bool:
        """Whether nothing but the peer's next grant lets anything happen."""
        return bool(self._waiting) and not self._under_way and self._position >= self._grant

    @property
    def overfull(self) -> bool:
        """Whether more waits for the other side than may."""
        return self._under_way_bytes + self.waiting_bytes > self._config.send_queue_bytes_max

    def queue(self, message: bytes) -> None:
        """Send ``message`` after all before it; after :meth:`finish` it is ignored."""
        if not self.finished:
            self._queue(encode(DATA, self._next, message))

    def finish(self) -> None:
        """Tell the peer, after the last message, that it was the last."""
        if not self.finished:
            self._queue(encode(FINISH, self._next))
            self.finished = True

    def _queue(self, frame: bytes) -> None:
        self._next += 1
        self._waiting.append(frame)
        self.waiting_bytes += len(frame)

    def take_sendable(self, now: float) -> list[bytes]:
        """Return the frames that may leave now; they are under way from now on."""
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
        """The peer has everything below ``expected``; return whether that is news.

        :raises RemoteProtocolError: it claims what it was not sent.
        """
        fresh = expected - self._confirmed
        if fresh > len(self._under_way):
            raise RemoteProtocolError("a message was acknowledged that was not sent", status=None)
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
        """Go on over a new TCP connection with the message ``expected``; return how many are sent again.

        :raises RemoteProtocolError: the peer lacks what it had acknowledged, or claims what it was not sent.
        """
        if expected < self._confirmed:
            raise RemoteProtocolError("the peer lacks what it had acknowledged", status=None)
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
        """Let go of what will not be sent any more."""
        self._abandoned = not self.all_confirmed
        self._under_way.clear()
        self._waiting.clear()
        self.waiting_bytes = self._under_way_bytes = 0

    def sample(self, rtt_s: float) -> None:
        """Take a round trip into account."""
        before = self.rtt_s
        self.rtt_s = rtt_s if before is None else before + self._config.rtt_gain * (rtt_s - before)
