"""Result of ``agent.merged``: one iteration over several subscriptions, in the order of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from wanderbus.client.inbox import Inbox, InboxItems
from wanderbus.client.notifications import Item, Notifications
from wanderbus.completion import public_names
from wanderbus.errors import Closed, LocalProtocolError
from wanderbus.event import Notification, Position
from wanderbus.protocol.presentation import presented

if TYPE_CHECKING:
    from wanderbus.client.agent import Agent
    from wanderbus.client.readers import Readers


class Merged(Generic[Item]):
    """The notifications of several subscriptions of one agent, in the order of the log, each once.

    A notification that several of them match arrives once, and ``notification.subscriptions`` names them all. A gap of
    a subscription with ``gaps=True`` arrives at the place of the first notification that it stands for; it is of that
    subscription alone, named in ``gap.lost``. Its ``position`` is that of the last one, and may be after that of the
    items that follow. Without ``gaps=True``, lost notifications are counted in ``dropped`` of the subscription.

    The block, ``await`` or the first request opens all subscriptions, and leaving the block or :meth:`aclose` closes
    them as they are closed by themselves: those with ``keep=True`` continue. Asking for the next item acknowledges the
    previous one for each of its subscriptions. The order needs one pace: the broker sends no subscription further ahead
    than the window of the slowest allows.

    If one of the subscriptions ends (SPEC G-10), the others continue. The iteration ends when all have ended, the agent
    is CONNECTED and nothing was received for :data:`~wanderbus.client.inbox.QUIET_S` seconds.
    """

    def __init__(self, agent: Agent, readers: Readers, members: Sequence[Notifications[Item]]) -> None:
        if not members or len(set(members)) < len(members):
            raise LocalProtocolError("merged() takes one or more different subscriptions")
        if any(each._agent is not agent for each in members):
            raise LocalProtocolError("merged() takes subscriptions of one agent; call subscribe of this agent")
        self._agent = agent
        self._readers = readers
        self._members = tuple(members)
        self._arrivals = InboxItems()
        self._by_inbox: dict[Inbox, Notifications[Item]] = {}
        self._unacknowledged: tuple[Position, list[Inbox]] | None = None
        self._last: Position | None = None
        """Position of the last notification that was returned."""
        self._was_opened = False

    def __repr__(self) -> str:
        return f"<Merged: {', '.join(map(repr, self._members))}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def __await__(self) -> Generator[Any, None, Self]:
        """Open the subscriptions without a block: ``merged = await agent.merged(...)``."""
        return self._open_unblocked().__await__()

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise LocalProtocolError("this iteration was opened before; call merged again with new subscriptions")
        self._was_opened = True
        try:
            for member in self._members:
                self._by_inbox[await member._join(self._arrivals)] = member
            self._readers.read_together(tuple(self._by_inbox))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading, and end the subscriptions that are not kept; does nothing if none is open."""
        self._unacknowledged = None
        await asyncio.gather(*(member.aclose() for member in self._by_inbox.values()))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if not self._was_opened:
            await self._open_unblocked()
        self._arrivals.asked += 1
        self.ack()
        while True:
            while not self._arrivals.items:
                await self._wait_for_item()
            inboxes, item = self._next_item()
            self._unacknowledged = item.position, inboxes
            if isinstance(item, Notification):
                if item.position != self._last:
                    self._last = item.position
                    return cast(Item, presented(item, self._format_for(inboxes)))
            elif item.count and self._by_inbox[inboxes[0]]._discarded(item):
                return cast(Item, item)
            self.ack()

    def ack(self) -> None:
        """Acknowledge the last item returned, for each of its subscriptions; first commit your results from it."""
        if self._unacknowledged is not None:
            (position, inboxes), self._unacknowledged = self._unacknowledged, None
            for inbox in inboxes:
                if inbox.subscription is not None:
                    self._readers.acknowledge(inbox.subscription.id, position)

    def _next_item(self) -> tuple[list[Inbox], Any]:
        """Remove the next item from the arrivals, with all inboxes in which the same notification follows."""
        items = self._arrivals.items
        inbox, item = items.popleft()
        inboxes = [inbox]
        while isinstance(item, Notification) and items and items[0][1] is item:
            inboxes.append(items.popleft()[0])
        for each in inboxes:
            each.waiting -= 1
        return inboxes, item

    def _format_for(self, inboxes: Sequence[Inbox]) -> str:
        is_xml = any(each.subscription is not None and each.subscription.format == "xml" for each in inboxes)
        return "xml" if is_xml else "event"

    async def _open_unblocked(self) -> Self:
        if self._was_opened:
            raise Closed("the merged subscriptions are closed; subscribe and merge again")
        await self.__aenter__()
        for inbox in self._by_inbox:
            inbox.is_unblocked = True
        return self

    async def _wait_for_item(self) -> None:
        """Wait for another item; raise the end of the iteration, or its failure, if there will be none."""
        for inbox in self._by_inbox:
            if inbox.failure is not None:
                raise inbox.failure
        if all(inbox.subscription is None for inbox in self._by_inbox):
            raise Closed("the merged subscriptions are closed; subscribe and merge again")
        if all(inbox.is_transferred for inbox in self._by_inbox):
            raise StopAsyncIteration
        is_live = any(inbox.ended is None for inbox in self._by_inbox)
        await self._arrivals.wait(is_live=is_live, is_connected=lambda: self._agent.status == "CONNECTED")
