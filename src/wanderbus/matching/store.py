"""Store of an index: its rows, in segments that are changed in place (DESIGN 7.4).

New rows wait until something is matched, or until some hundred more have come. Then they are written to free rows of
the segments, near similar rows. If there is no room, a small segment of the same shape is opened. Segments of similar
size are merged, and worn segments are rebuilt, in steps of a millisecond or two, taken when rows are written or
something is matched. Until a rebuilt segment is complete, its sources answer. Removing a row clears one bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from wanderbus.matching.arrays import Slots
from wanderbus.matching.columns import Columns
from wanderbus.matching.gc import Sweep
from wanderbus.matching.layout import BLOCK_ROWS, OWNER, PLACED, ROW_PARTS, SLOT, SUBJECT, UNPLACED, WAITING
from wanderbus.matching.rows import Row
from wanderbus.matching.segment import Array, RowSegment, plain
from wanderbus.matching.segment_rebuild import Rebuilding

SEGMENT_ROWS_MAX: Final = 2**20
"""Largest number of rows of segments that are merged."""

WAITING_MAX: Final = 256
"""Largest number of rows that wait to be written."""

WRITTEN_AT_ONCE: Final = 2**15
"""The same for very large additions: lists of waiting rows take ten times the memory of arrays."""

STEP_US: Final = 1_000
"""Approximate duration of one rebuild step, in microseconds."""

STEP_US_AN_EVENT: Final = 4
"""Additional time for each event that is matched: a fraction of that event's own time."""

REACH: Final = 12
"""Largest distance, in blocks, between the right block of a row and the block it is written to."""

SWEPT_MIN: Final = 4_096
"""Rows that are written before names are swept; twice the number of rows, if that is more."""

_STEPS_OF_WRITING: Final = 2
"""Steps taken at once after writing; fewer, and rebuilds could not keep pace with new rows."""

_OPEN_BLOCKS_MAX: Final = 32
_OPEN_SHARE: Final = 1 / 32
"""Share of all rows for which a new segment is sized."""

_LARGER: Final = 6
"""Largest size of a segment to be merged, as a multiple of the smaller segments together."""

_SLOTS_MIN: Final = 64

Fresh = tuple[Array, Array, Array]
"""Rows that are yet to be written, the columns of their entries, and the ends of these entries."""


