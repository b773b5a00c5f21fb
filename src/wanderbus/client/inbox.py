"""Inbox of one subscription: items that arrived and wait for the application (the agent's side of a reader)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from wanderbus.errors import WanderbusError
from wanderbus.event import Gap, Notification
from wanderbus.protocol import TRANSFERRED
from wanderbus.subscription import Subscription

Item = Notification | Gap

QUIET_S: Final = 1.0
"""Silence after which the reader of ended subscriptions stops waiting for notifications still in flight."""


class InboxItems:
    """Items in the order of their arrival, each with its inbox, for one reader of one or several subscriptions."""

    def __init__(self) -> None:
        self.items: deque[tuple[Inbox, Item]] = deque()
        self.news = asyncio.Event()
        """Set when an item arrives, or when a subscription ends or fails."""
        self.asked = 0
        """Number of items that the application has requested so far."""

    async def wait(self, *, is_live: bool, is_connected: Callable[[], bool]) -> None:
        """Wait for news; if no subscription is live, raise the end of the iteration after a silence while connected."""
        self.news.clear()
        if is_live:
            await self.news.wait()
            return
        try:
            async with asyncio.timeout(QUIET_S):
                await self.news.wait()
        except TimeoutError:
            if is_connected():
                raise StopAsyncIteration from None


class Inbox:
    """State of one subscription that is being read, as the agent updates it; it enqueues the items in ``arrivals``."""

    def __init__(self, arrivals: InboxItems, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.arrivals = arrivals
        self.close = close
        """Stops reading, and ends the subscription unless it is kept."""
        self.subscription: Subscription | None = None
        """The subscription as stored at the broker, None while it is not open."""
        self.ended: str | None = None
        self.failure: WanderbusError | None = None
        self.is_unblocked = False
        """True if it was opened by asking for a notification outside a block."""
        self.waiting = 0
        """Number of items that arrived and were not requested yet."""
        self._asked_before = self._warned_at = -1
        """Number of requested items at the last check for a stall, and at the last warning."""

    @property
    def is_transferred(self) -> bool:
        """Return whether another device reads the subscription instead; nothing is in flight to this one."""
        return self.ended == TRANSFERRED

    def put(self, item: Item) -> None:
        """Enqueue an item for the application."""
        self.waiting += 1
        self.arrivals.items.append((self, item))
        self.arrivals.news.set()

    def is_stalled(self) -> bool:
        """Return whether items wait and none was requested since the last call; True once per stall."""
        asked = self.arrivals.asked
        is_stalled = self.waiting > 0 and asked == self._asked_before
        self._asked_before = asked
        if not is_stalled or self._warned_at == asked:
            return False
        self._warned_at = asked
        return True

    def go_on(self, subscription: Subscription) -> None:
        """Continue with ``subscription``: a new state of this one, or its successor."""
        if self.subscription is not None:
            self.subscription = subscription
            self.ended = None

    def end(self, reason: str) -> None:
        """End the iteration once all remaining items have been read."""
        self.ended = reason
        self.arrivals.news.set()

    def fail(self, failure: WanderbusError) -> None:
        """Raise ``failure`` in the reader once it has read the items that are here."""
        self.failure = failure
        self.arrivals.news.set()

    def empty(self) -> None:
        """Discard the items that wait, and wake the reader: the subscription was closed."""
        self.waiting = 0
        kept = [each for each in self.arrivals.items if each[0] is not self]
        self.arrivals.items.clear()
        self.arrivals.items.extend(kept)
        self.arrivals.news.set()
