"""What ``agent.subscribe`` gives: an async context manager that is an async iterator of notifications."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wanderbus.api.dispatch import Item
from wanderbus.broker import protocol
from wanderbus.errors import Closed, WanderbusError
from wanderbus.event import Notification
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.api.agent import Agent

_log = logging.getLogger("wanderbus.agent")

LEAVE_S = 2.0
"""How long leaving the block waits for the broker to end the subscription."""


class Notifications:
    """The notifications of one subscription, in order, each once.

    Entering the block returns when the subscription is durable at the broker. Asking for the next notification
    acknowledges the one before it; :meth:`ack` does so earlier. Leaving the block ends the subscription, unless
    it was made with ``keep=True``: then it lives on, and the same ``subscribe`` finds it again.

    With ``gaps=True`` a :class:`~wanderbus.Gap` stands where the broker had to drop some; otherwise they are
    counted in :attr:`dropped` and logged.
    """

    def __init__(self, agent: Agent, request: protocol.Subscribe, *, keep: bool, gaps: bool) -> None:
        self.dropped = 0
        """Notifications that the broker dropped, as far as this reader got."""
        self._agent = agent
        self._request = request
        self._keep = keep
        self._gaps = gaps
        self._subscription: Subscription | None = None
        self._items: deque[Item] = deque()
        self._in_hand: Item | None = None
        self._news = asyncio.Event()
        self._failure: WanderbusError | None = None

    @property
    def subscription(self) -> Subscription:
        """Return the subscription as the broker holds it; :class:`Closed` outside the block."""
        if self._subscription is None:
            raise Closed("the subscription is not open; use it inside its async with block")
        return self._subscription

    async def __aenter__(self) -> Self:
        answered = self._agent.begin(self._request)
        try:
            (subscription,) = await asyncio.shield(answered)
        except asyncio.CancelledError:
            if not self._keep:
                self._agent.abandon(answered)
            raise
        self._agent.claim(subscription, self)
        self._subscription = subscription
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subscription, self._subscription = self.subscription, None
        untaken = [self._in_hand, *self._items] if self._in_hand else list(self._items)
        self._items.clear()
        self._in_hand = None
        if self._keep:
            self._agent.release(subscription.id, self, untaken, ended=False)
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._agent.unsubscribe(subscription.id)
        except (TimeoutError, Closed):
            _log.warning("subscription %s left behind: the broker could not be told", subscription.id)
        finally:
            self._agent.release(subscription.id, self, untaken, ended=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        self.ack()
        while True:
            while not self._items:
                if self._failure is not None:
                    raise self._failure
                self._news.clear()
                await self._news.wait()
            item = self._items.popleft()
            if isinstance(item, Notification):
                self._in_hand = item
                return item
            self.dropped += item.count
            if self._gaps:
                return item  # type: ignore[return-value]
            _log.warning("%s notifications were dropped at the broker: %s", item.count, item.reason)

    def ack(self) -> None:
        """Tell the broker that the notification in hand was taken; what it led to should be committed."""
        if self._in_hand is not None:
            number = self._in_hand.position.number
            self._in_hand = None
            self._agent.took(self.subscription.id, number)

    def put(self, item: Item) -> None:
        """Take an item for the application to ask for (the agent's side of this object)."""
        self._items.append(item)
        self._news.set()

    def fail(self, failure: WanderbusError) -> None:
        """Let the reader end with ``failure`` once it has read what is here (the agent's side)."""
        self._failure = failure
        self._news.set()
