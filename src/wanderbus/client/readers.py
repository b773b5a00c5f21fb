"""Readers of one agent's subscriptions: dispatch of notifications to them, and their acknowledgements to the broker.

A slow reader stalls only itself: once its window is full, the broker sends it no more and continues with the others
(SPEC G-25).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from wanderbus import protocol
from wanderbus.client.inbox import Inbox
from wanderbus.client.machine.messages import RequestSettled, StreamReplaced, SubscriptionOver
from wanderbus.errors import LocalProtocolError, WanderbusError
from wanderbus.event import Gap, Notification, Position
from wanderbus.subscription import Subscription, instant_shown

if TYPE_CHECKING:
    from wanderbus.client.agent_sockets import AgentSockets
    from wanderbus.client.left_subscriptions import LeftSubscriptions

_log = logging.getLogger("wanderbus.agent")

UNREAD_MAX: Final = 256
"""Most ended subscriptions without a reader that are remembered."""

PATIENCE_S: Final = 60.0
"""Time without a request by a reader with waiting notifications, after which one warning is logged per stall."""


class ReaderRequests(Protocol):
    """Interface between the readers and their agent."""

    def begin(self, request: Any, *, reads: bool = False) -> asyncio.Future[RequestSettled]:
        """Send a request to the broker; return a future of its response."""
        ...

    def next_request(self) -> int:
        """Return the number of the next request."""
        ...

    def read_together(self, subscriptions: tuple[str, ...]) -> None:
        """Read these subscriptions as one stream in the order of their numbers."""
        ...

    def stop_reading(self, subscription: str) -> None:
        """Notify the broker that this agent no longer reads a subscription."""
        ...

    def acknowledge(self, subscription: str, position: Position) -> None:
        """Acknowledge the notifications of a subscription up to ``position``."""
        ...


class Readers:
    """All readers of one agent, by subscription."""

    def __init__(self, requests: ReaderRequests, end: AgentSockets | None = None) -> None:
        self._requests = requests
        self._end = end
        self._readers: dict[str, Inbox] = {}
        self._early: dict[str, list[Notification | Gap]] = {}
        """Items that arrived after the response to a subscribe request and before its reader was registered."""
        self._unread: dict[str, SubscriptionOver] = {}
        """Ended subscriptions without a reader; a reader may still claim them."""
        self._abandoned: set[asyncio.Future[RequestSettled]] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    def end_left(self) -> None:
        """End the subscriptions that earlier agents of this device could not end."""
        if self._has_left():
            self._left.end_all()

    def leave_behind(self, subscription: str) -> None:
        """Remember a subscription that cannot be ended now, for the next agent of this device."""
        if self._end is not None:
            self._left.add(subscription)

    def forget_left(self, subscription: str) -> None:
        """Forget that a subscription was left, since the application reads it again."""
        if self._has_left():
            self._left.remove(subscription)

    def _has_left(self) -> bool:
        file = None if self._end is None else self._end.left_file
        return file is not None and file.exists()

    @property
    def _left(self) -> LeftSubscriptions:
        from wanderbus.client.left_subscriptions import LeftSubscriptions  # few agents need it

        assert self._end is not None
        return LeftSubscriptions(self._requests, self._end.properties, self._end.left_file)

    def reader(self, subscription: str) -> Inbox | None:
        """Return the reader of a subscription, or None."""
        return self._readers.get(subscription)

    def arrived(self, item: Notification | Gap, subscriptions: Sequence[str]) -> None:
        """Pass an item to the readers of these subscriptions."""
        for subscription in subscriptions:
            if (reader := self._readers.get(subscription)) is not None:
                reader.put(item)
            else:
                self._early.setdefault(subscription, []).append(item)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(PATIENCE_S, self._warn_of_stalls)

    def known(self, subscriptions: Sequence[Subscription]) -> None:
        """Handle the broker's list of live subscriptions with their current state."""
        for subscription in subscriptions:
            self._unread.pop(subscription.id, None)
            if (reader := self._readers.get(subscription.id)) is not None:
                reader.go_on(subscription)

    def over(self, over: SubscriptionOver) -> None:
        """Handle an unrequested end: the reader continues with the successor, unless that has a reader already."""
        lost, successor = over.subscription.id, over.successor
        reader = self._readers.get(lost)
        if successor is not None and successor.id != lost:
            if successor.id in self._readers:
                successor = None
            elif reader is not None:
                self._readers[successor.id] = self._readers.pop(lost)
        level = logging.INFO if over.reason == protocol.TRANSFERRED else logging.WARNING
        _log.log(level, "subscription %s ended (%s); %s", lost, over.reason, _then(successor))
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

    def replaced(self, replaced: StreamReplaced) -> None:
        """Log a warning that the broker's data is an earlier copy, or that another server has the session."""
        if replaced.former:
            _log.warning(
                "%s, which has the subscriptions of this session, cannot be reached: another server serves it, without "
                "them. What waits at %s comes when this device calls there again",
                *(replaced.former, replaced.former),
            )
            return
        _log.warning(
            "the broker does not know notification %d, which has arrived here: its data was replaced by an earlier "
            "copy, or removed. Notifications continue behind number %d; each subscription has a gap",
            replaced.received.number,
            replaced.number,
        )

    def not_read(self, subscription: Subscription, waiting: int) -> None:
        """Log a warning of the broker: ``waiting`` notifications are queued for a subscription without a reader."""
        if subscription.id not in self._readers:
            _log.warning(
                "%s notifications are queued for subscription %s (%r where %r), which nobody reads: subscribe to it "
                "again, or end it with wanderbus unsubscribe %s; %s",
                waiting,
                subscription.id,
                subscription.subject,
                subscription.expression,
                subscription.id,
                _expiry(subscription),
            )

    def claim(self, subscription: Subscription, reader: Inbox) -> Subscription:
        """Register ``reader`` for ``subscription``, or for its successor if it has ended; return that subscription.

        :raises LocalProtocolError: it has another reader
        """
        over = self._unread.pop(subscription.id, None)
        if over is not None and over.successor is not None:
            subscription = over.successor
        if subscription.id in self._readers:
            raise LocalProtocolError(
                "this agent already reads the same subscription; leave that block first, or change the expression"
            )
        self._readers[subscription.id] = reader
        for item in self._early.pop(subscription.id, ()):
            reader.put(item)
        if over is not None and over.successor is None:
            reader.end(over.reason)
        return subscription

    def read_together(self, inboxes: Sequence[Inbox]) -> None:
        """Start reading the subscriptions of these inboxes, which are claimed, as one stream."""
        self._requests.read_together(tuple(each.subscription.id for each in inboxes if each.subscription is not None))

    def release(self, subscription: str) -> None:
        """Remove the reader of a subscription; unacknowledged notifications stay at the broker for the next reader."""
        self._readers.pop(subscription, None)
        if not self._closed:
            self._requests.stop_reading(subscription)

    def acknowledge(self, subscription: str, position: Position) -> None:
        """Acknowledge the notifications of ``subscription`` up to ``position``."""
        self._requests.acknowledge(subscription, position)

    def abandon(self, answered: asyncio.Future[RequestSettled]) -> None:
        """End the subscription that ``answered`` will return: its caller was cancelled, so nobody would read it."""
        self._abandoned.add(answered)
        answered.add_done_callback(self._end_abandoned)

    async def abandoned(self, wait_s: float, *, is_connected: bool = True) -> None:
        """End subscriptions read outside a block and those of cancelled callers; wait at most ``wait_s``.

        Without a connection there is no response for cancelled callers to wait for.
        """
        unblocked = [reader for reader in self._readers.values() if reader.is_unblocked]
        closing = [asyncio.create_task(reader.close()) for reader in unblocked]
        waiting: list[asyncio.Future[Any]] = [*(self._abandoned if is_connected else ()), *closing]
        if waiting:
            await asyncio.wait(waiting, timeout=wait_s)

    def close(self, reason: WanderbusError) -> None:
        """Raise ``reason`` in every reader once it has read the items that are here."""
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
                request = protocol.Unsubscribe(self._requests.next_request(), subscription.id, abandon=True)
                self._requests.begin(request).cancel()
                self._requests.stop_reading(subscription.id)

    def _warn_of_stalls(self) -> None:
        """Log a warning for each reader that has items and requested none since the last call."""
        self._watch = None
        for subscription, reader in self._readers.items():
            if reader.is_stalled():
                _log.warning(
                    "%s notifications of subscription %s wait to be read and none was read for %g s; the broker sends "
                    "no more of them: ask for the next one, or leave its block",
                    reader.waiting,
                    subscription,
                    PATIENCE_S,
                )
        if any(reader.waiting for reader in self._readers.values()):
            self._watch = asyncio.get_running_loop().call_later(PATIENCE_S, self._warn_of_stalls)


def _expiry(subscription: Subscription) -> str:
    if subscription.expires_us is None:
        return "it never expires"
    return f"it expires at {instant_shown(subscription.expires_us, ' UTC')}"


def _then(successor: Subscription | None) -> str:
    return "it has no successor" if successor is None else f"its successor is {successor.id}"
