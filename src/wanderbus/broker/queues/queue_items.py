"""Items of a queue: notifications, and gaps in place of dropped notifications (SPEC G-15, U-02)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
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
class Hole(msgspec.Struct, gc=False):
    """A gap in one subscription's queue: the count of notifications dropped between two numbers, by reason.

    ``numbers`` are the first dropped numbers, by reason: a device that has acknowledged some of them misses only the
    others.
    """

    number: int
    last: int
    lost: dict[str, int]
    numbers: dict[str, array[int]] = {}

    @property
    def count(self) -> int:
        """Return how many notifications were dropped."""
        return sum(self.lost.values())

    def beyond(self, number: int) -> Hole:
        """Return the part of the gap behind ``number``, which is less than its last.

        Beyond the remembered numbers the count is the largest that is possible.
        """
        if number < self.number:
            return self
        places = {reason: bisect_right(own, number) for reason, own in self.numbers.items()}
        behind = {reason: own[places[reason] :] for reason, own in self.numbers.items() if places[reason] < len(own)}
        lost = {reason: left for reason, count in self.lost.items() if (left := count - places.get(reason, 0))}
        return Hole(number + 1, self.last, lost if behind else _at_most(lost, self.last - number), behind)


Item: TypeAlias = Queued | Hole


def gap_over(items: Sequence[Item], reason: str) -> Hole:
    """Return the gap that replaces these items; their notifications are dropped for ``reason``."""
    lost: dict[str, int] = {}
    for item in items:
        for why, count in ({reason: 1} if isinstance(item, Queued) else item.lost).items():
            lost[why] = lost.get(why, 0) + count
    return Hole(items[0].number, items[-1].last, lost, _numbers_of(items, reason))


def is_in(gaps: Sequence[Hole], number: int) -> bool:
    """Return whether one of these gaps, in order, covers ``number``."""
    index = bisect_right(gaps, number, key=_number) - 1
    return index >= 0 and gaps[index].last >= number


def _numbers_of(items: Iterable[Item], reason: str) -> dict[str, array[int]]:
    """Return the first numbers of a gap over these items, up to the first unknown; ``reason`` is for notifications."""
    numbers: dict[str, array[int]] = {}
    room = _NUMBERED_MAX
    for item in items:
        own = {reason: array("q", [item.number])} if isinstance(item, Queued) else item.numbers
        count = sum(map(len, own.values()))
        if count > room:
            break
        room -= count
        for why, several in own.items():
            if why in numbers:
                numbers[why].extend(several)
            else:
                numbers[why] = several
        if isinstance(item, Hole) and count < item.count:
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
