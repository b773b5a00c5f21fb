"""Result of ``agent.subscribe``: an async context manager and async iterator of notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from wanderbus import protocol
from wanderbus.client.inbox import Inbox, InboxItems
from wanderbus.client.inbox import Item as AnyItem
from wanderbus.completion import public_names
from wanderbus.errors import Closed, LocalProtocolError, Unreachable
from wanderbus.event import Gap, Notification
from wanderbus.protocol.presentation import presented
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.client.agent import Agent
    from wanderbus.client.readers import Readers

Item = TypeVar("Item", bound=Notification | Gap, covariant=True)
"""Type of the items of an iterator: ``Notification``, or ``Notification | Gap`` with ``gaps=True``."""

_log = logging.getLogger("wanderbus.agent")

LEAVE_S = 2.0
"""Timeout of leaving the block, while the broker ends the subscription."""


class Notifications(Generic[Item]):
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
    iteration ends when the agent is CONNECTED and has received nothing for
    :data:`~wanderbus.client.inbox.QUIET_S` seconds.
    """

    def __init__(
        self,
        agent: Agent,
        readers: Readers,
        request: protocol.Subscribe | Subscription,
        *,
        keep: bool,
        gaps: bool,
    ) -> None:
        self._agent = agent
        self._readers = readers
        self._request = request
        self._keep = keep
        self._gaps = gaps
        self._dropped = 0
        self._arrivals = InboxItems()
        self._inbox = Inbox(self._arrivals, self.aclose)
        self._unacknowledged: AnyItem | None = None
        self._was_opened = self._is_member = False

    def __repr__(self) -> str:
        wanted, waiting = self._request, f"{self._inbox.waiting} waiting, {self._dropped} dropped"
        if self._inbox.ended is not None:
            state = f"ended: {self._inbox.ended}; {waiting}"
        else:
            known = self._inbox.subscription
            state = "not open" if known is None else f"{known.id}; {waiting}"
        return f"<Notifications of {wanted.subject!r} where {wanted.expression!r}, {state}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    @property
    def subscription(self) -> Subscription:
        """Return the subscription as stored at the broker; :class:`Closed` outside the block."""
        if self._inbox.subscription is None:
            raise Closed("the subscription is not open; use it inside its async with block")
        return self._inbox.subscription

    @property
    def dropped(self) -> int:
        """Return the number of this subscription's notifications that the broker discarded, up to the last item."""
        return self._dropped

    @property
    def ended(self) -> str | None:
        """Return the reason why the subscription ended without a request and without a successor; None while live."""
        return self._inbox.ended

    def __await__(self) -> Generator[Any, None, Self]:
        """Open the subscription without a block: ``subscription = await agent.subscribe(...)``."""
        return self._open_unblocked().__await__()

    async def __aenter__(self) -> Self:
        self._check_alone()
        await self._open(reads=True)
        return self

    async def _open(self, *, reads: bool) -> None:
        """Subscribe, and claim the subscription for this reader; start reading it if ``reads``."""
        if self._inbox.subscription is not None:
            raise LocalProtocolError(
                "this subscription is already open; use only one block for it, or call subscribe again"
            )
        wanted = self._request
        subscription = wanted if isinstance(wanted, Subscription) else await self._subscribe(reads=reads)
        self._inbox.subscription = self._readers.claim(subscription, self._inbox)
        self._readers.forget_left(subscription.id)
        self._was_opened = True
        if reads and subscription is wanted:
            self._readers.read_together([self._inbox])

    async def _subscribe(self, *, reads: bool) -> Subscription:
        answered = self._agent._requests.begin(self._request, reads=reads)
        try:
            (subscription,) = (await asyncio.shield(answered)).subscriptions
        except asyncio.CancelledError:
            if not self._keep:
                self._readers.abandon(answered)
            raise
        return subscription

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading, and end the subscription unless it is kept; does nothing if it is not open."""
        subscription, self._inbox.subscription = self._inbox.subscription, None
        if subscription is None:
            return
        self._inbox.is_unblocked = False
        self._inbox.empty()
        self._unacknowledged = None
        if self._keep or self._inbox.is_transferred:
            self._readers.release(subscription.id)
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                requests = self._agent._requests
                await requests.ask(protocol.Unsubscribe(requests.next_request(), subscription.id, abandon=True))
        except (Closed, Unreachable, TimeoutError):
            self._readers.leave_behind(subscription.id)
            _log.warning(
                "subscription %s was not ended: the broker cannot be reached; the next agent of this device ends it",
                subscription.id,
            )
        finally:
            self._readers.release(subscription.id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        self._check_alone()
        if self._inbox.subscription is None:
            await self._open_unblocked()
        self._arrivals.asked += 1
        self.ack()
        while True:
            while not self._arrivals.items:
                await self._wait_for_item()
            _, item = self._arrivals.items.popleft()
            self._inbox.waiting -= 1
            self._unacknowledged = item
            if isinstance(item, Notification):
                return cast(Item, presented(item, self._request.format))
            if not item.count:
                self.ack()  # all these notifications had arrived before the broker discarded them
                continue
            if self._discarded(item):
                return cast(Item, item)
            self.ack()

    def ack(self) -> None:
        """Acknowledge the last item returned, so that the broker can forget it; first commit your results from it."""
        if self._unacknowledged is not None:
            position = self._unacknowledged.position
            self._unacknowledged = None
            self._readers.acknowledge(self.subscription.id, position)

    async def _join(self, arrivals: InboxItems) -> Inbox:
        """Open the subscription as a member of a merged iteration, which reads ``arrivals``; return its inbox."""
        self._check_alone()
        if self._was_opened:
            raise LocalProtocolError("this subscription was opened by itself; call subscribe again to merge it")
        self._is_member = True
        self._inbox = Inbox(arrivals, self.aclose)
        await self._open(reads=False)
        return self._inbox

    def _check_alone(self) -> None:
        if self._is_member:
            raise LocalProtocolError("this subscription is merged with others; read the merged iteration")

    def _discarded(self, gap: Gap) -> bool:
        """Count the notifications lost in a gap; return whether the application wants the gap, otherwise log it."""
        self._dropped += gap.count
        if not self._gaps:
            _log.warning("%s notifications were discarded at the broker: %s", gap.count, gap.reason)
        return self._gaps

    async def _open_unblocked(self) -> Self:
        """Open the subscription outside a block and return it; :class:`Closed` if it was open before."""
        if self._inbox.failure is not None:
            raise self._inbox.failure
        if self._was_opened:
            raise Closed("the subscription is closed; enter its block again, or subscribe again")
        await self.__aenter__()
        self._inbox.is_unblocked = True
        return self

    async def _wait_for_item(self) -> None:
        """Wait for another item; raise the end of the iteration, or its failure, if there will be none."""
        if self._inbox.failure is not None:
            raise self._inbox.failure
        if self._inbox.subscription is None:
            raise Closed("the subscription was closed while this reader waited; subscribe again")
        if self._inbox.is_transferred:
            raise StopAsyncIteration
        is_live = self._inbox.ended is None
        await self._arrivals.wait(is_live=is_live, is_connected=lambda: self._agent.status == "CONNECTED")
