"""Engine of the index: stores filters as rows of a store and returns matches as ids (DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.filters.compiled import Test, compile_node
from wanderbus.matching.arrays import columns_packed, columns_unpacked, packed, segments_in, unpacked
from wanderbus.matching.batch import EVENTS_MAX, VALUES_MAX, Batch
from wanderbus.matching.layout import BLOCK_ROWS, LIVE, ON_LISTS
from wanderbus.matching.rows import rows_of
from wanderbus.matching.scan import Judge
from wanderbus.matching.segment import Array, RowSegment
from wanderbus.matching.store import Store
from wanderbus.matching.table import EventTable, RowJudge
from wanderbus.matching.table_batch import TableBatch

_ROOM: Final = 1 << 14
"""Initial capacity for matches; there is always room for so many."""

_STAMPS_MAX: Final = 2**31 - 2**21


class Engine:
    """A changing set of filters, each with a subject and an id; the first row of a filter has the filter's slot."""

    def __init__(self, kernel: Any, judge: Judge | None = None) -> None:
        self._kernel = kernel
        self._judge = judge
        self._store = Store(kernel)
        self._slot_of: dict[str, int] = {}
        self._ids: Array = np.empty(len(self._store.slots.traits), object)
        self._seen: Array = np.zeros(len(self._ids), np.int32)
        """Stamp with which each filter was found last; every event has its own stamp."""
        self._stamp = 1
        self._others: dict[int, list[int]] = {}
        """Filters with several rows: the slots of all rows but the first."""
        self._checks: dict[int, tuple[Filter, Test]] = {}
        """Filters whose rows are not exact, by slot: what has to be evaluated."""
        self._out: Array = np.empty((_ROOM, 2), np.int32)

    def __len__(self) -> int:
        return len(self._slot_of)

    def use(self, kernel: Any) -> None:
        """Match with the loops of another kernel from now on; all kernels work on the same arrays."""
        self._kernel = kernel
        self._store.use(kernel)

    def add(self, id: str, subject: str, filter: Filter) -> None:
        """Match events of ``subject`` against ``filter`` from now on; replaces an earlier filter with this ``id``."""
        self._put(id, subject, filter)
        self._store.write_if_many()

    def add_many(self, several: Iterable[tuple[str, str, Filter]]) -> None:
        """Do the same for each (id, subject, filter); if they are many, no rebuild remains to be done later."""
        for id, subject, filter in several:
            self._put(id, subject, filter)
            self._store.write_many()
        self._store.settle_many()

    def _put(self, id: str, subject: str, filter: Filter) -> None:
        if id in self._slot_of:
            self.remove(id)
        store = self._store
        rows, is_exact, is_exact_on_lists = rows_of(filter.root)
        subject_number = int(store.columns.subjects[subject])
        slot = store.take_slot()
        several = [slot] if len(rows) < 2 else [slot, *(store.take_slot() for _ in rows[1:])]
        for one, row in zip(several, rows, strict=False):
            is_exact &= store.put(one, subject_number, row)
        if len(self._ids) < len(store.slots.traits):
            self._grow(len(store.slots.traits))
        if len(several) > 1:
            self._others[slot] = several[1:]
        if len(several) > 1 or not is_exact:
            store.own(len(rows), slot if is_exact else ~slot)
        if not (is_exact and is_exact_on_lists):
            self._checks[slot] = filter, compile_node(filter.root)
        traits = store.slots.traits
        for one in several:
            traits[one] = LIVE if is_exact_on_lists else LIVE | ON_LISTS
        self._slot_of[id] = slot
        self._ids[slot] = id

    def remove(self, id: str) -> None:
        """Remove the filter with this ``id``, if there is one."""
        slot = self._slot_of.pop(id, None)
        if slot is None:
            return
        self._ids[slot] = None
        self._checks.pop(slot, None)
        self._store.free(slot)
        for other in self._others.pop(slot, ()):
            self._store.free(other)

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        """Return for each event the ids of the filters that it matches, in no particular order."""
        self._store.write(len(events))
        at_once = min(EVENTS_MAX, max(1, VALUES_MAX // self._store.columns.count))
        found: list[list[str]] = []
        for first in range(0, len(events), at_once):
            found += self._match(events[first : first + at_once])
        return found

    def _match(self, events: Sequence[Event]) -> list[list[str]]:
        slots, ends = self._candidates(Batch(events, self._store.columns))
        is_doubtful = self._checks and slots.min(initial=0) < 0
        ids = self._ids
        where = ids.__array_interface__["data"][0]
        found = []
        for event, (begin, end) in zip(events, pairwise([0, *ends]), strict=True):
            its = self._checked(slots[begin:end], event) if is_doubtful else slots[begin:end]
            self._kernel.fetch(where, its)
            found.append(ids.take(its).tolist())
        return found

    def match_table(self, table: EventTable, judge: RowJudge | None = None) -> tuple[Array, Array]:
        """Return the slots of the filters that the rows of a table match, row by row, and the end of each row's."""
        self._store.write(len(table))
        at_once = max(1, VALUES_MAX // self._store.columns.count)
        found, counts = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for first in range(0, len(table), at_once):
            batch = TableBatch(table.part(first, first + at_once), self._store.columns)
            for begin in range(0, len(batch.flags), EVENTS_MAX):
                slots, its_counts = self._counted(batch.part(begin, begin + EVENTS_MAX))
                if self._checks and slots.min(initial=0) < 0:
                    slots, its_counts = self._checked_rows(slots, its_counts, table, first + begin, judge)
                found.append(slots)
                counts.append(its_counts)
        return np.concatenate(found), np.cumsum(np.concatenate(counts))

    def ids(self) -> list[str | None]:
        """Return the id of the filter of each slot, by slot; None for a slot without a filter of its own."""
        return self._ids[: self._store.used].tolist()  # type: ignore[no-any-return]

    def _candidates(self, batch: Batch) -> tuple[Array, list[int]]:
        """Return the slots of each event of a batch, each once, and the ends; inverted ones must be evaluated."""
        counts = np.zeros(len(batch.flags), np.int32)
        size = 0
        for segment in self._store.segments.values():
            size = self._match_segment(segment, batch, counts, size)
        return self._by_event(counts, size)

    def _counted(self, batch: Batch) -> tuple[Array, Array]:
        """Return the slots of each event of a batch, each once, and their number; inverted ones must be evaluated."""
        slots, ends = self._candidates(batch)
        return slots[: ends[-1] if ends else 0], np.diff(np.array(ends, np.int64), prepend=0)

    def _checked_rows(
        self, slots: Array, counts: Array, table: EventTable, first: int, judge: RowJudge | None
    ) -> tuple[Array, Array]:
        """Evaluate the inverted slots of rows from ``first`` on; return the slots that match, and their numbers."""
        rows = np.repeat(np.arange(len(counts)), counts)
        is_kept = slots >= 0
        last = -1
        attributes: Mapping[str, Any] = {}
        for place in np.flatnonzero(~is_kept).tolist():
            if rows[place] != last:
                last = int(rows[place])
                attributes = table.attributes(first + last)
            slot = ~int(slots[place])
            test = self._checks[slot][1]
            is_kept[place] = (
                judge(self._ids[slot], test, first + last, attributes) if judge else test(attributes) is True
            )
        every = np.where(slots < 0, ~slots, slots)
        return every[is_kept], np.bincount(rows[is_kept], minlength=len(counts))

    def _match_segment(self, segment: RowSegment, batch: Batch, counts: Array, size: int) -> int:
        """Append the matches of one segment to the matches found so far; return the new size."""
        kernel, tables = self._kernel, segment.tables
        traits = self._store.slots.traits
        lines = np.empty((len(counts), len(segment.shape.columns)), np.int32)
        blocks = np.empty((len(counts), segment.summary.shape[1]), np.uint64)
        kernel.choose(*batch.tables, *tables, lines, blocks)
        block = event = 0
        while block < len(segment.keys):
            self._make_room(size + BLOCK_ROWS)
            found = segment.is_frozen, traits, self._out, counts, size
            block, event, size = kernel.match(block, event, batch.values, *tables, lines, blocks, *found)
        for event in batch.with_lists:
            self._make_room(size + len(segment.rows))
            size = kernel.match_lists(event, *batch.tables, *tables, traits, self._out, counts, size)
        return size

    def _by_event(self, counts: Array, size: int) -> tuple[Array, list[int]]:
        """Return the slots event by event, each once, and the end of each event's slots."""
        ends = np.empty(len(counts), np.int64)
        slots = np.empty(size, np.int32)
        self._kernel.by_event(self._out, size, counts, ends, slots)
        if len(self._out) > _ROOM:
            self._out = np.empty((_ROOM, 2), np.int32)
        if self._others:
            if self._stamp > _STAMPS_MAX:
                self._seen[:] = 0
                self._stamp = 1
            self._kernel.once(slots, ends, self._seen, self._stamp)
            self._stamp += len(counts)
        return slots, ends.tolist()

    def _make_room(self, size: int) -> None:
        if len(self._out) < size:
            fresh = np.empty((2 * size, 2), np.int32)
            fresh[: len(self._out)] = self._out
            self._out = fresh

    def _grow(self, slots: int) -> None:
        for array in (self._ids, self._seen):
            array.resize(slots, refcheck=False)

    def _checked(self, slots: Array, event: Event) -> Array:
        """Return the slots that an event matches; an inverted slot means that its filter must still be evaluated."""
        checks, attributes = self._checks, event.attributes
        several = slots.tolist()
        if judge := self._judge:
            ids = self._ids
            judged = (
                (slot if slot >= 0 else ~slot)
                for slot in several
                if slot >= 0 or judge(ids[~slot], checks[~slot][1], event)
            )
            return np.array(list(judged), np.int32)
        sure = [slot if slot >= 0 else ~slot for slot in several if slot >= 0 or checks[~slot][1](attributes) is True]
        return np.array(sure, np.int32)

    def arrays(self) -> dict[str, Array]:
        """Return everything as flat arrays, from which :meth:`from_arrays` makes an equal engine."""
        store = self._store
        store.settle()
        others = [[slot, other] for slot, each in self._others.items() for other in each]
        return {
            "slots": np.array(list(self._slot_of.values()), np.int64),
            "traits": store.slots.traits[: store.used].copy(),
            "others": np.array(others, np.int64).reshape(-1, 2),
            "checked": np.array(list(self._checks), np.int64),
            **packed("ids", list(self._slot_of)),
            **packed("filters", [part for each, _ in self._checks.values() for part in (each.text, each.language)]),
            **columns_packed(store.columns),
            **{
                f"{number}.{name}": array
                for number, segment in enumerate(store.segments.values())
                for name, array in segment.arrays().items()
            },
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], kernel: Any) -> Engine:
        """Return the engine whose :meth:`arrays` these are; the arrays are copied."""
        engine = cls(kernel)
        engine._store.take_over(columns_unpacked(arrays), arrays["traits"], segments_in(arrays))
        engine._grow(len(engine._store.slots.traits))
        engine._slot_of = dict(zip(unpacked("ids", arrays), arrays["slots"].tolist(), strict=True))
        for id, slot in engine._slot_of.items():
            engine._ids[slot] = id
        for slot, other in arrays["others"].tolist():
            engine._others.setdefault(slot, []).append(other)
        filters = unpacked("filters", arrays)
        for slot, text, language in zip(arrays["checked"].tolist(), filters[::2], filters[1::2], strict=True):
            interest = parse(text, language)
            engine._checks[slot] = interest, compile_node(interest.root)
        return engine
