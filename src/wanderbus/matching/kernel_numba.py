"""The inner loops of the index, compiled (DESIGN 7.4); :mod:`wanderbus.matching.kernel_numpy` does the same without.

Signatures are explicit, so that all is compiled when this is imported and nothing while events wait. What was compiled
is kept beside this file, or where ``NUMBA_CACHE_DIR`` says; where neither can be written it is compiled anew. What the
arrays are is said in :mod:`wanderbus.matching.segment` and :mod:`wanderbus.matching.batch`.
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
    """Return the lines of all values of an event, and of each column where its lines begin."""
    items = item_starts[event + 1] - item_starts[event]
    lines = np.empty(columns.shape[0] * (1 + 2 * items), np.int64)
    bounds = np.zeros(columns.shape[0] + 1, np.int64)
    at = 0
    for place in range(columns.shape[0]):
        lines[at] = line_of(line_starts, cuts, place, values[event, columns[place]])
        at += 1
        for item in range(item_starts[event], item_starts[event + 1]):
            if item_columns[item] == columns[place]:
                for end in range(2):
                    lines[at] = line_of(line_starts, cuts, place, item_values[item, end])
                    at += 1
        bounds[place + 1] = at
    return lines, bounds


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _holds_of_lists(  # type: ignore[no-untyped-def]
    event, values, item_starts, item_columns, item_values, entry_columns, ends, begin, stop
):  # fmt: skip
    """Return whether of every clause, that is a run of entries, one holds of some value."""
    found = False
    for entry in range(begin, stop):
        column = entry_columns[entry] & PLACE
        if not found:
            found = ends[entry, 0] <= values[event, column] <= ends[entry, 1]
            for item in range(item_starts[event], item_starts[event + 1]):
                if item_columns[item] == column:
                    # A value that is no double is above one that an open end leaves out, and below the next.
                    low = item_values[item, 1 if entry_columns[entry] & OPEN_LOW else 0]
                    high = item_values[item, 0 if entry_columns[entry] & OPEN_HIGH else 1]
                    found |= ends[entry, 0] <= low and high <= ends[entry, 1]
        if not entry_columns[entry] & OR_NEXT:
            if not found:
                return False
            found = False
    return True


@compiled(f"void({_EVENTS}, {TABLES}, int32[:,::1], uint64[:,::1])")
def choose(  # type: ignore[no-untyped-def]
    values, flags, item_starts, item_columns, item_values, rows, entry_columns, ends, columns, line_starts, cuts, bits,
    summary, lines, blocks,
):  # fmt: skip
    """Set the line of each event's value in each column, and in which blocks all these leave something, as bits.

    Of events with several values in a column, in none: those are for :func:`match_lists`.
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
def _not_excluded(event, block, lines, its_bits, height, its_rows, candidates):  # type: ignore[no-untyped-def]
    """Write where the rows of a block begin that no column excludes, and begin to load them; return how many."""
    base = np.uint64(height * block)
    a, b, c, d = its_bits[base], its_bits[base + _1], its_bits[base + _2], its_bits[base + _3]
    e, f, g, h = its_bits[base + _4], its_bits[base + _5], its_bits[base + _6], its_bits[base + _7]
    for place in range(lines.shape[1]):
        line = base + (np.uint64(lines[event, place]) << _3)
        a &= its_bits[line]
        b &= its_bits[line + _1]
        c &= its_bits[line + _2]
        d &= its_bits[line + _3]
        e &= its_bits[line + _4]
        f &= its_bits[line + _5]
        g &= its_bits[line + _6]
        h &= its_bits[line + _7]
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
            touch(its_rows, row)
    return count


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _is_verified(row, subject, its_rows, entry_columns, its_ends, its_values, first_value):  # type: ignore[no-untyped-def]
    """Return, not 0 or 0, whether a row holds: of every clause that its bits do not say all about, one entry."""
    entry, stop = np.uint64(its_rows[row + _START]), np.uint64(its_rows[row + _VERIFIED])
    holds, some = np.int32(its_rows[row + _SUBJECT] == subject), np.int32(0)
    while entry < stop and holds != 0:  # without jumps but this one, which a processor cannot guess
        column = entry_columns[entry]
        value = its_values[first_value + np.uint64(column & PLACE)]
        low, high = its_ends[entry << _1], its_ends[(entry << _1) + _1]
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
    """Append what events match, from ``event`` in ``block`` on; return with which to go on in which, and the size.

    Block by block, since then the bits and the rows of a block are at hand for all events.
    """
    its_bits, its_rows, its_ends = bits.reshape(bits.size), rows.reshape(rows.size), ends.reshape(ends.size)
    its_values = values.reshape(values.size)
    candidates = np.empty(BLOCK_ROWS, np.uint64)
    room = out.shape[0] - BLOCK_ROWS
    while block < bits.shape[0]:
        while event < values.shape[0]:
            if blocks[event, block >> 6] >> np.uint64(block & 63) & _ONE == 0:
                event += 1
                continue
            if size > room:
                return block, event, size
            count = _not_excluded(event, block, lines, its_bits, 8 * bits.shape[1], its_rows, candidates)
            for at in range(count):
                entry = np.uint64(its_rows[candidates[at] + _START])
                touch(entry_columns, entry)
                touch(its_ends, entry << _1)
            subject, first_value = np.int32(values[event, 0]), np.uint64(event * values.shape[1])
            for at in range(count):
                row = candidates[at]
                holds = _is_verified(row, subject, its_rows, entry_columns, its_ends, its_values, first_value)
                if holds != 0 and (not is_frozen or traits[its_rows[row]] & LIVE):
                    out[size, 0] = event
                    out[size, 1] = its_rows[row + _OWNER]
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
    """Append what an event matches that has several values in some column; return the new size."""
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
    """Arrange what was found event by event, and set where that of each ends."""
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
    """Leave every slot once to each event; ``seen`` tells in which event one was found last."""
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
    """Bring objects near to the processor, all at once, before they are asked for one by one.

    ``objects`` is where the array of them begins. This is a hint, and reads nothing but that array.
    """
    for slot in slots:
        prefetch(objects, slot)
