"""Rebuild of segments: merges the rows of others, in order and with a fitting shape, in short steps (DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from wanderbus.matching.arrays import Slots
from wanderbus.matching.incremental import FIXED_US, Stepped, Steps
from wanderbus.matching.layout import BLOCK_ROWS, ROW_PARTS, SLOT
from wanderbus.matching.segment import Array, RowSegment, Shape
from wanderbus.matching.segment_shape import SAMPLE_ROWS, shape_of

SLACK: Final = 1 / 16
"""Share of rows, and of entries, that is kept free for new ones."""

_KEYS_A_STEP: Final = 1_024
_SORTED_AT_ONCE: Final = 32_768
_ENTRIES_SPARE: Final = 2_048


class Rebuilding(Stepped):
    """Rebuild of several segments' live rows as one new segment."""

    def __init__(self, sources: Mapping[int, RowSegment], number: int, slots: Slots, kernel: Any) -> None:
        """``number`` is the number of the new segment; no row may be added to the sources any more."""
        self.sources = sources
        self.number = number
        self.made: RowSegment | None = None
        """The new segment, complete at the end; None at the end if no row is left."""
        self._segments = list(sources.values())
        self._slots = slots
        self._kernel = kernel
        super().__init__()
        for segment in self._segments:
            segment.is_frozen = True

    def _work(self) -> Steps:
        most = sum(map(len, self._segments))  # rows may be removed during the search
        source, rows = np.empty(most, np.int32), np.empty(most, np.int32)
        count = entries = 0
        for number, segment in enumerate(self._segments):
            its = segment.live_rows()
            source[count : count + len(its)] = number
            rows[count : count + len(its)] = its
            count += len(its)
            entries += int(segment.lengths(its).sum())
            yield FIXED_US + len(segment.rows) // 50
        if not count:
            return
        source, rows = source[:count], rows[:count]
        sample = np.arange(0, count, count // SAMPLE_ROWS + 1)
        shape = shape_of(*self._gathered(source[sample], rows[sample]))
        yield 1_500
        keys = np.empty(count, np.uint64)
        for first in range(0, count, _KEYS_A_STEP):
            some = slice(first, first + _KEYS_A_STEP)
            keys[some] = self._keys(source[some], rows[some], shape)
            yield 800
        order = np.empty(count, np.int64)
        yield from _sort(keys, order)
        blocks = -(-int(count * (1 + SLACK)) // BLOCK_ROWS)
        per_block = -(-count // blocks)
        self.made = made = RowSegment(shape, blocks, int(entries * (1 + SLACK)) + _ENTRIES_SPARE)
        made.keys[:] = keys[order[np.minimum(np.arange(blocks) * per_block, count - 1)]]
        for block in range(blocks):
            its = order[block * per_block : (block + 1) * per_block]
            self._fill(block, self._gathered(source[its], rows[its]))
            yield 500
        made.settled()

    def _keys(self, source: Array, rows: Array, shape: Shape) -> Array:
        keys = np.empty(len(rows), np.uint64)
        for at in np.unique(source).tolist():
            mine = source == at
            keys[mine] = self._kernel.keys_of(
                rows[mine], *self._segments[at].tables[:3], shape.places, shape.worths, shape.line_starts, shape.cuts
            )
        return keys

    def _fill(self, block: int, fresh: tuple[Array, Array, Array]) -> None:
        """Write some rows to a block of the new segment, and record their new place."""
        made = self.made
        assert made is not None
        self._kernel.fill(block, *fresh, made.shape.places, *made.tables, made.sizes)
        slots = fresh[0][:, SLOT]
        self._slots.homes[slots] = self.number
        self._slots.places[slots] = block * BLOCK_ROWS + np.arange(len(slots))

    def _gathered(self, source: Array, rows: Array) -> tuple[Array, Array, Array]:
        """Return the rows among these that are still in use, as arrays without gaps."""
        several = [(self._segments[at], rows[source == at]) for at in np.unique(source).tolist()]
        entries = sum(int(segment.lengths(its).sum()) for segment, its in several)
        fresh = np.empty((len(rows), ROW_PARTS), np.int32), np.empty(entries, np.int32), np.empty((entries, 2))
        filled = np.zeros(2, np.int64)
        for segment, its in several:
            self._kernel.gather(its, *segment.tables[:3], self._slots.traits, filled, *fresh)
        count, used = filled.tolist()
        return fresh[0][:count], fresh[1][:used], fresh[2][:used]


def _sort(keys: Array, order: Array) -> Steps:
    """Sort ``keys`` into ``order``, one part of their range after the other."""
    parts = len(keys) // _SORTED_AT_ONCE + 1
    sample = np.sort(keys[:: len(keys) // SAMPLE_ROWS + 1])
    cuts = sample[np.arange(1, parts) * len(sample) // parts]
    yield 100
    part = np.empty(len(keys), np.uint16)
    for first in range(0, len(keys), _SORTED_AT_ONCE):
        part[first : first + _SORTED_AT_ONCE] = np.searchsorted(cuts, keys[first : first + _SORTED_AT_ONCE], "right")
        yield 800
    begin = 0
    for number in range(parts):
        its = np.flatnonzero(part == number)
        order[begin : begin + len(its)] = its[np.argsort(keys[its])]
        begin += len(its)
        yield 1_000 + len(keys) // 1_000
