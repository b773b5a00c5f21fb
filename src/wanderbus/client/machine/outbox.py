"""Order of sending from an agent's outbox, with retries (SPEC G-20, X25).

Events are numbered without gaps, no number is reused, and the broker treats a repeated number as the same event. An
event may therefore be sent again after any crash, as long as the broker remembers its number; the window ensures that.
No event may be sent while an earlier one may still have to be retried. So a temporarily refused event holds up later
events, and nothing is sent until all events in flight have been answered.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from wanderbus.protocol import NUMBER_USED
from wanderbus.protocol.outbox_order import is_temporary

WINDOW: Final = 512
"""Most numbers from the oldest stored event to the newest sent one: fewer than the broker remembers."""

RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 30.0
"""Shortest and longest pause before a temporarily refused event is sent again; it doubles each time."""


class OutboxNumbers:
    """Numbers of stored events, in their order of publication."""

    def __init__(self, stored: Iterable[int] = ()) -> None:
        self._stored = dict.fromkeys(sorted(stored))
        self._unsent = list(self._stored)
        self._in_flight: set[int] = set()
        self._pause_s = 0.0
        self._retry_at: float | None = None
        self._is_number_used = False

    @property
    def needs_epoch(self) -> bool:
        """True if the stored events need another epoch: a number was used for another event, and none is in flight."""
        return self._is_number_used and not self._in_flight

    def renewed(self) -> None:
        """Handle that the stored events have another epoch, durably."""
        self._is_number_used = False

    def stored(self, number: int) -> None:
        """Add the event ``number``, which is durable on this device."""
        self._stored[number] = None
        heapq.heappush(self._unsent, number)

    def removed(self, numbers: Iterable[int]) -> None:
        """Remove the settled events ``numbers``, which were durably deleted."""
        for number in numbers:
            del self._stored[number]

    def ready(self, now: float) -> bool:
        """Return whether there is an event to send at monotonic second ``now``."""
        if self._is_number_used:
            return False
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
        """Return the time of the next retry, None if there is none, or events are in flight or need another epoch."""
        return None if self._in_flight or self._is_number_used else self._retry_at

    def settled(self, number: int, limit: str | None, now: float) -> bool:
        """Handle that the broker accepted or refused ``number``; return whether that is final and it can be removed."""
        self._in_flight.discard(number)
        if limit == NUMBER_USED:
            self._is_number_used = True
        if is_temporary(limit):
            heapq.heappush(self._unsent, number)
            if self._retry_at is None:
                self._pause_s = min(2 * self._pause_s or RETRY_S_MIN, RETRY_S_MAX)
                self._retry_at = now + self._pause_s
            return False
        if self._retry_at is None:
            self._pause_s = 0.0
        return True
