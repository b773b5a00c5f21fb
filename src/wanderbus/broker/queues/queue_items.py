"""Items of a queue: notifications, and gaps in place of dropped notifications (SPEC G-15, U-02)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias, final

import msgspec

from wanderbus.broker.state.rows import EventRow

_NUMBERED_MAX: Final = 1_024
"""Numbers that a gap remembers: more than a device can have seen, unless its window is configured larger."""

_number = attrgetter("number")


@final
class Queued(msgspec.Struct, gc=False):
    """A notification: its event, the subscriptions that it matched, and the devices to which some of them are bound.

    ``waiting`` counts the subscriptions in whose queues it is. ``history_us`` is the time at which an event of the past
    was added, 0 for one that was added when it was accepted.
    """

    number: int
    event: EventRow
    subscriptions: tuple[str, ...]
    bound: tuple[tuple[str, str], ...] = ()
    waiting: int = 0
    history_us: int = 0

    @property
    def queued_us(self) -> int:
        """Return the time since which it waits."""
        return self.history_us or self.event.at_us

    @property
    def last(self) -> int:
        """Return the highest number that this item covers: its only one."""
        return self.number

    def subscriptions_for(self, device: str) -> tuple[str, ...]:
        """Return the subscriptions whose notification goes to ``device`` (SPEC E-05)."""
        if not self.bound:
            return self.subscriptions
        elsewhere = {subscription for subscription, bound_to in self.bound if bound_to != device}
        return tuple(s for s in self.subscriptions if s not in elsewhere)


@final
class QueuedGap(msgspec.Struct, gc=False):
    """A gap in one subscription's queue: the count of notifications dropped between two numbers, by reason.

    ``numbers`` are the first dropped numbers, by reason: a device that has acknowledged some of them misses only the
    others. A gap that covers every number for one reason needs none.
    """

    number: int
    last: int
    lost: dict[str, int]
    numbers: dict[str, array[int]] = {}

    @property
    def count(self) -> int:
        """Return how many notifications were dropped."""
        return sum(self.lost.values())

    def first_numbers(self) -> dict[str, array[int]]:
        """Return the first dropped numbers, by reason; {} if they are unknown."""
        if not self.numbers and _covers_all(self.lost, self.number, self.last):
            numbers = range(self.number, self.number + min(self.count, _NUMBERED_MAX))
            return {reason: array("q", numbers) for reason in self.lost}
        return self.numbers

    def add(self, number: int, reason: str) -> None:
        """Extend the gap by the next notification, which is dropped for ``reason``."""
        before = self.lost.get(reason, 0)
        if before == number - self.number:
            self.numbers = {}  # it covers every number, also this one
        else:
            self.numbers = self.first_numbers()
            if sum(map(len, self.numbers.values())) == self.count < _NUMBERED_MAX:
                self.numbers.setdefault(reason, array("q")).append(number)
        self.lost[reason] = before + 1
        self.last = number

    def beyond(self, number: int) -> QueuedGap:
        """Return the part of the gap behind ``number``, which is less than its last.

        Beyond the remembered numbers the count is the largest that is possible.
        """
        if number < self.number:
            return self
        places = {reason: bisect_right(own, number) for reason, own in self.numbers.items()}
        behind = {reason: own[places[reason] :] for reason, own in self.numbers.items() if places[reason] < len(own)}
        lost = {reason: left for reason, count in self.lost.items() if (left := count - places.get(reason, 0))}
        return QueuedGap(number + 1, self.last, lost if behind else _at_most(lost, self.last - number), behind)


Item: TypeAlias = Queued | QueuedGap


def gap_over(items: Sequence[Item], reason: str) -> QueuedGap:
    """Return the gap that replaces these items; their notifications are dropped for ``reason``."""
    lost: dict[str, int] = {}
    for item in items:
        for why, count in ({reason: 1} if isinstance(item, Queued) else item.lost).items():
            lost[why] = lost.get(why, 0) + count
    first, last = items[0].number, items[-1].last
    return QueuedGap(first, last, lost, {} if _covers_all(lost, first, last) else _numbers_of(items, reason))


def _covers_all(lost: Mapping[str, int], first: int, last: int) -> bool:
    """Return whether every number from ``first`` to ``last`` was dropped for the same reason."""
    return last - first + 1 in lost.values()


def is_in(gaps: Sequence[QueuedGap], number: int) -> bool:
    """Return whether one of these gaps, in order, covers ``number``."""
    index = bisect_right(gaps, number, key=_number) - 1
    return index >= 0 and gaps[index].last >= number


def _numbers_of(items: Iterable[Item], reason: str) -> dict[str, array[int]]:
    """Return the first numbers of a gap over these items, up to the first unknown; ``reason`` is for notifications."""
    numbers: dict[str, array[int]] = {}
    room = _NUMBERED_MAX
    for item in items:
        own = {reason: array("q", [item.number])} if isinstance(item, Queued) else item.first_numbers()
        count = sum(map(len, own.values()))
        if count > room:
            break
        room -= count
        for why, several in own.items():
            if why in numbers:
                numbers[why].extend(several)
            else:
                numbers[why] = several
        if isinstance(item, QueuedGap) and count < item.count:
            break
    return numbers


def _at_most(lost: dict[str, int], most: int) -> dict[str, int]:
    """Return ``lost`` cut to ``most`` notifications; the last reasons are kept."""
    kept: dict[str, int] = {}
    for reason, count in reversed(lost.items()):
        if counted := min(count, most):
            kept[reason] = counted
        most -= counted
    return dict(reversed(kept.items()))
