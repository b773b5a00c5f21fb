"""What waits in one session: notifications and gaps in the order of their numbers, without a hole (DESIGN 5.4).

A number is found, and an entry at the head is removed, in constant time as a rule, however much waits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from wanderbus.broker.rows import EventRow
from wanderbus.event import Loss

LOSSES_MAX: Final = 200
"""Pairs of subscription and reason that a gap tells apart, so that it fits a message; the rest is told by reason,
with an empty name for the subscription."""

LossKey: TypeAlias = tuple[str, str, str | None]
"""Subscription, reason, and the device that the subscription is bound to."""

_BLOCK: Final = 64
"""Numbers whose entries are stored in one row."""

_number = attrgetter("number")


class Queued(msgspec.Struct, gc=False):
    """A notification: its event, the subscriptions it is for, those of them that are bound and to which devices.

    ``lost`` are other subscriptions that it was for.
    """

    number: int
    event: EventRow
    subscriptions: tuple[str, ...]
    bound: tuple[tuple[str, str], ...] = ()
    lost: dict[LossKey, int] | None = None

    @property
    def last(self) -> int:
        """Return the highest number that this entry covers: its only one."""
        return self.number

    def subscriptions_for(self, device: str) -> tuple[str, ...]:
        """Return the subscriptions that this notification is for on ``device`` (SPEC E-05)."""
        if not self.bound:
            return self.subscriptions
        elsewhere = {subscription for subscription, bound_to in self.bound if bound_to != device}
        return tuple(s for s in self.subscriptions if s not in elsewhere)


class Hole(msgspec.Struct, gc=False):
    """A gap: notifications ``number`` to ``last`` were dropped, for these subscriptions and reasons."""

    number: int
    last: int
    lost: dict[LossKey, int]


Entry = Queued | Hole

_REMOVED: Final = Hole(0, 0, {})


class Dropped(msgspec.Struct):
    """What a drop took from one entry: these matches of its ``event``, and with ``whole`` that was all of them."""

    event: EventRow
    subscriptions: tuple[str, ...]
    whole: bool


class StoredMatch(msgspec.Struct, frozen=True, array_like=True):
    """The subscriptions of a notification, and the devices they are bound to."""

    subscriptions: tuple[str, ...]
    bound: tuple[tuple[str, str], ...]


StoredLoss: TypeAlias = tuple[LossKey, int]


class StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a block: its number from the block's first; ``match`` is a place in the block's list.

    ``refers`` is the offset of its event; of a gap, which has no match, the last number.
    """

    place: int
    refers: int
    match: int | None
    lost: tuple[StoredLoss, ...] | None = None


class Block(msgspec.Struct, frozen=True, array_like=True):
    """The row that stores what begins at the numbers of one block; many notifications share a match."""

    matches: tuple[StoredMatch, ...]
    entries: tuple[StoredEntry, ...]


