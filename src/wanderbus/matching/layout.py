"""What the arrays of a segment are made of; both kernels and the builder agree on it (DESIGN 7.4)."""

from __future__ import annotations

from typing import Final

BLOCK_ROWS: Final = 512
"""Rows in a block: one bit of the summary, and one line of a processor's cache of each bucket."""

BUCKETS_MAX: Final = 32
"""Buckets of one column; at most 64, the bits of a word."""

PLACES_MAX: Final = 48
"""Columns of a segment with buckets; the others are only verified."""

OR_NEXT: Final = 1 << 30
"""In the column of an entry: the next entry is of the same clause, one of which is enough."""

OPEN_LOW, OPEN_HIGH = 1 << 28, 1 << 29
"""In the column of an entry: the double beyond an end is the end that was meant, which does not count itself."""

PLACE: Final = OPEN_LOW - 1
"""What of the column of an entry is the column."""

LIVE, ON_LISTS = 1, 2
"""Traits of a slot, as bits: it is in use; what its row finds for events with lists is yet to be evaluated."""

LISTS: Final = 1
"""Flag of an event: it has several values in a column, or one that is no double."""

SLOT, START, STOP, SUBJECT, VERIFIED, OWNER, CAPACITY = range(7)
"""Of a row: its slot in the store, the first of its entries, the end of them, the number of its subject, the end of the
entries that its bits do not say all about (for those are verified, the others only of events with lists), whose row
it is (the slot of its filter, inverted if what matches is yet to be evaluated), and for how many entries there is room.
"""

USED, ROWS, WRITTEN = range(3)
"""The sizes of a segment: entries that are taken, rows that are live, and rows written since it was made."""

ROW_PARTS: Final = 7

WAITING: Final = 0
"""The segment of a row that is yet to be written."""

UNPLACED, PLACED = -1, -2
"""Where a row is that is in no segment yet, and where one is of which it is known."""

WORTH: Final = 1024
"""What a clause lets through is counted in parts of this."""

LOOSE: Final = 16
"""Buckets by which a range lets more through than it spans: ranges that begin alike end apart."""
