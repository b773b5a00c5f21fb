"""Bound on notifications that arrived and that the application has not acknowledged.

A broker sends at most a window of unacknowledged notifications (SPEC G-25). A broker that ignores the window would fill
the memory of the program.
"""

from __future__ import annotations

from collections import deque

from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Position


class Untaken:
    """Sizes of the unacknowledged messages of each subscription; their sum is at most ``bytes_max``.

    One message of each subscription is not counted, since one may always be in flight.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_subscription: dict[str, deque[tuple[Position, int]]] = {}

    def came(self, subscription: str, position: Position, size: int) -> None:
        """Count a message for ``subscription``; :class:`RemoteProtocolError` beyond the bound."""
        ahead = self._by_subscription.setdefault(subscription, deque())
        counted = size if ahead else 0
        if counted and self._bytes + counted > self._bytes_max:
            raise RemoteProtocolError(
                f"the broker sent more unacknowledged bytes than untaken_bytes_max, {self._bytes_max}", None
            )
        ahead.append((position, counted))
        self._bytes += counted

    def taken(self, subscription: str, position: Position) -> None:
        """Remove messages of ``subscription`` up to ``position``, and all of earlier epochs: they were acknowledged."""
        ahead = self._by_subscription.get(subscription)
        while ahead and (ahead[0][0].epoch != position.epoch or ahead[0][0].number <= position.number):
            self._bytes -= ahead.popleft()[1]

    def succeed(self, ended: str, successor: str) -> None:
        """Count the messages of ``ended`` for ``successor``, which replaces it."""
        if (ahead := self._by_subscription.pop(ended, None)) is not None:
            self._by_subscription[successor] = ahead

    def stopped(self, subscription: str) -> None:
        """Remove all messages of ``subscription``: the application no longer reads it."""
        for _, counted in self._by_subscription.pop(subscription, ()):
            self._bytes -= counted
