"""One end of a link that goes through other domains: what is on its way, and what waits for its turn."""

from __future__ import annotations

from collections import deque
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.routed.messages import LinkId, RoutedCarried, RoutedProbed
from wanderbus.federation.routed.outputs import TreePath

WINDOW_MESSAGES: Final = 256
"""Messages on their way that the other end has not finished with."""

WINDOW_BYTES: Final = 2**19
"""Bytes of these, beside the first message: all links through one domain share what that passes on."""

FINISHED_EACH: Final = 32
"""Messages after which an end says what it has finished with; it does so twice a second in any case."""


class RoutedEnd:
    """The end here of a link to ``domain``; what it sends waits for the window, as on other links."""

    def __init__(self, link: int, domain: str, path: TreePath, identity: LinkId, now: float, *, is_ours: bool) -> None:
        self.link = link
        self.domain = domain
        self.path = path
        self.id = identity
        self.is_ours = is_ours
        self.is_open = not is_ours
        self.heard = now
        self._waiting: deque[bytes] = deque()
        self._under_way: deque[int] = deque()
        """Sizes of messages that the other end has not finished with."""
        self._bytes = 0
        self._sent = self._received = self._finished = self._said = 0

    def send(self, payload: bytes) -> list[RoutedCarried]:
        """Send a message, or let it wait; return what goes out now."""
        self._waiting.append(payload)
        return self._pump()

    def received(self, message: RoutedCarried) -> bytes:
        """Take a message; :class:`RemoteProtocolError` if one was lost, or the window has no place for it."""
        if message.number != self._received + 1:
            raise RemoteProtocolError("a message was lost", None)
        if self._received - self._finished >= WINDOW_MESSAGES:
            raise RemoteProtocolError(f"more than {WINDOW_MESSAGES} messages are on their way", None)
        self._received += 1
        return message.payload

    def probed(self, message: RoutedProbed) -> list[RoutedCarried]:
        """Take what the other end has sent and finished with; return what goes out now.

        Raises :class:`RemoteProtocolError` if a message was lost, or the other end has finished with too much.
        """
        if message.last > self._received:
            raise RemoteProtocolError("a message was lost", None)
        count = message.finished - (self._sent - len(self._under_way))
        if count > len(self._under_way):
            raise RemoteProtocolError("messages are finished that were never sent", None)
        for _ in range(count):
            self._bytes -= self._under_way.popleft()
        return self._pump()

    def finished(self, count: int) -> RoutedProbed | None:
        """Note that ``count`` further messages are finished; return what to say of it now."""
        self._finished = min(self._finished + count, self._received)
        return self.probe() if self._finished - self._said >= FINISHED_EACH else None

    def probe(self) -> RoutedProbed:
        """Return the state of this end for the other one."""
        self._said = self._finished
        return RoutedProbed(self.id, self._sent, self._finished)

    def _pump(self) -> list[RoutedCarried]:
        sent = []
        while self._waiting and len(self._under_way) < WINDOW_MESSAGES and self._bytes < WINDOW_BYTES:
            payload = self._waiting.popleft()
            self._sent += 1
            self._under_way.append(len(payload))
            self._bytes += len(payload)
            sent.append(RoutedCarried(self.id, self._sent, payload))
        return sent
