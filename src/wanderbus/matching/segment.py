"""Segment: rows as flat arrays, with a bit string for each bucket of a column's values (DESIGN 7.4).

Rows are added and removed in place. The columns with buckets, the limits of the buckets, and the assignment of rows to
blocks are fixed when the segment is made.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from wanderbus.matching.layout import BLOCK_ROWS, ROW_PARTS, ROWS, START, STOP, USED, WRITTEN

Array = np.ndarray[Any, Any]

_OWN: Final = ("rows", "entry_columns", "ends", "bits", "summary", "keys", "sizes")
_SHAPE: Final = ("columns", "line_starts", "cuts", "places", "worths")


class Shape:
    """The part of a segment that does not depend on single rows: the columns with buckets, and the buckets.

    The first line has the rows that are in use. Then each column has one line for events without a value, and one for
    each bucket. ``cuts`` has the least value of each bucket, by line.
    """

    def __init__(self, columns: Array, line_starts: Array, cuts: Array, places: Array, worths: Array) -> None:
        self.columns = columns
        """The columns with buckets."""
        self.line_starts = line_starts
        """The first line of each column, then the number of all lines."""
        self.cuts = cuts
        self.places = places
        """For each column of the index, its place in ``columns``, or -1; also beyond the end of ``columns``."""
        self.worths = worths
        """For each of ``columns``, how many of ``WORTH`` values an equality lets through."""


PLAIN: Final = Shape(
    np.empty(0, np.int64), np.ones(1, np.int32), np.full(1, np.nan), np.full(1, -1, np.int32),
    np.empty(0, np.int32),
)  # fmt: skip
"""Shape without any buckets: every row is verified."""


class RowSegment:
    """Some blocks of rows."""

    def __init__(self, shape: Shape, blocks: int, entries_max: int) -> None:
        """Make an empty segment, whose blocks have yet to be filled or cleared."""
        self.shape = shape
        self.rows: Array = np.empty((blocks * BLOCK_ROWS, ROW_PARTS), np.int32)
        """For each row, the parts listed at :data:`wanderbus.matching.layout.SLOT`."""
        self.entry_columns: Array = np.empty(entries_max, np.int32)
        """For each entry, its column, and whether the next entry belongs to the same clause."""
        self.ends: Array = np.empty((entries_max, 2), np.float64)
        """For each entry, the least and the greatest value."""
        self.bits: Array = np.empty((blocks, int(shape.line_starts[-1]), 8), np.uint64)
        """For each block and line, a bit for each row that the line does not exclude."""
        self.summary: Array = np.zeros((int(shape.line_starts[-1]), -(-blocks // 64)), np.uint64)
        """For each line, a bit for each block in which the line leaves some row."""
        self.keys: Array = np.zeros(blocks, np.uint64)
        """The least key of each block."""
        self.sizes: Array = np.zeros(3, np.int64)
        self.is_frozen = False
        """True if it is being rebuilt: rows may be removed, but none may be added."""
        self._settle()

    def _settle(self) -> None:
        self.tables = (
            self.rows, self.entry_columns, self.ends, self.shape.columns, self.shape.line_starts, self.shape.cuts,
            self.bits, self.summary,
        )  # fmt: skip
        """Return the arrays that the kernels read."""
        self._bytes = self.bits.reshape(-1).view(np.uint8)
        self._block_bytes = 64 * self.bits.shape[1]

    def __len__(self) -> int:
        return int(self.sizes[ROWS])

    @property
    def free(self) -> int:
        """Return the number of free rows."""
        return len(self.rows) - len(self)

    @property
    def is_worn(self) -> bool:
        """Return whether so many rows changed that the shape no longer fits, or there never was a shape."""
        is_sparse = 2 * len(self) < len(self.rows) - 2 * BLOCK_ROWS
        return is_sparse or self.shape is PLAIN or bool(self.sizes[WRITTEN] > 2 * len(self.rows))

    def clear(self) -> None:
        """Free all rows."""
        self.rows[:] = 0
        self.bits[:] = ~np.uint64(0)
        self.bits[:, 0] = 0

    def like(self, blocks: int, entries_min: int) -> RowSegment:
        """Return an empty, smaller segment of the same shape, whose rows have the same order."""
        per_row = self.sizes[USED] / max(1, self.sizes[ROWS])
        other = RowSegment(self.shape, blocks, entries_min + int(blocks * BLOCK_ROWS * 1.25 * per_row))
        other.clear()
        other.keys[:] = self.keys[np.arange(blocks) * len(self.keys) // blocks]
        return other

    def remove(self, row: int) -> None:
        """Free a row."""
        at = (row // BLOCK_ROWS) * self._block_bytes + ((row % BLOCK_ROWS) >> 3)
        self._bytes[at] &= 0xFF ^ (1 << (row & 7))
        self.sizes[ROWS] -= 1

    def settled(self) -> None:
        """Begin to count added and removed rows."""
        self.sizes[WRITTEN] = 0

    def lengths(self, rows: Array) -> Array:
        """Return the number of entries of each of some rows."""
        its: Array = self.rows[rows, STOP] - self.rows[rows, START]
        return its

    def live_rows(self) -> Array:
        """Return the rows that are not free."""
        return np.flatnonzero(np.unpackbits(np.ascontiguousarray(self.bits[:, 0]).view(np.uint8), bitorder="little"))

    def arrays(self) -> dict[str, Array]:
        """Return copies of all arrays."""
        own = {name: getattr(self, name).copy() for name in _OWN}
        return {**own, **{name: getattr(self.shape, name).copy() for name in _SHAPE}}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> RowSegment:
        """Return the segment whose :meth:`arrays` these are; they are copied."""
        segment = cls(Shape(*(arrays[name].copy() for name in _SHAPE)), 0, 0)
        for name in _OWN:
            setattr(segment, name, arrays[name].copy())
        segment._settle()
        return segment


def plain(blocks: int, entries_min: int) -> RowSegment:
    """Return an empty segment without buckets, for the first rows."""
    segment = RowSegment(PLAIN, blocks, entries_min + blocks * BLOCK_ROWS * 4)
    segment.clear()
    return segment
