"""Records of an agent about subscriptions: those that its application reads, and those that it wants to live.

On a new connection the broker may send an item again, or a gap over numbers that arrived before. The application
receives each notification of a subscription once and in order, and only the part of a gap that it has not received
(SPEC G-25, DESIGN 5.5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import SubscriptionOver
from wanderbus.event import Loss
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
    recent: deque[tuple[int, int]] | None = None
    """Latest items: number, and count of notifications that arrived with it, or that are missing up to it."""

    def notified(self, number: int) -> bool:
        """Record a notification; return whether it is new."""
        if number <= self.received:
            return False
        self._remember(number, 1)
        return True

    def missing(self, gap: protocol.NotifyGap) -> tuple[Loss, ...]:
        """Record a gap; return the part that did not arrive before the broker discarded it.

        The count is exact if the gap begins within the remembered items; otherwise it is an upper bound.
        """
        if gap.last <= self.received:
            return ()
        before = max(self.received, gap.first - 1)
        known = sum(count for number, count in self.recent or () if number >= gap.first)
        total = sum(loss.count for loss in gap.lost)
        missing = max(0, min(total - known, gap.last - before))
        self._remember(gap.last, missing)
        return _less(gap.lost, total - missing)

    def restart(self) -> None:
        """Reset for another epoch of numbers."""
        self.received = self.taken = 0
        self.recent = None

    def _remember(self, number: int, count: int) -> None:
        self.received = number
        if self.recent is None:
            self.recent = deque(maxlen=REMEMBERED_MAX)
        self.recent.append((number, count))


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


class Reaction(msgspec.Struct):
    """An open request that renews or resubmits ``wanted``.

    ``abandoned`` is True once the application has ended the subscription itself.
    """

    wanted: WantedSubscription
    reason: str
    renews: bool
    abandoned: bool = False
