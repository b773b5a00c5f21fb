"""What ``agent.subscribe`` gives: an async context manager that is an async iterator of notifications."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from wanderbus import protocol
from wanderbus.completion import public_names
from wanderbus.errors import Closed, LocalProtocolError, WanderbusError
from wanderbus.event import Gap, Notification
from wanderbus.protocol.presentation import presented
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.client.agent import Agent
    from wanderbus.client.readers import Readers

Item = Notification | Gap

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
    it was made with ``keep=True``: then it lives on, and the same ``subscribe`` finds it again. Without a block,
    asking for the first notification opens the subscription, and :meth:`aclose` or closing the agent ends it.

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
        self._asked = 0
        """How often something was asked for; at the last look; when it was found to stand still."""
        self._asked_before = self._warned_at = -1
        self._was_opened = False
        self.is_unblocked = False
        """Whether it was opened by asking for a notification outside a block."""
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
        if self._subscription is not None:
            raise LocalProtocolError("this subscription is open already; use one block for it, or subscribe again")
        answered = self._agent._requests.begin(self._request, reads=True)
        try:
            (subscription,) = (await asyncio.shield(answered)).subscriptions
        except asyncio.CancelledError:
            if not self._keep:
                self._readers.abandon(answered)
            raise
        self._subscription = self._readers.claim(subscription, self)
        self._was_opened = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the subscription, unless it is kept, and the reading of it; done also when it is not open."""
        if self._subscription is None:
            return
        subscription, self._subscription = self._subscription, None
        self.is_unblocked = False
        self._items.clear()
        self._in_hand = None
        if self._keep:
            self._readers.release(subscription.id)
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                requests = self._agent._requests
                await requests.ask(protocol.Unsubscribe(requests.next_request(), subscription.id, abandon=True))
        except (TimeoutError, Closed):
            _log.warning("subscription %s left behind: the broker cannot be reached", subscription.id)
        finally:
            self._readers.release(subscription.id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        if self._subscription is None:
            await self._open_unblocked()
        self._asked += 1
        self.ack()
        while True:
            while not self._items:
                await self._more()
            item = self._in_hand = self._items.popleft()
            if isinstance(item, Notification):
                return presented(item, self._request.format)
            if not item.count:
                self.ack()  # all of it had come before it was dropped
                continue
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

    async def _open_unblocked(self) -> None:
        """Open the subscription for an iteration outside a block; one that was closed stays so."""
        if self._failure is not None:
            raise self._failure
        if self._was_opened:
            raise Closed("the subscription is closed; enter its block again, or subscribe again")
        await self.__aenter__()
        self.is_unblocked = True

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

    @property
    def waiting(self) -> int:
        """Return how many items have come and were not asked for."""
        return len(self._items)

    def stands_still(self) -> bool:
        """Return whether nothing was asked for since the last call, though something waits; true once until it is."""
        stands_still = bool(self._items) and self._asked == self._asked_before
        self._asked_before = self._asked
        if not stands_still or self._warned_at == self._asked:
            return False
        self._warned_at = self._asked
        return True

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
