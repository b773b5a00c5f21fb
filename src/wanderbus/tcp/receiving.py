"""The receiving half of a connection: each message once and in order, and how much the peer may send."""

from __future__ import annotations

from collections import deque

from wanderbus.errors import RemoteProtocolError
from wanderbus.tcp.config import TcpConfig
from wanderbus.tcp.frames import HEADER_BYTES


class Receiver:
    """What the peer may rely on: ``expected``, the number of the next message, and the grant last told to it."""

    def __init__(self, config: TcpConfig) -> None:
        self.expected = 0
        self.finished = False
        self._window_bytes = config.receive_window_bytes
        self._consume_at_once = config.consume_at_once
        self._position = 0
        self._consumed = 0
        self._granted = 0
        self._unconsumed: deque[int] = deque()

    def take(self, number: int, message_bytes: int, finish: bool = False) -> bool:
        """Tell whether the frame ``number`` is the one expected, which is then taken; False for a repeated one.

        :raises RemoteProtocolError: one before it is missing, it exceeds the grant, or the peer had finished.
        """
        if number != self.expected:
            if number < self.expected:
                return False
            raise RemoteProtocolError("a message is missing", status=None)
        if self._position >= self._granted or self.finished:
            raise RemoteProtocolError("more was sent than was granted", status=None)
        self.expected = number + 1
        self.finished = finish
        self._position += HEADER_BYTES + message_bytes
        if self._consume_at_once or finish:
            self._consumed += HEADER_BYTES + message_bytes
        else:
            self._unconsumed.append(HEADER_BYTES + message_bytes)
        return True

    def consume(self, messages: int) -> None:
        """The owner is done with so many more messages."""
        for _ in range(min(messages, len(self._unconsumed))):
            self._consumed += self._unconsumed.popleft()

    @property
    def grant_due(self) -> bool:
        """Whether the peer should hear that it may send more: half the window at least."""
        return self.grantable - self._granted >= self._window_bytes / 2

    @property
    def grantable(self) -> int:
        """The grant that the peer could be told."""
        return self._consumed + self._window_bytes

    def grant(self) -> int:
        """Return the grant that the peer is told now."""
        self._granted = self.grantable
        return self._granted
