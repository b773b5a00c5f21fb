"""Which event of an agent's outbox is sent when, and which is done with (SPEC G-20, X25).

Events are numbered without holes and never anew, and the broker takes a repeated number for the same event. So
what was sent may be sent again after any crash, as long as the broker remembers it; hence the window. And no number
may be sent while a lower one may still have to be: an event that the broker refuses for the time being holds up those
behind it, and nothing is sent before all that is in flight has been answered.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

WINDOW: Final = 512
"""Numbers from the oldest event that is stored to the newest that is sent: fewer than the broker remembers."""

RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 30.0
"""Pauses before what was refused for the time being is sent again: each is twice the one before."""


def passes(limit: str | None) -> bool:
    """Return whether an event that was refused because of ``limit`` may be taken later: for want of room."""
    return limit is not None and (limit == "disk_full" or "queue" in limit)


class Outbox:
    """The numbers of stored events, in the order of which they are published."""

    def __init__(self, stored: Iterable[int] = ()) -> None:
        self._stored = dict.fromkeys(sorted(stored))
        self._unsent = list(self._stored)
        self._in_flight: set[int] = set()
        self._pause_s = 0.0
        self._retry_at: float | None = None

    def stored(self, number: int) -> None:
        """The event ``number`` is durable here."""
        self._stored[number] = None
        heapq.heappush(self._unsent, number)

    def removed(self, numbers: Iterable[int]) -> None:
        """The events ``numbers``, which were settled, are durably gone."""
        for number in numbers:
            del self._stored[number]

    def ready(self, now: float) -> bool:
        """Return whether there is an event to send at monotonic second ``now``."""
        if self._retry_at is not None:
            if self._in_flight or now < self._retry_at:
                return False
            self._retry_at = None
        return bool(self._unsent) and self._unsent[0] - next(iter(self._stored)) < WINDOW

    def next(self, now: float) -> int | None:
        """Return the event to send at monotonic second ``now``, None if there is none."""
        if not self.ready(now):
            return None
        number = heapq.heappop(self._unsent)
        self._in_flight.add(number)
        return number

    def wake_at(self) -> float | None:
        """Return when there may be something to send though nothing happens until then."""
        return None if self._in_flight else self._retry_at

    def settled(self, number: int, limit: str | None, now: float) -> bool:
        """The broker took or refused ``number``; return whether that is for good, so that it may be removed."""
        self._in_flight.discard(number)
        if passes(limit):
            heapq.heappush(self._unsent, number)
            if self._retry_at is None:
                self._pause_s = min(2 * self._pause_s or RETRY_S_MIN, RETRY_S_MAX)
                self._retry_at = now + self._pause_s
            return False
        if self._retry_at is None:
            self._pause_s = 0.0
        return True
