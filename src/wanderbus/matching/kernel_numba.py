"""Inner loops of the index, compiled (DESIGN 7.4); :mod:`wanderbus.matching.kernel_numpy` does the same without numba.

Signatures are explicit, so everything is compiled when this module is imported and nothing while events wait. Compiled
code is cached beside this file or in ``NUMBA_CACHE_DIR``; if neither is writable, every import compiles. The arrays are
described in :mod:`wanderbus.matching.segment` and :mod:`wanderbus.matching.batch`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from wanderbus.matching.compilation import TABLES, compiled, line_of, lowest_bit, prefetch, touch
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
    ROW_PARTS,
    SLOT,
    START,
    STOP,
    SUBJECT,
    VERIFIED,
)
from wanderbus.matching.writing_numba import fill, gather, keys_of, write

__all__ = ["by_event", "choose", "fetch", "fill", "gather", "keys_of", "match", "match_lists", "once", "write"]

_ONE: Final = np.uint64(1)
_1, _2, _3, _4, _5, _6, _7 = (np.uint64(each) for each in range(1, 8))
_START, _SUBJECT, _VERIFIED, _OWNER = (np.uint64(each) for each in (START, SUBJECT, VERIFIED, OWNER))
_OR_NEXT_BIT: Final = OR_NEXT.bit_length() - 1
_EVENTS: Final = "float64[:,::1], uint8[::1], int64[::1], int32[::1], float64[:,::1]"
_FOUND: Final = "uint8[::1], int32[:,::1], int32[::1]"


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _lines_of_lists(  # type: ignore[no-untyped-def]
    event, values, item_starts, item_columns, item_values, columns, line_starts, cuts
):  # fmt: skip
    """Return the different lines of all values of an event, and where the lines of each column begin."""
    items = item_starts[event + 1] - item_starts[event]
    lines = np.empty(columns.shape[0] * (1 + 2 * items), np.int64)
    bounds = np.zeros(columns.shape[0] + 1, np.int64)
    at = 0
    for place in range(columns.shape[0]):
        lines[at] = line_of(line_starts, cuts, place, values[event, columns[place]])
        at += 1
        begin = at
        for item in range(item_starts[event], item_starts[event + 1]):
            if item_columns[item] == columns[place]:
                for end in range(2):
                    line = line_of(line_starts, cuts, place, item_values[item, end])
                    # Items are sorted: equal lines follow each other, or alternate where numbers are not doubles.
                    if (at < begin + 1 or lines[at - 1] != line) and (at < begin + 2 or lines[at - 2] != line):
                        lines[at] = line
                        at += 1
        bounds[place + 1] = at
    return lines, bounds


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _items_of(column, item_columns, begin, stop):  # type: ignore[no-untyped-def]
    """Return where the items of a column begin and end among those of an event."""
    first = begin + np.searchsorted(item_columns[begin:stop], column)
    return first, begin + np.searchsorted(item_columns[begin:stop], column + 1)


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _some_lies_in(low, high, asked, item_values, first, last):  # type: ignore[no-untyped-def]
    """Return whether one of sorted items lies between two doubles, or equals both.

    An item that is not a double is above the double that an open end excludes, and below the next double. Both its ends
    rise from item to item, so the first one above the lower end decides.
    """
    of_low, of_high = np.uint64(asked & OPEN_LOW != 0), np.uint64(asked & OPEN_HIGH == 0)
    begin, left = np.uint64(first), np.uint64(last - first)
    while left > _1:
        half = left >> _1
        begin += half if item_values[begin + half - _1, of_low] < low else np.uint64(0)
        left -= half
    return (item_values[begin, of_low] >= low) & (item_values[begin, of_high] <= high)


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _holds_of_lists(  # type: ignore[no-untyped-def]
    event, values, item_starts, item_columns, item_values, entry_columns, ends, begin, stop
):  # fmt: skip
    """Return whether every clause, which is a run of entries, has an entry that holds for some value."""
    found = False
    first = last = item_starts[event]
    place = -1
    for entry in range(begin, stop):
        asked = entry_columns[entry]
        column = asked & PLACE
        if not found:
            low, high = ends[entry, 0], ends[entry, 1]
            if column != place:
                place = column
                first, last = _items_of(column, item_columns, item_starts[event], item_starts[event + 1])
            found = low <= values[event, column] <= high
            found |= first < last and _some_lies_in(low, high, asked, item_values, first, last)
        if not asked & OR_NEXT:
            if not found:
                return False
            found = False
    return True


@compiled(f"void({_EVENTS}, {TABLES}, int32[:,::1], uint64[:,::1])")
def choose(  # type: ignore[no-untyped-def]
    values, flags, item_starts, item_columns, item_values, rows, entry_columns, ends, columns, line_starts, cuts, bits,
    summary, lines, blocks,
):  # fmt: skip
    """Set the line of each event's value in each column, and, as bits, the blocks in which all these leave some row.

    An event with several values in a column gets no blocks: :func:`match_lists` matches it.
    """
    for event in range(values.shape[0]):
        if values[event, 0] < 0 or flags[event] & LISTS:
            blocks[event] = np.uint64(0)
            continue
        blocks[event] = summary[0]
        for place in range(columns.shape[0]):
            line = line_of(line_starts, cuts, place, values[event, columns[place]])
            lines[event, place] = line
            for word in range(summary.shape[1]):
                blocks[event, word] &= summary[line, word]


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _not_excluded(event, block, lines, flat_bits, height, flat_rows, candidates):  # type: ignore[no-untyped-def]
    """Write where the rows of a block begin that no column excludes, and prefetch them; return their number."""
    base = np.uint64(height * block)
    a, b, c, d = flat_bits[base], flat_bits[base + _1], flat_bits[base + _2], flat_bits[base + _3]
    e, f, g, h = flat_bits[base + _4], flat_bits[base + _5], flat_bits[base + _6], flat_bits[base + _7]
    for place in range(lines.shape[1]):
        line = base + (np.uint64(lines[event, place]) << _3)
        a &= flat_bits[line]
        b &= flat_bits[line + _1]
        c &= flat_bits[line + _2]
        d &= flat_bits[line + _3]
        e &= flat_bits[line + _4]
        f &= flat_bits[line + _5]
        g &= flat_bits[line + _6]
        h &= flat_bits[line + _7]
        if (a | b | c | d | e | f | g | h) == 0:
            break
    count = 0
    for part, word in enumerate((a, b, c, d, e, f, g, h)):
        left = word
        while left != 0:
            row = np.uint64(ROW_PARTS) * np.uint64((block << 9) + (part << 6) + lowest_bit(left))
            left &= left - _ONE
            candidates[count] = row
            count += 1
            touch(flat_rows, row)
    return count


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _is_verified(row, subject, flat_rows, entry_columns, flat_ends, flat_values, first_value):  # type: ignore[no-untyped-def]
    """Return, not 0 or 0, whether a row holds: some entry of every clause that its bits do not decide."""
    entry, stop = np.uint64(flat_rows[row + _START]), np.uint64(flat_rows[row + _VERIFIED])
    holds, some = np.int32(flat_rows[row + _SUBJECT] == subject), np.int32(0)
    while entry < stop and holds != 0:  # no branch but this one, which a processor could mispredict
        column = entry_columns[entry]
        value = flat_values[first_value + np.uint64(column & PLACE)]
        low, high = flat_ends[entry << _1], flat_ends[(entry << _1) + _1]
        goes_on = (column >> _OR_NEXT_BIT) & 1
        some |= np.int32((low <= value) & (value <= high))
        holds &= some | goes_on
        some &= goes_on
        entry += _1
    return holds


@compiled(
    f"UniTuple(int64, 3)(int64, int64, float64[:,::1], {TABLES}, int32[:,::1], uint64[:,::1], boolean, {_FOUND}, int64)"
)
def match(  # type: ignore[no-untyped-def]
    block, event, values, rows, entry_columns, ends, columns, line_starts, cuts, bits, summary, lines, blocks,
    is_frozen, traits, out, counts, size,
):  # fmt: skip
    """Append the matches of events from ``event`` in ``block`` on.

    Return the event and block to resume at, and the size. The order is block by block, so that the bits and rows of a
    block stay in the cache for all events.
    """
    flat_bits, flat_rows, flat_ends = bits.reshape(bits.size), rows.reshape(rows.size), ends.reshape(ends.size)
    flat_values = values.reshape(values.size)
    candidates = np.empty(BLOCK_ROWS, np.uint64)
    room = out.shape[0] - BLOCK_ROWS
    while block < bits.shape[0]:
        while event < values.shape[0]:
            if blocks[event, block >> 6] >> np.uint64(block & 63) & _ONE == 0:
                event += 1
                continue
            if size > room:
                return block, event, size
            count = _not_excluded(event, block, lines, flat_bits, 8 * bits.shape[1], flat_rows, candidates)
            for at in range(count):
                entry = np.uint64(flat_rows[candidates[at] + _START])
                touch(entry_columns, entry)
                touch(flat_ends, entry << _1)
            subject, first_value = np.int32(values[event, 0]), np.uint64(event * values.shape[1])
            for at in range(count):
                row = candidates[at]
                holds = _is_verified(row, subject, flat_rows, entry_columns, flat_ends, flat_values, first_value)
                if holds != 0 and (not is_frozen or traits[flat_rows[row]] & LIVE):
                    out[size, 0] = event
                    out[size, 1] = flat_rows[row + _OWNER]
                    counts[event] += 1
                    size += 1
            event += 1
        event = 0
        block += 1
    return block, 0, size


@compiled(f"int64(int64, {_EVENTS}, {TABLES}, {_FOUND}, int64)")
def match_lists(  # type: ignore[no-untyped-def]
    event, values, flags, item_starts, item_columns, item_values, rows, entry_columns, ends, columns, line_starts,
    cuts, bits, summary, traits, out, counts, size,
):  # fmt: skip
    """Append the matches of an event that has several values in some column; return the new size."""
    lines, bounds = _lines_of_lists(event, values, item_starts, item_columns, item_values, columns, line_starts, cuts)
    for block in range(bits.shape[0]):
        mask = _ONE << np.uint64(block & 63)
        for part in range(8):
            left = bits[block, 0, part]
            for place in range(columns.shape[0]):
                some = np.uint64(0)
                for at in range(bounds[place], bounds[place + 1]):
                    if summary[lines[at], block >> 6] & mask:
                        some |= bits[block, lines[at], part]
                left &= some
                if left == 0:
                    break
            while left != 0:
                row = block * BLOCK_ROWS + (part << 6) + lowest_bit(left)
                left &= left - _ONE
                if rows[row, SUBJECT] == values[event, 0] and _holds_of_lists(
                    event, values, item_starts, item_columns, item_values, entry_columns, ends,
                    rows[row, START], rows[row, STOP],
                ):  # fmt: skip
                    trait, owner = traits[rows[row, SLOT]], rows[row, OWNER]
                    if trait & LIVE:
                        out[size, 0] = event
                        out[size, 1] = ~owner if trait & ON_LISTS and owner >= 0 else owner
                        counts[event] += 1
                        size += 1
    return size


@compiled("void(int32[:,::1], int64, int32[::1], int64[::1], int32[::1])")
def by_event(out, size, counts, ends, slots):  # type: ignore[no-untyped-def]
    """Group the matches by event, and set the end of each group."""
    total = 0
    for event in range(counts.shape[0]):
        ends[event] = total
        total += counts[event]
    for at in range(size):
        event = out[at, 0]
        slots[ends[event]] = out[at, 1]
        ends[event] += 1


@compiled("void(int32[::1], int64[::1], int32[::1], int64)")
def once(slots, ends, seen, stamp):  # type: ignore[no-untyped-def]
    """Keep every slot only once for each event; ``seen`` has the event in which each slot was found last."""
    begin = size = 0
    for event in range(ends.shape[0]):
        for at in range(begin, ends[event]):
            slot = slots[at] if slots[at] >= 0 else ~slots[at]
            if seen[slot] != stamp + event:
                seen[slot] = stamp + event
                slots[size] = slots[at]
                size += 1
        begin = ends[event]
        ends[event] = size


@compiled("void(int64, int32[::1])")
def fetch(objects, slots):  # type: ignore[no-untyped-def]
    """Prefetch objects all at once, before they are read one by one.

    ``objects`` is the address of their array. This is a hint, and reads nothing but that array.
    """
    for slot in slots:
        prefetch(objects, slot)
