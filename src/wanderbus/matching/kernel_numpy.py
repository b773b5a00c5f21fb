"""Kernel on whole arrays: the same as :mod:`wanderbus.matching.kernel_numba`, without numba."""

from __future__ import annotations

from typing import Final

import numpy as np

from wanderbus.matching.bits_numpy import line_of, rows_in, spans
from wanderbus.matching.layout import (
    BLOCK_ROWS,
    LISTS,
    LIVE,
    ON_LISTS,
    OPEN_HIGH,
    OPEN_LOW,
    OR_NEXT,
    OWNER,
    PLACE,
    SLOT,
    START,
    STOP,
    SUBJECT,
    VERIFIED,
)
from wanderbus.matching.segment import Array
from wanderbus.matching.writing_numpy import fill, gather, keys_of, write

__all__ = ["by_event", "choose", "fetch", "fill", "gather", "keys_of", "match", "match_lists", "once", "write"]

PAIRS_MAX: Final = 256
"""Pairs of a block and an event that are examined together, to bound intermediate arrays."""


def choose(
    values: Array, flags: Array, item_starts: Array, item_columns: Array, item_values: Array, rows: Array,
    entry_columns: Array, ends: Array, columns: Array, line_starts: Array, cuts: Array, bits: Array, summary: Array,
    lines: Array, blocks: Array,
) -> None:  # fmt: skip
    """Set the line of each event's value in each column, and, as bits, the blocks in which all these leave some row.

    An event with several values in a column gets no blocks: :func:`match_lists` matches it.
    """
    blocks[:] = summary[0]
    for place, column in enumerate(columns.tolist()):
        lines[:, place] = line_of(line_starts, cuts, place, values[:, column])
        blocks &= summary[lines[:, place]]
    blocks[(values[:, 0] < 0) | (flags & LISTS != 0)] = 0


