"""What a gap is of which some was received before it was dropped (SPEC U-02).

The broker tells of a gap as a whole. Of its numbers, some may have come earlier: as notifications that were dropped
on their way, or in a gap that has grown since. What they made of its losses is not missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from wanderbus.broker import protocol
from wanderbus.event import Loss

REMEMBERED_MAX: Final = 1_024
"""Notifications and gaps that are remembered: more than a broker sends ahead of what is taken, unless told to."""

_Counts: TypeAlias = dict[tuple[str, str], int]
"""Matches by subscription and reason."""


class Lately:
    """What came last of a session's stream, and what it said of each subscription."""

    def __init__(self) -> None:
        self._parts: deque[tuple[int, tuple[str, ...], Sequence[Loss]]] = deque(maxlen=REMEMBERED_MAX)
        """First number, subscriptions that were served, and those that were not."""

    def clear(self) -> None:
        """Forget all: another stream begins."""
        self._parts.clear()

    def notified(self, notify: protocol.Notify) -> None:
        """Take note of a notification."""
        subscriptions = notify.subscriptions
        if self._parts and self._parts[-1][1] == subscriptions:
            subscriptions = self._parts[-1][1]
        self._parts.append((notify.number, subscriptions, notify.lost))

    def missing(self, gap: protocol.NotifyGap, received: int) -> tuple[Loss, ...]:
        """Return the losses of a gap beyond number ``received``, which lies before its end, and take note of it.

        They are exact as far as the gap reaches back over what is remembered, and never more than there can be.
        """
        left: _Counts = {(loss.subscription, loss.reason): loss.count for loss in gap.lost}
        while self._parts and self._parts[-1][0] >= gap.first:
            _, served, lost = self._parts.pop()
            for loss in lost:
                _subtract(left, loss.subscription, loss.count, loss.reason)
            for subscription in served:
                _subtract(left, subscription, 1)
        self._parts.append((gap.first, (), gap.lost))
        for subscription in {subscription for subscription, _ in left if subscription}:
            # One number has at most one match of a subscription.
            most = gap.last - max(received, gap.first - 1)
            total = sum(count for (each, _), count in left.items() if each == subscription)
            _subtract(left, subscription, total - most)
        return tuple(Loss(subscription, reason, count) for (subscription, reason), count in left.items() if count)


def _subtract(left: _Counts, subscription: str, count: int, reason: str | None = None) -> None:
    """Take ``count`` from a subscription, for ``reason`` or whatever reason, else from those that are not named."""
    for key, there in left.items():
        if key[0] in (subscription, "") and reason in (None, key[1]):
            taken = max(0, min(count, there))
            left[key] = there - taken
            count -= taken
