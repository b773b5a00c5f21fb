"""What ``agent.subscribe`` gives: an async context manager that is an async iterator of notifications."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from wanderbus.api.dispatch import Item
from wanderbus.api.shown import public_names
from wanderbus.broker import protocol
from wanderbus.broker.presentation import presented
from wanderbus.errors import Closed, WanderbusError
from wanderbus.event import Notification
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.api.agent import Agent
    from wanderbus.api.readers import Readers

_log = logging.getLogger("wanderbus.agent")

LEAVE_S = 2.0
"""How long leaving the block waits for the broker to end the subscription."""

QUIET_S = 1.0
"""How long the reader of a subscription that has ended waits for what may still be on its way."""

_AGENTS_SIDE: Final = frozenset({"put", "go_on", "end", "fail"})
"""Methods that only the agent calls."""


class Notifications:
    """The notifications of one subscription, in order, each once.

    Entering the block returns when the subscription is durable at the broker. Asking for the next notification
    acknowledges the one before it; :meth:`ack` does so earlier. Leaving the block ends the subscription, unless
    it was made with ``keep=True``: then it lives on, and the same ``subscribe`` finds it again.

    With ``gaps=True`` a :class:`~wanderbus.Gap` stands where the broker had to drop some; otherwise they are
    counted in :attr:`dropped` and logged.

    A subscription may end without being asked to (SPEC G-10). Renewed or submitted anew (``connect(on_ended=...)``),
    it goes on here without a break, and :attr:`subscription` is the one that stands for it now. If nothing does,
    :attr:`ended` says why; what it has queued is still read (SPEC G-07), and the iteration ends once the broker,
    being reached, has sent nothing more for :data:`QUIET_S` seconds.
    """

    def __init__(self, agent: Agent, readers: Readers, request: protocol.Subscribe, *, keep: bool, gaps: bool) -> None:
        self.dropped = 0
        """Notifications of this subscription that the broker dropped, as far as this reader got."""
        self.ended: str | None = None
        """Why the subscription ended without being asked to and nothing stands for it; None while it lives."""
        self._agent = agent
        self._readers = readers
        self._request = request
        self._keep = keep
        self._gaps = gaps
        self._subscription: Subscription | None = None
        self._items: deque[Item] = deque()
        self._in_hand: Item | None = None
        self._news = asyncio.Event()
        self._failure: WanderbusError | None = None

    def __repr__(self) -> str:
        wanted, waiting = self._request, f"{len(self._items)} waiting, {self.dropped} dropped"
        if self.ended is not None:
            state = f"ended: {self.ended}; {waiting}"
        else:
            state = "not open" if self._subscription is None else f"{self._subscription.id}; {waiting}"
        return f"<Notifications of {wanted.subject!r} where {wanted.expression!r}, {state}>"

    def __dir__(self) -> list[str]:
        return public_names(self, but=_AGENTS_SIDE)

    @property
    def subscription(self) -> Subscription:
        """Return the subscription as the broker holds it; :class:`Closed` outside the block."""
        if self._subscription is None:
            raise Closed("the subscription is not open; use it inside its async with block")
        return self._subscription

    async def __aenter__(self) -> Self:
        answered = self._agent._requests.begin(self._request)
        try:
            (subscription,) = (await asyncio.shield(answered)).subscriptions
        except asyncio.CancelledError:
            if not self._keep:
                self._readers.abandon(answered)
            raise
        self._subscription = self._readers.claim(subscription, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subscription, self._subscription = self.subscription, None
        self._items.clear()
        self._in_hand = None
        if self._keep:
            self._readers.release(subscription.id, self, ended=False)
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._agent.unsubscribe(subscription.id)
        except (TimeoutError, Closed):
            _log.warning("subscription %s left behind: the broker could not be told", subscription.id)
        finally:
            self._readers.release(subscription.id, self, ended=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        self.ack()
        while True:
            while not self._items:
                await self._more()
            item = self._in_hand = self._items.popleft()
            if isinstance(item, Notification):
                return presented(item, self._request.format)
            self.dropped += item.count
            if self._gaps:
                return item  # type: ignore[return-value]
            _log.warning("%s notifications were dropped at the broker: %s", item.count, item.reason)
            self.ack()

    def ack(self) -> None:
        """Tell the broker that what is in hand was taken; what it led to should be committed."""
        if self._in_hand is not None:
            position = self._in_hand.position
            self._in_hand = None
            self._readers.took(self.subscription.id, position)

    async def _more(self) -> None:
        """Wait for another item; raise what ends the iteration if there will be none."""
        if self._failure is not None:
            raise self._failure
        self._news.clear()
        if self.ended is None:
            await self._news.wait()
            return
        try:
            async with asyncio.timeout(QUIET_S):
                await self._news.wait()
        except TimeoutError:
            if self._agent.status == "CONNECTED":
                raise StopAsyncIteration from None

    def put(self, item: Item) -> None:
        """Take an item for the application to ask for (the agent's side of this object)."""
        self._items.append(item)
        self._news.set()

    def go_on(self, subscription: Subscription) -> None:
        """Read ``subscription``, which lives: as it is now, or in place of one that ended (the agent's side)."""
        if self._subscription is not None:
            self._subscription = subscription
            self.ended = None

    def end(self, reason: str) -> None:
        """Let the reader end once it has read what is left (the agent's side)."""
        self.ended = reason
        self._news.set()

    def fail(self, failure: WanderbusError) -> None:
        """Let the reader end with ``failure`` once it has read what is here (the agent's side)."""
        self._failure = failure
        self._news.set()
