"""Notifications that have come and that the application has not taken: how much the broker may send ahead.

A broker sends a window ahead of what is acknowledged (SPEC G-25). One that sends on fills the memory of the program.
"""

from __future__ import annotations

from collections import deque

from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Position


class Untaken:
    """Sizes of what each subscription has ahead of its application, ``bytes_max`` at most over all of them.

    One message of each subscription is not counted: it may always be on its way.
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
                f"the broker sends further ahead of what was taken than untaken_bytes_max, {self._bytes_max}", None
            )
        ahead.append((position, counted))
        self._bytes += counted

    def taken(self, subscription: str, position: Position) -> None:
        """The application has taken what came for ``subscription`` up to ``position``, and all of earlier epochs."""
        ahead = self._by_subscription.get(subscription)
        while ahead and (ahead[0][0].epoch != position.epoch or ahead[0][0].number <= position.number):
            self._bytes -= ahead.popleft()[1]

    def succeed(self, ended: str, successor: str) -> None:
        """Count the notifications of ``ended`` as of ``successor``, which replaces it."""
        if (ahead := self._by_subscription.pop(ended, None)) is not None:
            self._by_subscription[successor] = ahead

    def stopped(self, subscription: str) -> None:
        """The application reads ``subscription`` no more."""
        for _, counted in self._by_subscription.pop(subscription, ()):
            self._bytes -= counted
