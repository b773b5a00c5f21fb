"""Queues of one session: a queue for each subscription, over events that the session stores once (DESIGN 5.4).

A notification has one number in its session, independent of the number of subscriptions that it matched. It waits in
the queue of each until it is acknowledged or dropped there; the last one releases it. So a queue of a subscription that
nobody reads can be dropped alone. Adding at the tail and removing at the head take constant time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, takewhile
from operator import attrgetter
from typing import Final

from wanderbus.broker.queues.queue_items import Item, Queued, QueuedGap, gap_over, is_in
from wanderbus.broker.queues.stored_blocks import Block, StoredEntry, StoredGap, StoredMatch
from wanderbus.broker.state.rows import EventRow
from wanderbus.event import EventId

NUMBERS_OF_BLOCK: Final = 64
"""Numbers whose entries are stored in one row."""

_number = attrgetter("number")


_REMOVED: Final = QueuedGap(0, 0, {})
_NOTHING: Final[Mapping[str, int]] = {}


class SubscriptionQueue:
    """Notifications and gaps of one subscription, in the order of their numbers."""

    __slots__ = ("_items", "_start", "gaps", "queued_bytes")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._start = 0
        """Index of the first item in the list; earlier items were removed."""
        self.gaps = 0
        self.queued_bytes = 0

    def __len__(self) -> int:
        """Return how many items there are, gaps included."""
        return len(self._items) - self._start

    def __iter__(self) -> Iterator[Item]:
        return self.items_from(0)

    @property
    def waiting(self) -> int:
        """Return how many notifications wait."""
        return len(self._items) - self._start - self.gaps

    def items_from(self, number: int) -> Iterator[Item]:
        """Yield every item that begins at ``number`` or later."""
        for index in range(bisect_left(self._items, number, self._start, key=_number), len(self._items)):
            yield self._items[index]

    def notifications(self, above: int, through: int) -> list[Queued]:
        """Return the notifications numbered from behind ``above`` up to ``through``."""
        items, found, place = self._items, [], self._start
        if above and place < len(items) and items[place].number <= above:
            place = bisect_right(items, above, place, key=_number)
        while place < len(items) and (item := items[place]).number <= through:
            if type(item) is Queued:
                found.append(item)
            place += 1
        return found

    def newest_first(self) -> Iterator[Item]:
        """Yield every item, the newest first."""
        for index in range(len(self._items) - 1, self._start - 1, -1):
            yield self._items[index]

    def first_behind_gap(self) -> Queued | None:
        """Return the first notification if a gap is before it."""
        items, start = self._items, self._start
        if len(items) - start > 1 and type(items[start]) is QueuedGap and type(entry := items[start + 1]) is Queued:
            return entry
        return None

    def oldest(self) -> Queued | None:
        """Return the notification that has waited longest."""
        items = self._items
        for index in range(self._start, len(items)):
            if type(item := items[index]) is Queued:
                return item
        return None

    def newest(self) -> Queued | None:
        """Return the notification that was added last."""
        items = self._items
        for index in range(len(items) - 1, self._start - 1, -1):
            if type(item := items[index]) is Queued:
                return item
        return None

    def holds(self, number: int) -> bool:
        """Return whether the notification of this number waits."""
        items = self._items
        index = bisect_left(items, number, self._start, key=_number)
        return index < len(items) and items[index].number == number and type(items[index]) is Queued

    def after(self, number: int) -> Item | None:
        """Return the first item that ends behind ``number``."""
        items = self._items
        # An item begins no later than it ends; a number is read faster than the end of a notification.
        if not items or ((newest := items[-1]).number <= number and newest.last <= number):
            return None
        if len(items) - self._start == 1 or ((before := items[-2]).number <= number and before.last <= number):
            return newest
        index = bisect_right(items, number, self._start, key=_number)
        if index > self._start and items[index - 1].last > number:
            index -= 1
        return items[index]

    def append(self, entry: Queued) -> None:
        """Add the newest notification."""
        self._items.append(entry)
        self.queued_bytes += len(entry.event.data)

    def extend(self, items: Sequence[Item]) -> None:
        """Add the newest items, in order."""
        self._items += items
        self.gaps += sum(isinstance(item, QueuedGap) for item in items)
        self.queued_bytes += sum(len(item.event.data) for item in items if isinstance(item, Queued))

    def take(self, through: int) -> Sequence[Item]:
        """Remove and return the items up to number ``through``; a gap that extends beyond it is cut."""
        items, start = self._items, self._start
        end, length = start, len(items)
        while end < length:
            item = items[end]
            if type(item) is Queued:
                if item.number > through:
                    break
                self.queued_bytes -= len(item.event.data)
            elif item.last > through:
                break
            else:
                self.gaps -= 1
            end += 1
        taken = items[start:end]
        if end < len(items) and type(gap := items[end]) is QueuedGap and gap.number <= through:
            taken.append(gap)
            items[end] = gap.beyond(through)
        self._splice(start, end, [])
        return taken

    def drop(self, first: int, last: int, reason: str) -> tuple[list[Queued], list[QueuedGap], QueuedGap | None]:
        """Drop the notifications numbered ``first`` to ``last``: they become one gap, merged with adjacent gaps.

        Return the dropped notifications, the gaps that were merged, and the new gap.
        """
        items = self._items
        begin = bisect_left(items, first, self._start, key=_number)
        end = bisect_right(items, last, begin, key=_number)
        dropped = [item for item in items[begin:end] if type(item) is Queued]
        if not dropped:
            return [], [], None
        if begin > self._start and type(items[begin - 1]) is QueuedGap:
            begin -= 1
        if end < len(items) and type(items[end]) is QueuedGap:
            end += 1
        former = [item for item in items[begin:end] if type(item) is QueuedGap]
        gap = gap_over(items[begin:end], reason)
        self._splice(begin, end, [gap])
        self.gaps += 1 - len(former)
        self.queued_bytes -= sum(len(entry.event.data) for entry in dropped)
        return dropped, former, gap

    def exchange(self, first: Queued, reason: str, newest: Queued | None) -> QueuedGap:
        """Drop the ``first`` notification by the gap before it, add the ``newest`` if there is one; return the gap."""
        items, start = self._items, self._start
        gap, more = items[start], -len(first.event.data)
        assert type(gap) is QueuedGap, gap
        if newest is not None:
            items.append(newest)
            more += len(newest.event.data)
        self.queued_bytes += more
        gap.add(first.number, reason)
        items[start], items[start + 1] = _REMOVED, gap
        self._begin_at(start + 1)
        return gap

    def _splice(self, begin: int, end: int, left: list[Item]) -> None:
        """Replace the items from ``begin`` to ``end`` by ``left``, which is not longer."""
        items, start = self._items, self._start
        if begin == start and end == len(items) and not left:
            items.clear()
            self._start = 0
            return
        shift = end - begin - len(left)
        if shift == 0 or begin - start > len(items) - end:
            items[begin:end] = left
            return
        items[start + shift : end] = items[start:begin] + left
        items[start : start + shift] = [_REMOVED] * shift
        self._begin_at(start + shift)

    def _begin_at(self, start: int) -> None:
        """Let the items begin at ``start``; cut off what was removed before, once it is most of the list."""
        items = self._items
        if start == len(items) or (start > 1_000 and start * 2 > len(items)):
            del items[:start]
            start = 0
        self._start = start


class SessionQueue:
    """The non-empty queues of a session's subscriptions, by id.

    ``changed`` collects the blocks (``key`` of the session, number) that have to be stored again.
    """

    def __init__(self, key: str, changed: dict[tuple[str, int], None]) -> None:
        self.key = key
        self.queues: dict[str, SubscriptionQueue] = {}
        self._entries: dict[int, Queued] = {}
        self._gaps: dict[int, dict[tuple[str, int], QueuedGap]] = {}
        """Gaps by block, then by subscription and first number."""
        self._changed = changed
        self._last: Queued | None = None
        self._added = self._displaced = -1
        """Blocks of the last notifications that :meth:`displace` added and removed; they are marked as changed."""
        self._grown: list[QueuedGap] = []
        """The gaps that grew last; their blocks are marked with that of the removed notification."""

    def __len__(self) -> int:
        """Return how many notifications and gaps there are."""
        return len(self._entries) + sum(queue.gaps for queue in self.queues.values())

    def __iter__(self) -> Iterator[Queued]:
        """Iterate over the notifications."""
        return iter(self._entries.values())

    def append(self, entry: Queued) -> None:
        """Add the newest notification."""
        self._enter(entry)
        queues = self.queues
        for identity in entry.subscriptions:
            if (queue := queues.get(identity)) is None:
                queue = queues[identity] = SubscriptionQueue()
            queue.append(entry)
        self._changed[self.key, entry.number // NUMBERS_OF_BLOCK] = None

    def _enter(self, entry: Queued) -> None:
        """Add the newest notification of the session; it shares the tuples of the last one if they are equal."""
        subscriptions = entry.subscriptions
        if (last := self._last) is not None and last.subscriptions == subscriptions:
            entry.subscriptions = last.subscriptions
            if last.bound == entry.bound:
                entry.bound = last.bound
        self._last = entry
        entry.waiting = len(subscriptions)
        self._entries[entry.number] = entry

    def after(self, subscription: str, number: int) -> Item | None:
        """Return a subscription's first item that ends behind ``number``."""
        queue = self.queues.get(subscription)
        return None if queue is None else queue.after(number)

    def waiting(self, number: int) -> Queued | None:
        """Return the notification of this number, None if it waits for no subscription."""
        return self._entries.get(number)

    def reached(self, number: int) -> Iterator[str]:
        """Yield the subscriptions that may have an item which begins at ``number`` or earlier, and no empty ones."""
        found: set[str] = set()
        for subscription in self._named_until(number):
            if subscription not in found and subscription in self.queues:
                found.add(subscription)
                yield subscription

    def _named_until(self, number: int) -> Iterator[str]:
        for entry in self._entries.values():  # in the order of their numbers
            if entry.number > number:
                break
            yield from entry.subscriptions
        for block in sorted(self._gaps):  # a loaded queue has them in this order, too
            yield from (subscription for subscription, first in sorted(self._gaps[block]) if first <= number)

    def items_from(self, number: int, subscription: str | None = None) -> Iterator[list[tuple[str, Item]]]:
        """Yield the items that begin at ``number`` or later, grouped by number: each item with its subscription."""
        names = self.queues if subscription is None else [s for s in [subscription] if s in self.queues]
        streams = [self._named(name, number) for name in names]
        for _, group in groupby(merge(*streams, key=lambda pair: pair[1].number), key=lambda pair: pair[1].number):
            yield list(group)

    def _named(self, subscription: str, number: int) -> Iterator[tuple[str, Item]]:
        for item in self.queues[subscription].items_from(number):
            yield subscription, item

    # Leaving ----------------------------------------------------------------------------------------------------

    def take(self, subscription: str, through: int) -> tuple[int, list[Queued]]:
        """Remove a subscription's items up to number ``through``.

        Return the number of removed notifications, and those that no longer wait for any subscription.
        """
        if (queue := self.queues.get(subscription)) is None:
            return 0, []
        items = queue.take(through)
        if not queue:
            del self.queues[subscription]
        entries = []
        for item in items:
            if isinstance(item, Queued):
                entries.append(item)
            else:
                self._forget_gap(subscription, item)
                if item.last > through and isinstance(rest := next(iter(queue)), QueuedGap):
                    self._keep_gap(subscription, rest)
        return len(entries), self._released(entries)

    def displace(
        self, subscriptions: Sequence[str], number: int, reason: str, newest: Queued | None = None
    ) -> Queued | None:
        """Drop the first notification of some subscriptions like :meth:`drop`, with a gap before it and none behind it.

        Full queues lose that one for each ``newest`` one of the same subscriptions, which is added like by
        :meth:`append`, and the gaps grow in place. Return the first notification; None, with nothing done, if it is not
        ``number`` or has no such place in one of the queues.
        """
        entry: Queued | None = None
        found: list[SubscriptionQueue] = []
        for each in subscriptions:
            if (own := self.queues.get(each)) is None or (entry := own.first_behind_gap()) is None:
                return None
            items, second = own._items, own._start + 2
            if entry.number != number or (len(items) > second and type(items[second]) is QueuedGap):
                return None
            found.append(own)
        if entry is None:
            return None
        if newest is not None:
            self._enter(newest)
            if (block := newest.number // NUMBERS_OF_BLOCK) != self._added:
                self._added = block
                self._changed[self.key, block] = None
        grown = [own.exchange(entry, reason, newest) for own in found]
        entry.waiting -= len(found)
        if not entry.waiting:
            del self._entries[number]
        if (block := number // NUMBERS_OF_BLOCK) != self._displaced or grown != self._grown:
            self._displaced, self._grown = block, grown
            self._changed[self.key, block] = None
            for gap in grown:
                self._changed[self.key, gap.number // NUMBERS_OF_BLOCK] = None
        return entry

    def pass_over(self, subscriptions: Sequence[str], number: int, reason: str) -> bool:
        """Drop the newest notification, which is not added, by the gaps that are last; False without one of them."""
        gaps = []
        for each in subscriptions:
            if (own := self.queues.get(each)) is None or type(gap := own._items[-1]) is not QueuedGap:
                return False
            gaps.append(gap)
        for gap in gaps:
            gap.add(number, reason)
            self._changed[self.key, gap.number // NUMBERS_OF_BLOCK] = None
        return True

    def drop(self, subscription: str, first: int, last: int, reason: str) -> tuple[int, list[Queued]]:
        """Drop a subscription's notifications numbered ``first`` to ``last``; return the same as :meth:`take`."""
        if (queue := self.queues.get(subscription)) is None:
            return 0, []
        dropped, former, gap = queue.drop(first, last, reason)
        for each in former:
            self._forget_gap(subscription, each)
        if gap is not None:
            self._keep_gap(subscription, gap)
        return len(dropped), self._released(dropped)

    def forget(self, through: int) -> list[Queued]:
        """Forget the notifications up to number ``through``, and the gaps that end there; return the notifications.

        This is for queues that have left: those of the subscriptions are gone already.
        """
        forgotten = list(takewhile(lambda entry: entry.number <= through, self._entries.values()))
        for entry in forgotten:
            del self._entries[entry.number]
            self._changed[self.key, entry.number // NUMBERS_OF_BLOCK] = None
        for gaps in list(self._gaps.values()):
            for (subscription, _), gap in list(gaps.items()):
                if gap.last <= through:
                    self._forget_gap(subscription, gap)
        return forgotten

    def covered(self, number: int) -> tuple[tuple[str, int], ...]:
        """Return the subscriptions with a gap over ``number`` and the next one, each with the last number of it."""
        gaps = (pair for several in self._gaps.values() for pair in several.items())
        return tuple([(each, gap.last) for (each, first), gap in gaps if first <= number < gap.last])

    def rename(self, ended: str, successor: str) -> None:
        """Move the queue of ``ended`` to ``successor``, whose own queue is empty."""
        if (queue := self.queues.pop(ended, None)) is None:
            return
        self.queues[successor] = queue
        renamed: dict[tuple[str, ...], tuple[str, ...]] = {}
        for item in queue:
            if isinstance(item, QueuedGap):
                self._forget_gap(ended, item)
                self._keep_gap(successor, item)
                continue
            before = item.subscriptions
            if before not in renamed:
                renamed[before] = tuple(successor if each == ended else each for each in before)
            item.subscriptions = renamed[before]
            item.bound = tuple((successor if each == ended else each, device) for each, device in item.bound)
            self._changed[self.key, item.number // NUMBERS_OF_BLOCK] = None

    def _released(self, entries: Iterable[Queued]) -> list[Queued]:
        """Count one waiting subscription less for each of these; return those that wait for none."""
        released = []
        for entry in entries:
            entry.waiting -= 1
            if not entry.waiting:
                self._entries.pop(entry.number, None)
                self._changed[self.key, entry.number // NUMBERS_OF_BLOCK] = None
                released.append(entry)
        return released

    def _keep_gap(self, subscription: str, gap: QueuedGap) -> None:
        block = gap.number // NUMBERS_OF_BLOCK
        self._gaps.setdefault(block, {})[subscription, gap.number] = gap
        self._changed[self.key, block] = None

    def _forget_gap(self, subscription: str, gap: QueuedGap) -> None:
        block = gap.number // NUMBERS_OF_BLOCK
        del self._gaps[block][subscription, gap.number]
        if not self._gaps[block]:
            del self._gaps[block]
        self._changed[self.key, block] = None

    # Storing ----------------------------------------------------------------------------------------------------

    def block(self, number: int) -> Block | None:
        """Return the row for block ``number``, None if no item begins there."""
        first = number * NUMBERS_OF_BLOCK
        origins: dict[tuple[str, int], int] = {}
        matches: dict[StoredMatch, int] = {}
        entries = []
        for place in range(NUMBERS_OF_BLOCK):
            if (entry := self._entries.get(first + place)) is not None:
                match = matches.setdefault(StoredMatch(entry.subscriptions, entry.bound), len(matches))
                identity = entry.event.id
                origin = origins.setdefault((identity.origin, identity.incarnation), len(origins))
                entries.append(StoredEntry(place, origin, identity.number, match, entry.history_us))
        gaps = sorted(self._gaps.get(number, {}).items())
        stored = tuple(_stored(subscription, gap) for (subscription, _), gap in gaps)
        return Block(tuple(origins), tuple(matches), tuple(entries), stored) if entries or stored else None

    def saved(self) -> None:
        """Note that the collected blocks were stored."""
        self._added = self._displaced = -1

    def blocks(self) -> Sequence[int]:
        """Return the number of every block in which an item begins."""
        return sorted({number // NUMBERS_OF_BLOCK for number in self._entries} | self._gaps.keys())

    def load(
        self,
        blocks: Iterable[tuple[int, Block]],
        events: dict[EventId, EventRow],
        settled: dict[str, int],
        covered: Mapping[str, int] = _NOTHING,
    ) -> list[Queued]:
        """Add stored blocks, in order, behind the present items; return the notifications that wait.

        ``settled`` is the number up to which each subscription is settled, and ``covered`` that up to which gaps before
        the blocks reach. ``KeyError`` names an unknown event or subscription.
        """
        kept: dict[str, list[QueuedGap]] = {}
        blocks = list(blocks)
        for _, block in blocks:
            for each in block.gaps:
                numbers = {
                    reason: array("q", [each.number + place for place in places])
                    for reason, places in each.numbers.items()
                }
                gap = QueuedGap(each.number, each.last, each.lost, numbers)
                kept.setdefault(each.subscription, []).append(gap)
                self._gaps.setdefault(gap.number // NUMBERS_OF_BLOCK, {})[each.subscription, gap.number] = gap
        added: list[Queued] = []
        items: dict[str, list[Item]] = {}
        known: dict[StoredMatch, StoredMatch] = {}
        for number, block in blocks:
            first = number * NUMBERS_OF_BLOCK
            matches = [known.setdefault(match, match) for match in block.matches]
            targets = [
                [(max(settled[s], covered.get(s, 0)), kept.get(s), items.setdefault(s, [])) for s in m.subscriptions]
                for m in matches
            ]
            for stored in block.entries:
                match = matches[stored.match]
                at = first + stored.place
                event = events[EventId(*block.origins[stored.origin], stored.number)]
                entry = Queued(at, event, match.subscriptions, match.bound, history_us=stored.history_us)
                for through, gaps, target in targets[stored.match]:
                    if at > through and (gaps is None or not is_in(gaps, at)):
                        target.append(entry)
                        entry.waiting += 1
                if entry.waiting:
                    self._entries[at] = self._last = entry
                    added.append(entry)
        for subscription, gaps in kept.items():
            items[subscription] = sorted([*items.get(subscription, ()), *gaps], key=_number)
        for subscription, several in items.items():
            if several:
                self.queues.setdefault(subscription, SubscriptionQueue()).extend(several)
        return added


def _stored(subscription: str, gap: QueuedGap) -> StoredGap:
    numbers = {reason: tuple([number - gap.number for number in several]) for reason, several in gap.numbers.items()}
    return StoredGap(subscription, gap.number, gap.last, gap.lost, numbers)
