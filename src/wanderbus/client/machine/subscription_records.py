"""Records of an agent about subscriptions: those that its application reads, and those that it wants to live.

On a new connection the broker may send an item again, or a gap over numbers that arrived before. The application
receives each notification of a subscription once and in order, and only the part of a gap that it has not received
(SPEC G-25, DESIGN 5.5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import SubscriptionOver
from wanderbus.event import EventId, Loss
from wanderbus.subscription import Subscription

REMEMBERED_MAX: Final = 1_024
"""Remembered items of one subscription: more than a broker with default settings sends before an acknowledgement."""


class SubscriptionReader(msgspec.Struct):
    """One subscription that is being read."""

    handle: int
    subscription: str
    received: int = 0
    """Highest number received."""
    taken: int = 0
    """The application has acknowledged everything up to this number."""
    group: int | None = None
    """Number that subscriptions have in common which are read as one stream, None for one on its own."""
    is_finished: bool = False
    """True if another device reads on: what has arrived can still be acknowledged."""
    recent: deque[tuple[int, int, EventId | None]] | None = None
    """Latest items: number, count of notifications that arrived with it or are missing up to it, and the event."""
    repeatable: dict[EventId, None] | None = None
    """Events that arrived behind the place at which the stream was replaced: they may come again."""

    def has_had(self, event: EventId) -> bool:
        """Return whether an event arrived before the stream was replaced."""
        return self.repeatable is not None and event in self.repeatable

    def recognise(self, former: SubscriptionReader) -> None:
        """Take over what may come again of a subscription that this one continues."""
        if former is not self:
            self._repeat(former.repeatable or ())

    def notified(self, number: int, event: EventId) -> None:
        """Record a notification with a higher number than those before."""
        self._remember(number, 1, event)

    def missing(self, gap: protocol.NotifyGap) -> tuple[Loss, ...]:
        """Record a gap; return the part that did not arrive before the broker discarded it.

        The count is exact if the gap begins within the remembered items; otherwise it is an upper bound.
        """
        if gap.last <= self.received:
            return ()
        before = max(self.received, gap.first - 1)
        known = sum(count for number, count, _ in self.recent or () if number >= gap.first)
        total = sum(loss.count for loss in gap.lost)
        missing = max(0, min(total - known, gap.last - before))
        self._remember(gap.last, missing)
        return _less(gap.lost, total - missing)

    def keep(self, in_common: Callable[[int], int]) -> None:
        """Go on in another stream; ``in_common`` returns the highest number up to one that is the same there."""
        received = in_common(self.received)
        if received < self.received:
            events = [event for number, _, event in self.recent or () if number > received and event is not None]
            self._repeat(events)
            self.received, self.recent = received, None
        self.taken = in_common(self.taken)

    def _repeat(self, events: Iterable[EventId]) -> None:
        kept = [*(self.repeatable or ()), *events][-REMEMBERED_MAX:]
        self.repeatable = dict.fromkeys(kept) or None

    def _remember(self, number: int, count: int, event: EventId | None = None) -> None:
        self.received = number
        if self.recent is None:
            self.recent = deque(maxlen=REMEMBERED_MAX)
        self.recent.append((number, count, event))


def _less(losses: Sequence[Loss], known: int) -> tuple[Loss, ...]:
    """Return the losses without the first ``known`` notifications."""
    left = []
    for loss in losses:
        gone = min(known, loss.count)
        known -= gone
        if loss.count > gone:
            left.append(Loss(loss.subscription, loss.reason, loss.count - gone))
    return tuple(left)


Request = protocol.Subscribe | protocol.Unsubscribe | protocol.Renew | protocol.Query


class Decision(msgspec.Struct, frozen=True):
    """Messages to send to the broker, and reports to the application."""

    messages: Sequence[Request] = ()
    reports: Sequence[SubscriptionOver] = ()


class WantedSubscription(msgspec.Struct):
    """A subscription that the application requested, and its last requested lifetime."""

    subscription: Subscription
    lifetime_s: float | None
    expires_us: int | None
    is_kept: bool = True


class Reaction(msgspec.Struct):
    """An open request that renews or resubmits ``wanted``.

    ``abandoned`` is True once the application has ended the subscription itself.
    """

    wanted: WantedSubscription
    reason: str
    renews: bool
    abandoned: bool = False
