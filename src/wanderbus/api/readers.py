"""The readers of one agent's notifications: from the stream to each, what was taken back to the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from wanderbus.agent.messages import RequestSettled, SubscriptionOver
from wanderbus.api.dispatch import Dispatcher, Item
from wanderbus.api.notifications import Notifications
from wanderbus.api.unclaimed import Unclaimed
from wanderbus.broker import protocol
from wanderbus.errors import LocalProtocolError, WanderbusError
from wanderbus.event import Position
from wanderbus.subscription import Subscription

_log = logging.getLogger("wanderbus.agent")

UNREAD_MAX: Final = 256
"""Ends of subscriptions without a reader that are remembered."""


class Line(Protocol):
    """What readers ask of the agent that they belong to."""

    def begin(self, request: Any) -> asyncio.Future[RequestSettled]:
        """Make a request of the broker; return its answer to come."""
        ...

    def next_request(self) -> int:
        """Return the number for another request."""
        ...

    def acknowledge(self, position: Position) -> None:
        """Tell the broker that everything up to ``position`` was taken."""
        ...


class Readers:
    """Everybody who reads a subscription through one agent."""

    def __init__(self, line: Line) -> None:
        self.dispatcher: Dispatcher[Notifications] = Dispatcher()
        self.unclaimed = Unclaimed(self.dispatcher, self._query, self._acknowledge)
        self._line = line
        self._open: set[Notifications] = set()
        self._unread: dict[str, SubscriptionOver] = {}
        """Ends of subscriptions that nobody read; their reader may be about to come."""
        self._abandoned: set[asyncio.Future[RequestSettled]] = set()
        self._closed = False

    def arrived(self, item: Item) -> None:
        """Pass on the next item of the stream."""
        self._acknowledge(self.dispatcher.arrived(item))
        self.unclaimed.look()

    def known(self, subscriptions: Sequence[Subscription]) -> None:
        """The broker says that these live, and what they are now."""
        self.unclaimed.known(subscriptions)
        for subscription in subscriptions:
            self._unread.pop(subscription.id, None)
            if (reader := self.dispatcher.reader(subscription.id)) is not None:
                reader.go_on(subscription)

    def over(self, over: SubscriptionOver) -> None:
        """A subscription ended unasked: its reader goes on with what stands for it, unless another one reads that."""
        lost, successor = over.subscription.id, over.successor
        reader = self.dispatcher.reader(lost)
        if successor is not None and successor.id == lost:
            self.unclaimed.known([successor])
        else:
            self.unclaimed.over(lost)
            if successor is not None and self.dispatcher.reader(successor.id) is None:
                self.unclaimed.known([successor])
                self.dispatcher.succeed(lost, successor.id)
            else:
                successor = None
        _log.warning("subscription %s ended (%s); %s", lost, over.reason, _then(successor))
        if reader is None:
            self._unread[lost] = over
            if len(self._unread) > UNREAD_MAX:
                del self._unread[next(iter(self._unread))]
        elif successor is None:
            reader.end(over.reason)
        else:
            reader.go_on(successor)

    def claim(self, subscription: Subscription, reader: Notifications) -> Subscription:
        """Let ``reader`` have the notifications of ``subscription``, or of what stands for it by now; return which.

        :raises LocalProtocolError: another one reads it
        """
        over = self._unread.pop(subscription.id, None)
        if over is not None and over.successor is not None:
            subscription = over.successor
        if self.dispatcher.reader(subscription.id) is not None:
            raise LocalProtocolError(
                "this agent reads the same subscription already; leave that block first, or vary the expression"
            )
        self._open.add(reader)
        self.unclaimed.bequeath(subscription)
        self.dispatcher.claim(subscription.id, reader)
        if over is not None and over.successor is None:
            reader.end(over.reason)
        return subscription

    def release(self, subscription: str, reader: Notifications, *, ended: bool) -> None:
        """End a reader; see :meth:`Dispatcher.release`."""
        self._open.discard(reader)
        self._acknowledge(self.dispatcher.release(subscription, ended=ended))

    def took(self, subscription: str, position: Position) -> None:
        """The application has taken what ``subscription`` had up to ``position``; of an earlier stream nobody asks."""
        if position.epoch == self.dispatcher.epoch:
            self._acknowledge(self.dispatcher.took(subscription, position.number))

    def abandon(self, answered: asyncio.Future[RequestSettled]) -> None:
        """End the subscription that ``answered`` brings: nobody waits for it any more, so nobody would read it."""
        self._abandoned.add(answered)
        answered.add_done_callback(self._end_abandoned)

    async def abandoned(self, wait_s: float) -> None:
        """Wait until what was abandoned has been ended, at most so long."""
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=wait_s)

    def close(self, reason: WanderbusError) -> None:
        """Let every reader end with ``reason`` when it has read what is here."""
        self._closed = True
        self.unclaimed.close()
        for reader in self._open:
            reader.fail(reason)

    def _end_abandoned(self, answered: asyncio.Future[RequestSettled]) -> None:
        self._abandoned.discard(answered)
        if self._closed or answered.cancelled() or answered.exception() is not None:
            return
        for subscription in answered.result().subscriptions:
            if self.dispatcher.reader(subscription.id) is None:
                self._line.begin(protocol.Unsubscribe(self._line.next_request(), subscription.id)).cancel()
                self._acknowledge(self.dispatcher.release(subscription.id, ended=True))

    def _query(self) -> asyncio.Future[RequestSettled]:
        return self._line.begin(protocol.Query(self._line.next_request()))

    def _acknowledge(self, number: int | None) -> None:
        if number is not None:
            self._line.acknowledge(Position(self.dispatcher.epoch, number))


def _then(successor: Subscription | None) -> str:
    return "nothing stands for it" if successor is None else f"{successor.id} stands for it"
