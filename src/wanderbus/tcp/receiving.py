"""Receiving half of a connection: each message once and in order, and flow control by grants."""

from __future__ import annotations

from collections import deque

from wanderbus.errors import RemoteProtocolError
from wanderbus.parameters.transports import TcpConfig
from wanderbus.tcp.frames import HEADER_BYTES


class Receiver:
    """State announced to the peer: ``expected``, the number of the next message, and the last grant."""

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
        """Return whether the frame ``number`` is the expected one, and accept it; False for a repeated one.

        :raises RemoteProtocolError: an earlier frame is missing, it exceeds the grant, or the peer had finished.
        """
        if number != self.expected:
            if number < self.expected:
                return False
            raise RemoteProtocolError("a message is missing", status=None)
        if self._position >= self._granted or self.finished:
            raise RemoteProtocolError("the peer sent more than was granted", status=None)
        self.expected = number + 1
        self.finished = finish
        self._position += HEADER_BYTES + message_bytes
        if self._consume_at_once or finish:
            self._consumed += HEADER_BYTES + message_bytes
        else:
            self._unconsumed.append(HEADER_BYTES + message_bytes)
        return True

    def consume(self, messages: int) -> None:
        """Record that the owner has consumed ``messages`` more messages."""
        for _ in range(min(messages, len(self._unconsumed))):
            self._consumed += self._unconsumed.popleft()

    @property
    def grant_due(self) -> bool:
        """Return whether the peer needs a new grant: at least half of the window was consumed."""
        return self.grantable - self._granted >= self._window_bytes / 2

    @property
    def grantable(self) -> int:
        """Return the grant that can be announced to the peer."""
        return self._consumed + self._window_bytes

    def grant(self) -> int:
        """Return the new grant, to be announced to the peer now."""
        self._granted = self.grantable
        return self._granted
