"""The readers of one agent's notifications: each item to the reader of its subscription, and what it took back.

A reader that does not ask for what has come stands still alone: the broker sends it a window and then nothing, and
goes on with the others (SPEC G-25).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from wanderbus import protocol
from wanderbus.client.machine.messages import RequestSettled, SubscriptionOver
from wanderbus.client.notifications import Notifications
from wanderbus.errors import LocalProtocolError, WanderbusError
from wanderbus.event import Gap, Notification, Position
from wanderbus.subscription import Subscription, instant_shown

_log = logging.getLogger("wanderbus.agent")

UNREAD_MAX: Final = 256
"""Ends of subscriptions without a reader that are remembered."""

PATIENCE_S: Final = 60.0
"""How long notifications wait for their reader to ask before a warning says so, once until it asks again."""


class Line(Protocol):
    """What readers ask of the agent that they belong to."""

    def begin(self, request: Any, *, reads: bool = False) -> asyncio.Future[RequestSettled]:
        """Make a request of the broker; return its answer to come."""
        ...

    def next_request(self) -> int:
        """Return the number for another request."""
        ...

    def stop_reading(self, subscription: str) -> None:
        """Tell the broker that nobody reads a subscription here any more."""
        ...

    def acknowledge(self, subscription: str, position: Position) -> None:
        """Tell the broker that what came for a subscription was taken up to ``position``."""
        ...


class Readers:
    """Everybody who reads a subscription through one agent."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._readers: dict[str, Notifications] = {}
        self._early: dict[str, list[Notification | Gap]] = {}
        """What came between the answer to a subscription and its reader."""
        self._unread: dict[str, SubscriptionOver] = {}
        """Ends of subscriptions that nobody read; their reader may be about to come."""
        self._abandoned: set[asyncio.Future[RequestSettled]] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    def reader(self, subscription: str) -> Notifications | None:
        """Return who reads a subscription."""
        return self._readers.get(subscription)

    def arrived(self, item: Notification | Gap, subscriptions: Sequence[str]) -> None:
        """Pass on an item to those who read these subscriptions."""
        for subscription in subscriptions:
            if (reader := self._readers.get(subscription)) is not None:
                reader.put(item)
            else:
                self._early.setdefault(subscription, []).append(item)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(PATIENCE_S, self._look)

    def known(self, subscriptions: Sequence[Subscription]) -> None:
        """The broker says that these live, and what they are now."""
        for subscription in subscriptions:
            self._unread.pop(subscription.id, None)
            if (reader := self._readers.get(subscription.id)) is not None:
                reader.go_on(subscription)

    def over(self, over: SubscriptionOver) -> None:
        """A subscription ended unasked: its reader goes on with what stands for it, unless another one reads that."""
        lost, successor = over.subscription.id, over.successor
        reader = self._readers.get(lost)
        if successor is not None and successor.id != lost:
            if successor.id in self._readers:
                successor = None
            elif reader is not None:
                self._readers[successor.id] = self._readers.pop(lost)
        _log.warning("subscription %s ended (%s); %s", lost, over.reason, _then(successor))
        if reader is None:
            if successor is not None and lost in self._early:
                self._early.setdefault(successor.id, []).extend(self._early.pop(lost))
            self._unread[lost] = over
            if len(self._unread) > UNREAD_MAX:
                del self._unread[next(iter(self._unread))]
        elif successor is None:
            reader.end(over.reason)
        else:
            reader.go_on(successor)

    def not_read(self, subscription: Subscription, waiting: int) -> None:
        """The broker says that so many notifications wait for a subscription of this session, and nobody reads it."""
        if subscription.id not in self._readers:
            _log.warning(
                "%s notifications wait for subscription %s (%r where %r), which nobody reads: subscribe to it again, "
                "or end it with wanderbus unsubscribe %s; %s",
                waiting,
                subscription.id,
                subscription.subject,
                subscription.expression,
                subscription.id,
                _expiry(subscription),
            )

    def claim(self, subscription: Subscription, reader: Notifications) -> Subscription:
        """Let ``reader`` have the notifications of ``subscription``, or of what stands for it by now; return which.

        :raises LocalProtocolError: another one reads it
        """
        over = self._unread.pop(subscription.id, None)
        if over is not None and over.successor is not None:
            subscription = over.successor
        if subscription.id in self._readers:
            raise LocalProtocolError(
                "this agent reads the same subscription already; leave that block first, or vary the expression"
            )
        self._readers[subscription.id] = reader
        for item in self._early.pop(subscription.id, ()):
            reader.put(item)
        if over is not None and over.successor is None:
            reader.end(over.reason)
        return subscription

    def release(self, subscription: str) -> None:
        """End the reader of a subscription; what it has not taken waits at the broker for the next one."""
        self._readers.pop(subscription, None)
        if not self._closed:
            self._line.stop_reading(subscription)

    def took(self, subscription: str, position: Position) -> None:
        """The application has taken what ``subscription`` had up to ``position``."""
        self._line.acknowledge(subscription, position)

    def abandon(self, answered: asyncio.Future[RequestSettled]) -> None:
        """End the subscription that ``answered`` brings: nobody waits for it any more, so nobody would read it."""
        self._abandoned.add(answered)
        answered.add_done_callback(self._end_abandoned)

    async def abandoned(self, wait_s: float) -> None:
        """End the subscriptions that were read outside a block, and those nobody waits for; at most so long."""
        unblocked = [reader for reader in self._readers.values() if reader.is_unblocked]
        closing = [asyncio.create_task(reader.aclose()) for reader in unblocked]
        waiting: list[asyncio.Future[Any]] = [*self._abandoned, *closing]
        if waiting:
            await asyncio.wait(waiting, timeout=wait_s)

    def close(self, reason: WanderbusError) -> None:
        """Let every reader end with ``reason`` when it has read what is here."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        for reader in self._readers.values():
            reader.fail(reason)

    def _end_abandoned(self, answered: asyncio.Future[RequestSettled]) -> None:
        self._abandoned.discard(answered)
        if self._closed or answered.cancelled() or answered.exception() is not None:
            return
        for subscription in answered.result().subscriptions:
            if subscription.id not in self._readers:
                self._early.pop(subscription.id, None)
                request = protocol.Unsubscribe(self._line.next_request(), subscription.id, abandon=True)
                self._line.begin(request).cancel()
                self._line.stop_reading(subscription.id)

    def _look(self) -> None:
        """Warn of readers that have asked for nothing since the last look, though something has come for them."""
        self._watch = None
        for subscription, reader in self._readers.items():
            if reader.stands_still():
                _log.warning(
                    "%s notifications have come for subscription %s and nobody has asked for one in %g s; the broker "
                    "sends no more of it: ask for the next one, or leave its block",
                    reader.waiting,
                    subscription,
                    PATIENCE_S,
                )
        if any(reader.waiting for reader in self._readers.values()):
            self._watch = asyncio.get_running_loop().call_later(PATIENCE_S, self._look)


def _expiry(subscription: Subscription) -> str:
    if subscription.expires_us is None:
        return "it never expires"
    return f"it expires at {instant_shown(subscription.expires_us, ' UTC')}"


def _then(successor: Subscription | None) -> str:
    return "nothing stands for it" if successor is None else f"{successor.id} stands for it"
