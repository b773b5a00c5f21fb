"""Layout of the arrays of a segment, on which both kernels and the builder agree (DESIGN 7.4)."""

from __future__ import annotations

from typing import Final

BLOCK_ROWS: Final = 512
"""Rows in a block: one bit of the summary, and one cache line of each bucket."""

BUCKETS_MAX: Final = 32
"""Buckets of one column; at most 64, the bits of a word."""

PLACES_MAX: Final = 48
"""Columns of a segment with buckets; the others are only verified."""

OR_NEXT: Final = 1 << 30
"""Bit of an entry's column: the next entry belongs to the same clause; one of them is enough."""

OPEN_LOW, OPEN_HIGH = 1 << 28, 1 << 29
"""Bit of an entry's column: the double beyond an end is the real end, which is itself excluded."""

PLACE: Final = OPEN_LOW - 1
"""Mask of the column number in an entry's column."""

LIVE, ON_LISTS = 1, 2
"""Traits of a slot, as bits: it is in use; its row's matches with lists must still be evaluated."""

LISTS: Final = 1
"""Flag of an event: it has several values in a column, or one that is not a double."""

SLOT, START, STOP, SUBJECT, VERIFIED, OWNER, CAPACITY = range(7)
"""Parts of a row.

They are: its slot in the store; the first of its entries; the end of them; the number of its subject; the end of the
entries that its bits do not decide (these are verified, the others only for events with lists); its owner (the slot of
its filter, inverted if a match must still be evaluated); and the number of entries there is room for.
"""

USED, ROWS, WRITTEN = range(3)
"""Sizes of a segment: entries in use, live rows, and rows written since the segment was made."""

ROW_PARTS: Final = 7

WAITING: Final = 0
"""Segment number of a row that is not yet written."""

UNPLACED, PLACED = -1, -2
"""Marks of a row that is in no segment yet, and of a row whose place is known."""

WORTH: Final = 1024
"""Denominator of the share of values that a clause lets through."""

LOOSE: Final = 16
"""Extra buckets that a range lets through beyond its span: ranges that begin alike end at different places."""
