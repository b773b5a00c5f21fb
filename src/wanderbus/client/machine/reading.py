"""Subscriptions that an application reads, the position of each, and a bound on unacknowledged notifications.

On a new connection the broker may send an item again, or a gap over numbers that arrived before. The application
receives each notification of a subscription once and in order, and only the part of a gap that it has not received
(SPEC G-25, DESIGN 5.5).

A broker sends at most a window of unacknowledged notifications. A broker that ignores the window would fill the memory
of the program, so :class:`Untaken` bounds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Loss, Position

REMEMBERED_MAX: Final = 1_024
"""Remembered items of one subscription: more than a broker with default settings sends before an acknowledgement."""

FORMER_MAX: Final = 1_024
"""Most remembered subscriptions that were replaced by a successor."""


class Reading(msgspec.Struct):
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


class Readings:
    """All subscriptions that one application reads."""

    def __init__(self) -> None:
        self._by_subscription: dict[str, Reading] = {}
        self._by_handle: dict[int, Reading] = {}
        self._former: dict[str, Reading] = {}
        """By replaced subscription: its notifications may still be acknowledged under its id."""
        self._handles = 0

    def next_handle(self) -> int:
        """Return the next unused handle."""
        self._handles += 1
        return self._handles

    def get(self, subscription: str) -> Reading | None:
        """Return the reading of a subscription, None if it is not being read."""
        return self._by_subscription.get(subscription) or self._former.get(subscription)

    def start(self, subscription: str, handle: int, taken: int = 0, group: int | None = None) -> Reading:
        """Start reading a subscription that is not being read."""
        reading = Reading(handle, subscription, taken, taken, group)
        self._by_subscription[subscription] = self._by_handle[handle] = reading
        self._former.pop(subscription, None)
        return reading

    def stop(self, subscription: str) -> Reading | None:
        """Stop reading a subscription; return its reading, or None."""
        if (reading := self._by_subscription.pop(subscription, None)) is not None:
            del self._by_handle[reading.handle]
            self._former = {former: each for former, each in self._former.items() if each is not reading}
        return reading

    def succeed(self, ended: str, successor: str) -> Reading | None:
        """Read ``successor`` instead of ``ended``, unless it is being read already; return the reading."""
        if successor in self._by_subscription or (reading := self._by_subscription.pop(ended, None)) is None:
            return None
        reading.subscription = successor
        self._by_subscription[successor] = self._former[ended] = reading
        if len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]
        return reading

    def of(self, handles: Sequence[int], subscriptions: Iterable[str]) -> list[Reading]:
        """Return the readings with these handles; without handles, those of these subscriptions."""
        found = map(self._by_handle.get, handles) if handles else map(self._by_subscription.get, subscriptions)
        return [reading for reading in found if reading is not None]

    def restart(self) -> None:
        """Reset for another epoch of numbers."""
        for reading in self._by_handle.values():
            reading.restart()

    def all(self) -> Collection[Reading]:
        """Return all readings."""
        return self._by_handle.values()


def read_message(readings: Iterable[Reading], epoch: int) -> protocol.Read:
    """Return the message that announces these readings to the broker."""
    return protocol.Read(
        tuple(
            protocol.Reader(
                each.handle, each.subscription, Position(epoch, each.taken) if each.taken else None, each.group
            )
            for each in readings
        )
    )


def _less(losses: Sequence[Loss], known: int) -> tuple[Loss, ...]:
    """Return the losses without the first ``known`` notifications."""
    left = []
    for loss in losses:
        gone = min(known, loss.count)
        known -= gone
        if loss.count > gone:
            left.append(Loss(loss.subscription, loss.reason, loss.count - gone))
    return tuple(left)


class Untaken:
    """Sizes of the unacknowledged messages of each subscription; their sum is at most ``bytes_max``.

    One message of each subscription is not counted, since one may always be in flight.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_subscription: dict[str, deque[tuple[Position, int]]] = {}

    def came(self, subscription: str, position: Position, size: int) -> None:
        """Count a message for ``subscription``; :class:`RemoteProtocolError` beyond the bound."""
        ahead = self._by_subscription.setdefault(subscription, deque())
        counted = size if ahead else 0
        if counted and self._bytes + counted > self._bytes_max:
            raise RemoteProtocolError(
                f"the broker sent more unacknowledged bytes than untaken_bytes_max, {self._bytes_max}", None
            )
        ahead.append((position, counted))
        self._bytes += counted

    def taken(self, subscription: str, position: Position) -> None:
        """Remove messages of ``subscription`` up to ``position``, and all of earlier epochs: they were acknowledged."""
        ahead = self._by_subscription.get(subscription)
        while ahead and (ahead[0][0].epoch != position.epoch or ahead[0][0].number <= position.number):
            self._bytes -= ahead.popleft()[1]

    def succeed(self, ended: str, successor: str) -> None:
        """Count the messages of ``ended`` for ``successor``, which replaces it."""
        if (ahead := self._by_subscription.pop(ended, None)) is not None:
            self._by_subscription[successor] = ahead

    def stopped(self, subscription: str) -> None:
        """Remove all messages of ``subscription``: the application no longer reads it."""
        for _, counted in self._by_subscription.pop(subscription, ()):
            self._bytes -= counted