class Store:
    """Rows by slot; a slot is a number that is used again after its row is freed."""

    def __init__(self, kernel: Any) -> None:
        self.columns = Columns()
        self.segments: dict[int, RowSegment] = {}
        """Segments that answer, by number."""
        self.slots = Slots(
            np.zeros(_SLOTS_MIN, np.uint8), np.zeros(_SLOTS_MIN, np.int32), np.zeros(_SLOTS_MIN, np.int32)
        )
        self.used = 0
        """Number of slots that were ever in use."""
        self._kernel = kernel
        self._free: list[int] = []
        self._freed: list[int] = []
        """Freed slots whose rows still wait, or are in a segment being rebuilt: not yet to be used again."""
        self._rows: list[int] = []
        self._entry_columns: list[int] = []
        self._ends: list[float] = []
        self._open = 0
        """Number of the segment that receives rows without room elsewhere, or 0."""
        self._numbered = 0
        self._work: Rebuilding | None = None
        self._sweep: Sweep | None = None
        self._is_sweeps_turn = False
        self._since_sweep = 0
        """Rows written since the last sweep."""

    def use(self, kernel: Any) -> None:
        """Write and rebuild with another kernel from now on; a rebuild in progress ends with its own kernel."""
        self._kernel = kernel

    def __len__(self) -> int:
        return self.used - len(self._free) - len(self._freed)

    def take_slot(self) -> int:
        """Return a free slot, which is in use from now on."""
        if self._free:
            return self._free.pop()
        if self.used == len(self.slots.traits):
            for array in self.slots:
                array.resize(self.used + self.used // 8, refcheck=False)  # in place, to avoid a copy
        self.used += 1
        return self.used - 1

    def put(self, slot: int, subject: int, row: Row) -> bool:
        """Assign a row to ``slot``; return whether its entries are exact."""
        begin = len(self._entry_columns)
        is_exact = self.columns.encode(row, self._entry_columns, self._ends)
        self._rows += slot, begin, len(self._entry_columns), subject, 0, slot, 0
        return is_exact

    def own(self, rows: int, owner: int) -> None:
        """Set the owner of the last ``rows`` rows: their filter's slot, inverted if matches have to be evaluated."""
        for at in range(len(self._rows) - ROW_PARTS * rows + OWNER, len(self._rows), ROW_PARTS):
            self._rows[at] = owner

    def free(self, slot: int) -> None:
        """Remove the row with this slot."""
        traits, homes, places = self.slots
        traits[slot] = 0
        home = int(homes[slot])
        if home != WAITING:
            self._segment(home).remove(int(places[slot]))
            homes[slot] = WAITING
        (self._freed if home == WAITING or self._work is not None else self._free).append(slot)

    def write_if_many(self) -> None:
        """Write the rows that wait, if there are many."""
        if len(self._rows) >= WAITING_MAX * ROW_PARTS:
            self._write()
            self._step(_STEPS_OF_WRITING * STEP_US)

    def write_many(self) -> None:
        """Write the waiting rows to segments of their own, without a search for room elsewhere, if there are many."""
        if len(self._rows) >= WRITTEN_AT_ONCE * ROW_PARTS:
            self._fill()

    def settle_many(self) -> None:
        """Write the waiting rows; if they are many, merge them and segments of similar size at once."""
        if len(self._rows) >= WAITING_MAX * ROW_PARTS:
            self._fill()
        if any(segment.is_worn for segment in self.segments.values()):
            self._open = 0
            self.settle()

    def write(self, events: int) -> None:
        """Write the waiting rows, and continue a rebuild: longer if many events are about to be matched."""
        if self._rows:
            self._write()
        self._step(STEP_US + events * STEP_US_AN_EVENT)

    def settle(self) -> None:
        """Write and rebuild everything that is due, at once."""
        self._write()
        if self._work is None:
            self._plan()
        while self._work is not None or self._sweep is not None:
            self._step(STEP_US)

    def take_over(self, columns: Columns, traits: Array, segments: list[RowSegment]) -> None:
        """Take over the contents of another store."""
        self.columns = columns
        self.used = len(traits)
        for array in self.slots:
            array.resize(max(_SLOTS_MIN, self.used), refcheck=False)
        self.slots.traits[: self.used] = traits
        for segment in segments:
            number = self._enter(segment)
            rows = segment.live_rows()
            self.slots.homes[segment.rows[rows, SLOT]] = number
            self.slots.places[segment.rows[rows, SLOT]] = rows
        self._free = np.flatnonzero(traits == 0).tolist()

    def _segment(self, number: int) -> RowSegment:
        """Return a segment, or the one that is being rebuilt."""
        if self._work is not None and number == self._work.number and self._work.made is not None:
            return self._work.made
        return self.segments[number]

    def _waiting(self) -> Fresh:
        """Return the waiting rows that are still in use, and clear the waiting list."""
        rows = np.array(self._rows, np.int32).reshape(-1, ROW_PARTS)
        rows = rows[self.slots.traits[rows[:, SLOT]] != 0]
        fresh = rows, np.array(self._entry_columns, np.int32), np.array(self._ends, np.float64).reshape(-1, 2)
        self._rows, self._entry_columns, self._ends = [], [], []
        return fresh

    def _fill(self) -> None:
        """Write the waiting rows to a segment without buckets: a fraction of the cost of finding room elsewhere."""
        fresh = self._waiting()
        rows = fresh[0]
        segment = plain(-(-len(rows) // BLOCK_ROWS), len(fresh[1]))
        for block in range(len(segment.keys)):
            its = rows[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
            self._kernel.fill(block, its, *fresh[1:], segment.shape.places, *segment.tables, segment.sizes)
        self.slots.homes[rows[:, SLOT]] = self._enter(segment)
        self.slots.places[rows[:, SLOT]] = np.arange(len(rows))
        self._written(fresh)

    def _write(self) -> None:
        fresh = self._waiting()
        rows = fresh[0]
        where = np.full(len(rows), UNPLACED, np.int32)
        left = len(rows)
        for number, segment in sorted(self.segments.items(), key=lambda each: -each[1].free):
            if left and number != self._open and not segment.is_frozen and segment.free:
                left = self._place(number, REACH, where, fresh)
        while left:
            if not self._open:
                self._open = self._enter(self._small_one(len(fresh[1])))
            left = self._place(self._open, len(self.segments[self._open].keys), where, fresh)
            if left:
                self._open = 0
        self._written(fresh)
        if self._work is None:
            self._plan()

    def _written(self, fresh: Fresh) -> None:
        """Start a sweep of names if enough rows were written since the last one."""
        rows = fresh[0]
        self._since_sweep += len(rows)
        if self._sweep is not None:
            self._sweep.mark(rows[:, SUBJECT], fresh[1], fresh[2])
        elif self._since_sweep > SWEPT_MIN + 2 * len(self):
            self._sweep = Sweep(self.columns, self.segments.values())

    def _place(self, number: int, reach: int, where: Array, fresh: Fresh) -> int:
        """Write rows that have no place yet to a segment; return how many found no room."""
        segment = self.segments[number]
        shape = segment.shape
        left: int = self._kernel.write(
            reach, segment.keys, where, *fresh, shape.places, shape.worths, *segment.tables, segment.sizes
        )
        placed = np.flatnonzero(where >= 0)
        slots = fresh[0][placed, SLOT]
        self.slots.homes[slots] = number
        self.slots.places[slots] = where[placed]
        where[placed] = PLACED
        return left

    def _enter(self, segment: RowSegment) -> int:
        self._numbered += 1
        self.segments[self._numbered] = segment
        return self._numbered

    def _small_one(self, entries: int) -> RowSegment:
        """Return an empty segment with room for at least ``entries`` entries."""
        largest = max(self.segments.values(), key=len, default=None)
        if largest is None:
            return plain(1, entries)
        return largest.like(min(_OPEN_BLOCKS_MAX, max(1, int(_OPEN_SHARE * len(self) / BLOCK_ROWS))), entries)

    # Rebuilds ---------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Begin a rebuild if one is due; no row waits, and no rebuild is in progress."""
        self._free += self._freed
        self._freed = []
        chosen = self._due()
        if chosen:
            self._numbered += 1
            self._work = Rebuilding(chosen, self._numbered, self.slots, self._kernel)

    def _due(self) -> dict[int, RowSegment]:
        """Return the segments to merge: the worn ones, and small ones with them or alone."""
        closed = [each for each in self.segments.items() if each[0] != self._open]
        chosen: dict[int, RowSegment] = {}
        total = 0
        for number, segment in sorted(closed, key=lambda each: (not each[1].is_worn, len(each[1]))):
            is_small = len(segment) <= _LARGER * total
            if total + len(segment) <= SEGMENT_ROWS_MAX and (segment.is_worn or not chosen or is_small):
                chosen[number] = segment
                total += len(segment)
        return chosen if len(chosen) > 1 or any(segment.is_worn for segment in chosen.values()) else {}

    def _step(self, least_us: int) -> None:
        """Continue the rebuild or the sweep, in turn, for about ``least_us``; no row waits."""
        if self._sweep is not None and (self._work is None or self._is_sweeps_turn):
            if self._sweep.step(least_us):
                self._sweep = None
                self._since_sweep = 0
        elif self._work is not None and self._work.step(least_us):
            self._exchange(self._work)
        self._is_sweeps_turn = not self._is_sweeps_turn

    def _exchange(self, work: Rebuilding) -> None:
        """Replace the sources of a rebuild by the new segment."""
        if work.made is not None:
            self.segments[work.number] = work.made
        for number in work.sources:
            del self.segments[number]
        self._work = None
        self._plan()