def match(
    block: int, event: int, values: Array, rows: Array, entry_columns: Array, ends: Array, columns: Array,
    line_starts: Array, cuts: Array, bits: Array, summary: Array, lines: Array, blocks: Array, is_frozen: bool,
    traits: Array, out: Array, counts: Array, size: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Append the matches of events from ``event`` in ``block`` on.

    Return the event and block to resume at, and the size.
    """
    chosen = np.unpackbits(blocks.view(np.uint8), axis=1, count=len(bits), bitorder="little").T.ravel()
    start = block * len(values) + event
    pairs = start + np.flatnonzero(chosen[start:])
    while len(pairs):
        at_once = min(PAIRS_MAX, (len(out) - size) // BLOCK_ROWS)
        if at_once < 1:
            return *divmod(int(pairs[0]), len(values)), size
        block_of, pair_event = np.divmod(pairs[:at_once], len(values))
        pairs = pairs[at_once:]
        left = bits[block_of, 0]
        left &= np.bitwise_and.reduce(bits[block_of[:, None], lines[pair_event]], axis=1)
        pair, row = np.divmod(rows_in(left), BLOCK_ROWS)
        row += block_of[pair] * BLOCK_ROWS
        event_of = pair_event[pair]
        is_same_subject = rows[row, SUBJECT] == values[event_of, 0]
        row, event_of = row[is_same_subject], event_of[is_same_subject]
        entries, of_row = spans(rows[row, START], rows[row, VERIFIED])
        asked = entry_columns[entries]
        value = values[event_of[of_row], asked & PLACE]
        holds = _all_hold((ends[entries, 0] <= value) & (value <= ends[entries, 1]), asked, of_row, len(row))
        if is_frozen:
            holds &= traits[rows[row, SLOT]] & LIVE != 0
        size = _put(rows[row[holds], OWNER], event_of[holds], out, counts, size)
    return len(bits), 0, size


def match_lists(
    event: int, values: Array, flags: Array, item_starts: Array, item_columns: Array, item_values: Array, rows: Array,
    entry_columns: Array, ends: Array, columns: Array, line_starts: Array, cuts: Array, bits: Array, summary: Array,
    traits: Array, out: Array, counts: Array, size: int,
) -> int:  # fmt: skip
    """Append the matches of an event that has several values in some column; return the new size."""
    items = slice(item_starts[event], item_starts[event + 1])
    event_columns, event_values = item_columns[items], item_values[items]
    left = bits[:, 0].copy()
    for place, column in enumerate(columns.tolist()):
        several = np.append(event_values[event_columns == column], values[event, column])
        for_some = np.unique(line_of(line_starts, cuts, place, several))
        left &= np.bitwise_or.reduce(bits[:, for_some], axis=1)
    row = rows_in(left)
    row = row[rows[row, SUBJECT] == values[event, 0]]
    entries, of_row = spans(rows[row, START], rows[row, STOP])
    asked, low, high = entry_columns[entries], ends[entries, 0], ends[entries, 1]
    value = values[event, asked & PLACE]
    holds = (low <= value) & (value <= high)
    for column in np.unique(event_columns).tolist():
        of_column = np.flatnonzero(asked & PLACE == column)
        items_here = event_values[event_columns == column]
        holds[of_column] |= _some_lie_in(asked[of_column], low[of_column], high[of_column], items_here)
    row = row[_all_hold(holds, asked, of_row, len(row)) & (traits[rows[row, SLOT]] & LIVE != 0)]
    owners = rows[row, OWNER]
    owners = np.where((traits[rows[row, SLOT]] & ON_LISTS != 0) & (owners >= 0), ~owners, owners)
    return _put(owners, np.full(len(row), event), out, counts, size)


def _some_lie_in(asked: Array, low: Array, high: Array, items: Array) -> Array:
    """Return, for some entries, whether an item lies in each that is between of_column two doubles, or equals both."""
    below, above = np.sort(items, axis=0).T
    # An item that is not a double is above the double that an open end excludes, and below the next double.
    is_low, is_high = asked & OPEN_LOW != 0, asked & OPEN_HIGH != 0
    first = np.where(is_low, np.searchsorted(above, low), np.searchsorted(below, low))
    stop = np.where(is_high, np.searchsorted(below, high, "right"), np.searchsorted(above, high, "right"))
    found: Array = first < stop
    return found


def _all_hold(holds: Array, asked: Array, of_row: Array, rows: int) -> Array:
    """Return, for each row, whether some entry holds of each of of_column clauses, which are runs of entries."""
    firsts = np.flatnonzero(np.concatenate([[True], asked[:-1] & OR_NEXT == 0])[: len(asked)])
    result = np.ones(rows, np.bool_)
    result[of_row[firsts[~np.logical_or.reduceat(holds, firsts)]]] = False
    return result


def _put(owners: Array, events: Array, out: Array, counts: Array, size: int) -> int:
    """Append what events match; return the new size."""
    end = size + len(owners)
    out[size:end, 0], out[size:end, 1] = events, owners
    counts += np.bincount(events, minlength=len(counts)).astype(counts.dtype)
    return end


def by_event(out: Array, size: int, counts: Array, ends: Array, slots: Array) -> None:
    """Group the matches by event, and set the end of each group."""
    slots[:] = out[np.argsort(out[:size, 0], kind="stable"), 1]
    ends[:] = np.cumsum(counts)


def once(slots: Array, ends: Array, seen: Array, stamp: int) -> None:
    """Keep every slot only once for each event; kernels that work event by event use ``seen`` and ``stamp``."""
    begin = size = 0
    for event, end in enumerate(ends.tolist()):
        of_column = slots[begin:end]
        _, firsts = np.unique(np.where(of_column < 0, ~of_column, of_column), return_index=True)
        slots[size : size + len(firsts)] = of_column[np.sort(firsts)]
        begin, size = end, size + len(firsts)
        ends[event] = size


def fetch(objects: int, slots: Array) -> None:
    """Do nothing: numpy has no prefetch."""
