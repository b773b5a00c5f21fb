"""Writer of rows into segments, compiled; :mod:`wanderbus.matching.writing_numpy` does the same without numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from wanderbus.matching.compilation import TABLES, compiled, line_of, lowest_bit
from wanderbus.matching.layout import (
    BLOCK_ROWS,
    CAPACITY,
    LOOSE,
    OR_NEXT,
    OWNER,
    PLACE,
    ROWS,
    SLOT,
    START,
    STOP,
    SUBJECT,
    UNPLACED,
    USED,
    VERIFIED,
    WORTH,
    WRITTEN,
)

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = (1 << 21) - 1
_RANGE = 64
_FRESH = "int32[:,::1], int32[::1], float64[:,::1]"


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _place_of(places, column):  # type: ignore[no-untyped-def]
    """Return the place of the column of an entry, or -1 if it has no buckets."""
    column &= PLACE
    return np.int64(places[column]) if column < places.shape[0] else np.int64(-1)


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _digit(place, low, high, worths, line_starts, cuts):  # type: ignore[no-untyped-def]
    """Return how much a clause on one column lets through, and its sort key: 21 bits."""
    first, stop = line_starts[place] + 1, line_starts[place + 1]
    begin, end = line_of(line_starts, cuts, place, low) - first, line_of(line_starts, cuts, place, high) - first
    if low == high:
        return np.int64(worths[place]), (np.int64(place) << 14) | (begin << 8) | (np.int64(low * 31.0) & 0xFF)
    worth = (end - begin + 1 + LOOSE) * WORTH // (stop - first)
    return worth, (np.int64(_RANGE + place) << 14) | (begin << 8) | (end << 2)


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _key(row, subject, new_columns, new_ends, places, worths, line_starts, cuts):  # type: ignore[no-untyped-def]
    """Return the sort key of a row: its three most selective clauses, equalities first."""
    best = (np.int64(1 << 20), np.int64(1 << 20), np.int64(1 << 20))
    digits = (np.int64(_NONE), np.int64(_NONE), np.int64(_NONE))
    is_next = False
    for entry in range(row[START] - 1, row[STOP]):
        low = high = float(subject)
        column = np.int32(0)
        if entry >= row[START]:
            column = new_columns[entry]
            low, high = new_ends[entry, 0], new_ends[entry, 1]
        is_single, is_next = not is_next, column & OR_NEXT != 0
        place = _place_of(places, column)
        if place < 0 or is_next or not is_single:
            continue
        worth, digit = _digit(place, low, high, worths, line_starts, cuts)
        if worth < best[0]:
            best, digits = (worth, best[0], best[1]), (digit, digits[0], digits[1])
        elif worth < best[1]:
            best, digits = (best[0], worth, best[1]), (digits[0], digit, digits[1])
        elif worth < best[2]:
            best, digits = (best[0], best[1], worth), (digits[0], digits[1], digit)
    return np.uint64((digits[0] << 42) | (digits[1] << 21) | digits[2])


@compiled(f"uint64[::1](int32[::1], {_FRESH}, int32[::1], int32[::1], int32[::1], float64[::1])")
def keys_of(numbers, rows, entry_columns, ends, places, worths, line_starts, cuts):  # type: ignore[no-untyped-def]
    """Return the keys of some rows of a segment."""
    keys = np.empty(numbers.shape[0], np.uint64)
    for at in range(numbers.shape[0]):
        row = rows[numbers[at]]
        keys[at] = _key(row, row[SUBJECT], entry_columns, ends, places, worths, line_starts, cuts)
    return keys


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _open(place, line_starts, bits, block, word, bit):  # type: ignore[no-untyped-def]
    """Make a row possible for all values of a column."""
    for line in range(line_starts[place], line_starts[place + 1]):
        bits[block, line, word] |= bit


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _close(place, allowed, line_starts, bits, block, word, bit):  # type: ignore[no-untyped-def]
    """Make a row impossible for the buckets of a column that ``allowed`` lacks, and where the column is missing."""
    first, stop = line_starts[place], line_starts[place + 1]
    bits[block, first, word] &= ~bit
    barred = ~allowed & (_ALL >> np.uint64(64 - (stop - first - 1)))
    while barred != 0:
        bits[block, first + 1 + lowest_bit(barred), word] &= ~bit
        barred &= barred - _ONE


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _allowed(line_starts, cuts, place, low, high):  # type: ignore[no-untyped-def]
    """Return the buckets between two values, as bits, and whether the buckets contain no other values."""
    first, stop = np.int64(line_starts[place] + 1), np.int64(line_starts[place + 1])
    begin, end = line_of(line_starts, cuts, place, low), line_of(line_starts, cuts, place, high)
    if begin > end:
        return np.uint64(0), True
    last = np.nextafter(cuts[end + 1], -np.inf) if end + 1 < stop else np.inf
    is_exact = cuts[begin] == low and last == high
    return (_ALL << np.uint64(begin - first)) & (_ALL >> np.uint64(63 - end + first)), is_exact


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _exclude(  # type: ignore[no-untyped-def]
    row, new_columns, new_ends, places, line_starts, cuts, bits, block, word, bit
):  # fmt: skip
    """Make a row impossible where its clauses exclude it; return, as bits, the clauses that this decides completely."""
    decided = barred = allowed = np.uint64(0)
    clause, place, is_exact = 0, np.int64(-1), True
    for entry in range(row[START], row[STOP]):
        column = new_columns[entry]
        its = _place_of(places, column)
        if place == -1:
            place = its
        if its != place or its < 0:
            place = np.int64(-2)  # a clause on several columns excludes nothing by one of them
        else:
            more, are_all = _allowed(line_starts, cuts, its, new_ends[entry, 0], new_ends[entry, 1])
            allowed |= more
            is_exact &= are_all
        if column & OR_NEXT:
            continue
        # Another item of a list may satisfy a second clause on a column: only the first clause excludes.
        if place >= 0 and not barred >> np.uint64(place) & _ONE:
            _close(place, allowed, line_starts, bits, block, word, bit)
            barred |= _ONE << np.uint64(place)
            if is_exact and clause < 64:
                decided |= _ONE << np.uint64(clause)
        allowed, place, is_exact = np.uint64(0), np.int64(-1), True
        clause += 1
    return decided


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _copy(row, decided, is_decided, new_columns, new_ends, entry_columns, ends, at):  # type: ignore[no-untyped-def]
    """Copy the entries of the clauses whose bit in ``decided`` equals ``is_decided``; return where they end."""
    clause = 0
    for entry in range(row[START], row[STOP]):
        column = new_columns[entry]
        if (clause < 64 and decided >> np.uint64(clause) & _ONE != 0) == is_decided:
            entry_columns[at] = column
            ends[at, 0], ends[at, 1] = new_ends[entry, 0], new_ends[entry, 1]
            at += 1
        clause += column & OR_NEXT == 0
    return at


@compiled(f"boolean(int64, int32[::1], int32[::1], float64[:,::1], int32[::1], {TABLES}, int64[::1])")
def _write_row(  # type: ignore[no-untyped-def]
    at, row, new_columns, new_ends, places, rows, entry_columns, ends, columns, line_starts, cuts, bits, summary, sizes
):  # fmt: skip
    """Write a row to a free place, over its old contents; return whether there was room."""
    begin, count = rows[at, START], row[STOP] - row[START]
    if count > rows[at, CAPACITY]:
        begin = sizes[USED]
        if begin + count > entry_columns.shape[0]:
            return False
        sizes[USED] += count
        rows[at, CAPACITY] = count
    block, word, bit = at // BLOCK_ROWS, (at >> 6) & 7, _ONE << np.uint64(at & 63)
    for entry in range(rows[at, START], rows[at, STOP]):
        place = _place_of(places, entry_columns[entry])
        if place >= 0:
            _open(place, line_starts, bits, block, word, bit)
    if places[0] >= 0:
        _open(places[0], line_starts, bits, block, word, bit)
        subject = float(row[SUBJECT])
        allowed, _ = _allowed(line_starts, cuts, places[0], subject, subject)
        _close(places[0], allowed, line_starts, bits, block, word, bit)
    decided = _exclude(row, new_columns, new_ends, places, line_starts, cuts, bits, block, word, bit)
    rows[at, SLOT], rows[at, SUBJECT], rows[at, OWNER] = row[SLOT], row[SUBJECT], row[OWNER]
    rows[at, START], rows[at, STOP] = begin, begin + count
    rows[at, VERIFIED] = _copy(row, decided, False, new_columns, new_ends, entry_columns, ends, begin)
    _copy(row, decided, True, new_columns, new_ends, entry_columns, ends, rows[at, VERIFIED])
    bits[block, 0, word] |= bit
    sizes[ROWS] += 1
    sizes[WRITTEN] += 1
    return True


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _summarise(block, first, last, bits, summary):  # type: ignore[no-untyped-def]
    """Recompute, for some lines, whether they leave any row in a block."""
    mask = _ONE << np.uint64(block & 63)
    a, b, c, d = bits[block, 0, 0], bits[block, 0, 1], bits[block, 0, 2], bits[block, 0, 3]
    e, f, g, h = bits[block, 0, 4], bits[block, 0, 5], bits[block, 0, 6], bits[block, 0, 7]
    for line in range(first, last):
        its = bits[block, line]
        some = (its[0] & a) | (its[1] & b) | (its[2] & c) | (its[3] & d)
        some |= (its[4] & e) | (its[5] & f) | (its[6] & g) | (its[7] & h)
        if some != 0:
            summary[line, block >> 6] |= mask
        else:
            summary[line, block >> 6] &= ~mask


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _summarise_row(at, places, rows, entry_columns, line_starts, bits, summary):  # type: ignore[no-untyped-def]
    """Add a new row to the summary: columns without a clause of the row leave it in all their lines."""
    block = at // BLOCK_ROWS
    mask = _ONE << np.uint64(block & 63)
    named = _ONE << np.uint64(places[0]) if places[0] >= 0 else np.uint64(0)
    for entry in range(rows[at, START], rows[at, STOP]):
        place = _place_of(places, entry_columns[entry])
        if place >= 0:
            named |= _ONE << np.uint64(place)
    summary[0, block >> 6] |= mask
    for place in range(line_starts.shape[0] - 1):
        first, last = line_starts[place], line_starts[place + 1]
        if named >> np.uint64(place) & _ONE:
            _summarise(block, first, last, bits, summary)
        elif not summary[first, block >> 6] & mask:
            for line in range(first, last):
                summary[line, block >> 6] |= mask


@compiled(f"void(int64, {_FRESH}, int32[::1], {TABLES}, int64[::1])")
def fill(  # type: ignore[no-untyped-def]
    block, new_rows, new_columns, new_ends, places, rows, entry_columns, ends, columns, line_starts, cuts, bits,
    summary, sizes,
):  # fmt: skip
    """Write rows to a fresh block."""
    bits[block] = _ALL
    bits[block, 0] = np.uint64(0)
    begin = block * BLOCK_ROWS
    rows[begin : begin + BLOCK_ROWS] = 0
    for number in range(new_rows.shape[0]):
        _write_row(
            begin + number, new_rows[number], new_columns, new_ends, places, rows, entry_columns, ends, columns,
            line_starts, cuts, bits, summary, sizes,
        )  # fmt: skip
    _summarise(block, 0, bits.shape[1], bits, summary)


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def _free_row(block, count, rows, bits):  # type: ignore[no-untyped-def]
    """Return a free row of a block, or -1; preferably one with room for ``count`` entries, or still without entries."""
    found = np.int64(-1)
    for word in range(8):
        free = ~bits[block, 0, word]
        while free != 0:
            at = block * BLOCK_ROWS + (word << 6) + lowest_bit(free)
            free &= free - _ONE
            if rows[at, CAPACITY] == 0 or rows[at, CAPACITY] >= count:
                return at
            if found < 0:
                found = at
    return found


@compiled(f"int64(int64, uint64[::1], int32[::1], {_FRESH}, int32[::1], int32[::1], {TABLES}, int64[::1])")
def write(  # type: ignore[no-untyped-def]
    reach, keys, where, new_rows, new_columns, new_ends, places, worths, rows, entry_columns, ends, columns,
    line_starts, cuts, bits, summary, sizes,
):  # fmt: skip
    """Write rows near their right places, at most ``reach`` blocks away; return how many found no place.

    ``where`` has the place of each row, or that it has none yet.
    """
    left = 0
    for number in range(new_rows.shape[0]):
        if where[number] != UNPLACED:
            continue
        row = new_rows[number]
        key = _key(row, row[SUBJECT], new_columns, new_ends, places, worths, line_starts, cuts)
        best = max(0, np.searchsorted(keys, key, "right") - 1)
        for distance in range(2 * reach + 1):
            block = best + ((distance + 1) >> 1) * (1 if distance & 1 else -1)
            if 0 <= block < keys.shape[0]:
                at = _free_row(block, row[STOP] - row[START], rows, bits)
                if at >= 0 and _write_row(
                    at, row, new_columns, new_ends, places, rows, entry_columns, ends, columns, line_starts, cuts,
                    bits, summary, sizes,
                ):  # fmt: skip
                    where[number] = at
                    _summarise_row(at, places, rows, entry_columns, line_starts, bits, summary)
                    break
        left += where[number] == UNPLACED
    return left


@compiled(f"void(int32[::1], {_FRESH}, uint8[::1], int64[::1], {_FRESH})")
def gather(  # type: ignore[no-untyped-def]
    numbers, rows, entry_columns, ends, traits, filled, new_rows, new_columns, new_ends
):  # fmt: skip
    """Append the live rows among these to arrays without gaps; ``filled`` is the used length of the arrays."""
    row, entry = filled
    for at in numbers:
        if traits[rows[at, SLOT]] == 0:
            continue
        new_rows[row] = rows[at]
        new_rows[row, START] = entry
        for source in range(rows[at, START], rows[at, STOP]):
            new_columns[entry] = entry_columns[source]
            new_ends[entry, 0], new_ends[entry, 1] = ends[source, 0], ends[source, 1]
            entry += 1
        new_rows[row, STOP] = entry
        row += 1
    filled[0], filled[1] = row, entry
