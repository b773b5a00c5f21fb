"""Result of ``agent.subscribe``: an async context manager and async iterator of notifications."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from wanderbus import protocol
from wanderbus.completion import public_names
from wanderbus.errors import Closed, LocalProtocolError, Unreachable, WanderbusError
from wanderbus.event import Gap, Notification
from wanderbus.protocol.presentation import presented
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.client.agent import Agent
    from wanderbus.client.readers import Readers

Item = Notification | Gap

_log = logging.getLogger("wanderbus.agent")

LEAVE_S = 2.0
"""Timeout of leaving the block, while the broker ends the subscription."""

QUIET_S = 1.0
"""Silence after which the reader of an ended subscription stops waiting for notifications still in flight."""

_AGENTS_SIDE: Final = frozenset({"put", "go_on", "end", "fail"})
"""Methods that only the agent calls."""


class Notifications:
    """The notifications of one subscription, in order, each once.

    The block is entered once the subscription is durable at the broker. Asking for the next notification acknowledges
    the previous one; :meth:`ack` acknowledges it earlier. Leaving the block ends the subscription, unless it was made
    with ``keep=True``: then it continues, and the same ``subscribe`` finds it again. Without a block, ``await`` or
    asking for the first notification opens the subscription, and :meth:`aclose` or closing the agent ends it.

    With ``gaps=True`` the iterator yields a :class:`~wanderbus.Gap` where the broker discarded notifications; without
    it, they are counted in :attr:`dropped` and logged.

    A subscription may end without a request (SPEC G-10). If the agent renews or resubmits it
    (``connect(on_ended=...)``), the iteration continues without interruption, and :attr:`subscription` is the current
    one. Otherwise :attr:`ended` gives the reason. Notifications still queued are delivered (SPEC G-07), and the
    iteration ends when the agent is CONNECTED and has received nothing for :data:`QUIET_S` seconds.
    """

    def __init__(self, agent: Agent, readers: Readers, request: protocol.Subscribe, *, keep: bool, gaps: bool) -> None:
        self.dropped = 0
        """Number of this subscription's notifications that the broker discarded, up to the reader's position."""
        self.ended: str | None = None
        """Reason why the subscription ended without a request and without a successor; None while it is live."""
        self._agent = agent
        self._readers = readers
        self._request = request
        self._keep = keep
        self._gaps = gaps
        self._subscription: Subscription | None = None
        self._items: deque[Item] = deque()
        self._unacknowledged: Item | None = None
        self._asked = 0
        """Number of items requested so far; the next two are this number at the last check and the last warning."""
        self._asked_before = self._warned_at = -1
        self._was_opened = False
        self.is_unblocked = False
        """True if it was opened by asking for a notification outside a block."""
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
        """Return the subscription as stored at the broker; :class:`Closed` outside the block."""
        if self._subscription is None:
            raise Closed("the subscription is not open; use it inside its async with block")
        return self._subscription

    def __await__(self) -> Generator[Any, None, Self]:
        """Open the subscription without a block: ``subscription = await agent.subscribe(...)``."""
        return self._open_unblocked().__await__()

    async def __aenter__(self) -> Self:
        if self._subscription is not None:
            raise LocalProtocolError(
                "this subscription is already open; use only one block for it, or call subscribe again"
            )
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
        """Stop reading, and end the subscription unless it is kept; does nothing if it is not open."""
        if self._subscription is None:
            return
        subscription, self._subscription = self._subscription, None
        self.is_unblocked = False
        self._items.clear()
        self._unacknowledged = None
        if self._keep:
            self._readers.release(subscription.id)
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                requests = self._agent._requests
                await requests.ask(protocol.Unsubscribe(requests.next_request(), subscription.id, abandon=True))
        except (Closed, Unreachable, TimeoutError):
            _log.warning("subscription %s was not ended: the broker cannot be reached", subscription.id)
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
                await self._wait_for_item()
            item = self._unacknowledged = self._items.popleft()
            if isinstance(item, Notification):
                return presented(item, self._request.format)
            if not item.count:
                self.ack()  # all these notifications had arrived before the broker discarded them
                continue
            self.dropped += item.count
            if self._gaps:
                return item  # type: ignore[return-value]
            _log.warning("%s notifications were discarded at the broker: %s", item.count, item.reason)
            self.ack()

    def ack(self) -> None:
        """Acknowledge the last item returned, so that the broker can forget it; first commit your results from it."""
        if self._unacknowledged is not None:
            position = self._unacknowledged.position
            self._unacknowledged = None
            self._readers.acknowledge(self.subscription.id, position)

    async def _open_unblocked(self) -> Self:
        """Open the subscription outside a block and return it; :class:`Closed` if it was open before."""
        if self._failure is not None:
            raise self._failure
        if self._was_opened:
            raise Closed("the subscription is closed; enter its block again, or subscribe again")
        await self.__aenter__()
        self.is_unblocked = True
        return self

    async def _wait_for_item(self) -> None:
        """Wait for another item; raise the end of the iteration, or its failure, if there will be none."""
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
        """Enqueue an item for the application (the agent's side of this object)."""
        self._items.append(item)
        self._news.set()

    @property
    def waiting(self) -> int:
        """Return the number of items that arrived and were not requested yet."""
        return len(self._items)

    def is_stalled(self) -> bool:
        """Return whether items wait and none was requested since the last call; True once per stall."""
        is_stalled = bool(self._items) and self._asked == self._asked_before
        self._asked_before = self._asked
        if not is_stalled or self._warned_at == self._asked:
            return False
        self._warned_at = self._asked
        return True

    def go_on(self, subscription: Subscription) -> None:
        """Continue with ``subscription``: a new state of this one, or its successor (the agent's side)."""
        if self._subscription is not None:
            self._subscription = subscription
            self.ended = None

    def end(self, reason: str) -> None:
        """End the iteration once all remaining items have been read (the agent's side)."""
        self.ended = reason
        self._news.set()

    def fail(self, failure: WanderbusError) -> None:
        """Raise ``failure`` in the reader once it has read the items that are here (the agent's side)."""
        self._failure = failure
        self._news.set()