class Queue:
    """Entries in order; ``changed`` collects the blocks (``key`` of the session, number) that no longer are stored."""

    def __init__(self, key: str, changed: dict[tuple[str, int], None]) -> None:
        self.key = key
        self._entries: list[Entry] = []
        self._start = 0
        """Where the queue begins in the list: what lies before was removed."""
        self._changed = changed

    def __len__(self) -> int:
        return len(self._entries) - self._start

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries[self._start :])

    @property
    def head(self) -> Entry | None:
        """Return the entry of the lowest number."""
        return self._entries[self._start] if len(self) else None

    def entries_from(self, number: int) -> Iterator[Entry]:
        """Yield the entry that covers ``number`` and all after it; all of them if none does."""
        for index in range(max(self._index(number), self._start), len(self._entries)):
            yield self._entries[index]

    def newest_first(self) -> Iterator[Entry]:
        """Yield all entries from the last one back."""
        for index in range(len(self._entries) - 1, self._start - 1, -1):
            yield self._entries[index]

    def covering(self, number: int) -> Entry | None:
        """Return the entry that covers ``number``, be it a notification or a gap."""
        if self._entries and self._entries[-1].number == number:
            return self._entries[-1]
        index = self._index(number)
        if index < self._start or self._entries[index].last < number:
            return None
        return self._entries[index]

    def append(self, entry: Queued) -> None:
        """Add the newest notification. One that matched what the last one matched shares its tuples."""
        entries = self._entries
        if entries and type(before := entries[-1]) is Queued and before.subscriptions == entry.subscriptions:
            entry.subscriptions = before.subscriptions
            if before.bound == entry.bound:
                entry.bound = before.bound
        entries.append(entry)
        self._changed[self.key, entry.number // _BLOCK] = None

    def take(self, through: int) -> Sequence[Entry]:
        """Remove and return the entries that end at or before number ``through``."""
        entries, start = self._entries, self._start
        end = start
        while end < len(entries) and entries[end].last <= through:
            self._mark(entries[end])
            end += 1
        taken = entries[start:end]
        self._splice(start, end, [])
        return taken

    def drop(self, first: int, last: int, reason: str, subscriptions: Collection[str]) -> list[Dropped]:
        """Drop what the entries from ``first`` to ``last`` hold for these subscriptions, or for all if none are named.

        An entry of which nothing is left becomes a gap, and gaps that touch become one.
        """
        entries = self._entries
        concerned = frozenset(subscriptions)
        # With their neighbours, which may be gaps.
        begin = max(self._start, self._index(first) - 1)
        end = min(len(entries), self._index(last) + 2)
        dropped: list[Dropped] = []
        left: list[Entry] = []
        for entry in entries[begin:end]:
            self._mark(entry)
            if isinstance(entry, Queued) and first <= entry.number <= last:
                entry = _without(entry, concerned, reason, dropped)
            if left and isinstance(entry, Hole) and isinstance(before := left[-1], Hole):
                before.last = entry.last
                _add(before.lost, entry.lost)
            else:
                left.append(entry)
        self._splice(begin, end, left)
        return dropped

    def block(self, number: int) -> Block | None:
        """Return the row for block ``number``, None if nothing begins there."""
        entries, first = self._entries, number * _BLOCK
        begin = bisect_left(entries, first, self._start, key=_number)
        end = bisect_left(entries, first + _BLOCK, begin, key=_number)
        matches: dict[StoredMatch, int] = {}
        stored = [_stored(entry, first, matches) for entry in entries[begin:end]]
        return Block(tuple(matches), tuple(stored)) if stored else None

    def blocks(self) -> Iterator[int]:
        """Yield the number of every block in which something begins."""
        yield from dict.fromkeys(entry.number // _BLOCK for entry in self)

    def load(self, number: int, block: Block, events: dict[int, EventRow]) -> None:
        """Append what block ``number`` stores; blocks come in order."""
        first = number * _BLOCK
        matches = [(match.subscriptions, match.bound) for match in block.matches]
        before = self._entries[-1] if self._entries else None
        if matches and isinstance(before, Queued) and matches[0] == (before.subscriptions, before.bound):
            # Most queues hold one kind of match from end to end: let its tuples be there once.
            matches[0] = (before.subscriptions, before.bound)
        append = self._entries.append
        for entry in block.entries:
            lost = dict(entry.lost) if entry.lost else None
            if entry.match is None:
                append(Hole(first + entry.place, entry.refers, lost or {}))
            else:
                append(Queued(first + entry.place, events[entry.refers], *matches[entry.match], lost))

    def _index(self, number: int) -> int:
        """Return the place of the entry that covers ``number``, or of the last one before it.

        Behind the last gap every number has its own entry, so that the place can be reckoned from the end.
        """
        entries, start = self._entries, self._start
        if len(entries) == start:
            return start - 1
        index = len(entries) - 1 - entries[-1].last + number
        if start <= index < len(entries) and entries[index].number == number:
            return index
        return bisect_right(entries, number, start, key=_number) - 1

    def _mark(self, entry: Entry) -> None:
        self._changed[self.key, entry.number // _BLOCK] = None

    def _splice(self, begin: int, end: int, left: list[Entry]) -> None:
        """Put ``left``, which is not longer, in place of the entries from ``begin`` to ``end``."""
        entries, start = self._entries, self._start
        shift = end - begin - len(left)
        if shift == 0 or begin - start > len(entries) - end:
            entries[begin:end] = left
            return
        entries[start + shift : end] = entries[start:begin] + left
        entries[start : start + shift] = [_REMOVED] * shift
        self._start = start + shift
        if self._start == len(entries) or (self._start > 1_000 and self._start * 2 > len(entries)):
            del entries[: self._start]
            self._start = 0


def losses_for(lost: dict[LossKey, int] | None, device: str) -> tuple[Loss, ...]:
    """Return what was lost on ``device``: nothing of subscriptions that are bound to others (SPEC E-05)."""
    if not lost:
        return ()
    return tuple(
        Loss(subscription, reason, count)
        for (subscription, reason, bound_to), count in lost.items()
        if bound_to is None or bound_to == device
    )


def _without(entry: Queued, subscriptions: frozenset[str], reason: str, dropped: list[Dropped]) -> Entry:
    """Return what is left of a notification, and note in ``dropped`` what is not."""
    gone = tuple(s for s in entry.subscriptions if s in subscriptions) if subscriptions else entry.subscriptions
    if not gone:
        return entry
    left = tuple(s for s in entry.subscriptions if s not in subscriptions) if subscriptions else ()
    dropped.append(Dropped(entry.event, gone, not left))
    devices = dict(entry.bound)
    lost = entry.lost or {}
    _add(lost, {(subscription, reason, devices.get(subscription)): 1 for subscription in gone})
    if not left:
        return Hole(entry.number, entry.number, lost)
    entry.subscriptions = left
    entry.bound = tuple(pair for pair in entry.bound if pair[0] not in subscriptions)
    entry.lost = lost
    return entry


def _add(losses: dict[LossKey, int], more: dict[LossKey, int]) -> None:
    for key, count in more.items():
        if key not in losses and len(losses) >= LOSSES_MAX:
            key = ("", key[1], None)
        losses[key] = losses.get(key, 0) + count


def _stored(entry: Entry, first: int, matches: dict[StoredMatch, int]) -> StoredEntry:
    lost = tuple(entry.lost.items()) if entry.lost else None
    if isinstance(entry, Hole):
        return StoredEntry(entry.number - first, entry.last, None, lost)
    match = matches.setdefault(StoredMatch(entry.subscriptions, entry.bound), len(matches))
    return StoredEntry(entry.number - first, entry.event.offset, match, lost)
