"""Writer on whole arrays: the same as :mod:`wanderbus.matching.writing_numba`, without numba."""

from __future__ import annotations

from typing import Final

import numpy as np

from wanderbus.matching.bits_numpy import close_to, lines_of, mark, open_to, rows_in, spans, summarise
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
from wanderbus.matching.segment import Array

_ALL: Final = ~np.uint64(0)
_NONE: Final = (1 << 21) - 1
_RANGE: Final = 64
_DECIDED_MAX: Final = 64


def _places_of(places: Array, columns: Array) -> Array:
    """Return the places of columns; -1 for columns without buckets."""
    columns = columns & PLACE
    found: Array = np.where(columns < len(places), places[np.minimum(columns, len(places) - 1)], -1)
    return found


def keys_of(
    numbers: Array, rows: Array, entry_columns: Array, ends: Array, places: Array, worths: Array, line_starts: Array,
    cuts: Array,
) -> Array:  # fmt: skip
    """Return the sort keys of some rows: their three most selective clauses, equalities first."""
    its = rows[numbers]
    entries, owners = spans(its[:, START], its[:, STOP])
    goes_on = entry_columns[entries] & OR_NEXT != 0
    is_single = ~(goes_on | np.concatenate([[False], goes_on[:-1]])[: len(entries)])
    # Every row begins with its subject, as an equality.
    at = np.concatenate([np.full(len(its), places[0]), _places_of(places, entry_columns[entries])])
    chosen = (at >= 0) & np.concatenate([np.ones(len(its), np.bool_), is_single])
    values = np.concatenate([np.repeat(its[:, SUBJECT, None].astype(np.float64), 2, 1), ends[entries]])[chosen]
    at, owners = at[chosen].astype(np.int64), np.concatenate([np.arange(len(its)), owners])[chosen]
    worth, digit = _digits(at, values[:, 0], values[:, 1], worths, line_starts, cuts)
    order = np.lexsort((worth, owners))
    owners = owners[order]
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    best = rank < 3
    digits = np.full((len(its), 3), _NONE, np.int64)
    digits[owners[best], rank[best]] = digit[order][best]
    keys: Array = (digits[:, 0] << 42 | digits[:, 1] << 21 | digits[:, 2]).astype(np.uint64)
    return keys


def _digits(
    at: Array, low: Array, high: Array, worths: Array, line_starts: Array, cuts: Array
) -> tuple[Array, Array]:  # fmt: skip
    """Return, for clauses on one column, how much they let through, and their sort keys: 21 bits."""
    first, stop = line_starts[at] + 1, line_starts[at + 1]
    begin, end = (lines_of(line_starts, cuts, at, each) - first for each in (low, high))
    with np.errstate(invalid="ignore", over="ignore"):
        spread = (low * 31.0).astype(np.int64) & 0xFF
    is_equality = low == high
    of_ranges = (end - begin + 1 + LOOSE) * WORTH // (stop - first)
    worth = np.where(is_equality, worths[at], of_ranges)
    return worth, np.where(is_equality, at << 14 | begin << 8 | spread, (_RANGE + at) << 14 | begin << 8 | end << 2)


def fill(
    block: int, new_rows: Array, new_columns: Array, new_ends: Array, places: Array, rows: Array, entry_columns: Array,
    ends: Array, columns: Array, line_starts: Array, cuts: Array, bits: Array, summary: Array, sizes: Array,
) -> None:  # fmt: skip
    """Write rows to a fresh block."""
    bits[block] = _ALL
    bits[block, 0] = 0
    rows[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS] = 0
    at = block * BLOCK_ROWS + np.arange(len(new_rows))
    counts = new_rows[:, STOP] - new_rows[:, START]
    begins = np.where(counts > 0, sizes[USED] + np.cumsum(counts) - counts, 0)
    rows[at, CAPACITY] = counts
    sizes[USED] += counts.sum()
    shape = places, line_starts, cuts
    _write_rows(at, begins, new_rows, new_columns, new_ends, *shape, rows, entry_columns, ends, bits, sizes)
    summarise([block], bits, summary)


def write(
    reach: int, keys: Array, where: Array, new_rows: Array, new_columns: Array, new_ends: Array, places: Array,
    worths: Array, rows: Array, entry_columns: Array, ends: Array, columns: Array, line_starts: Array, cuts: Array,
    bits: Array, summary: Array, sizes: Array,
) -> int:  # fmt: skip
    """Write rows near their right places, at most ``reach`` blocks away; return how many found no place.

    ``where`` has the place of each row, or that it has none yet.
    """
    waiting = np.flatnonzero(where == UNPLACED)
    shape = places, line_starts, cuts
    waiting_keys = keys_of(waiting, new_rows, new_columns, new_ends, places, worths, line_starts, cuts)
    best = np.maximum(np.searchsorted(keys, waiting_keys, "right") - 1, 0)
    begins = _assign(reach, best, waiting, new_rows, rows, len(entry_columns), bits, where, sizes)
    done = waiting[where[waiting] != UNPLACED]
    at, its = where[done].astype(np.int64), new_rows[done]
    _write_rows(at, begins, its, new_columns, new_ends, *shape, rows, entry_columns, ends, bits, sizes)
    summarise(np.unique(at // BLOCK_ROWS).tolist(), bits, summary)
    return len(waiting) - len(done)


def _assign(
    reach: int, best: Array, waiting: Array, new_rows: Array, rows: Array, entries_max: int, bits: Array, where: Array,
    sizes: Array,
) -> Array:  # fmt: skip
    """Assign free rows to waiting ones in ``where``; return where their entries are to begin."""
    begins = []
    free: dict[int, list[tuple[int, int]]] = {}
    used = int(sizes[USED])
    counts = (new_rows[:, STOP] - new_rows[:, START]).tolist()
    for number, middle in zip(waiting.tolist(), best.tolist(), strict=True):
        count = counts[number]
        for distance in range(2 * reach + 1):
            block = middle + (distance + 1 >> 1) * (1 if distance & 1 else -1)
            if not 0 <= block < len(bits):
                continue
            if block not in free:
                free[block] = _free_rows(block, rows, bits)
            if not free[block]:
                continue
            at, capacity = next((each for each in free[block] if each[1] == 0 or each[1] >= count), free[block][0])
            if count <= capacity or used + count <= entries_max:
                begins.append(int(rows[at, START]) if count <= capacity else used)
                used += 0 if count <= capacity else count
                rows[at, CAPACITY] = max(count, capacity)
                free[block].remove((at, capacity))
                where[number] = at
                break
    sizes[USED] = used
    return np.array(begins, np.int64)


def _free_rows(block: int, rows: Array, bits: Array) -> list[tuple[int, int]]:
    """Return the free rows of a block, each with its room for entries."""
    at = block * BLOCK_ROWS + rows_in(~bits[block, 0])
    return list(zip(at.tolist(), rows[at, CAPACITY].tolist(), strict=True))


def _write_rows(
    at: Array, begins: Array, fresh: Array, new_columns: Array, new_ends: Array, places: Array, line_starts: Array,
    cuts: Array, rows: Array, entry_columns: Array, ends: Array, bits: Array, sizes: Array,
) -> None:  # fmt: skip
    """Write rows to free places, over their old contents, their entries from ``begins`` on."""
    old, owners = spans(rows[at, START], rows[at, STOP])
    opened = _places_of(places, entry_columns[old])
    open_to(at[owners[opened >= 0]], opened[opened >= 0], line_starts, bits)
    if places[0] >= 0:
        subjects = np.full(len(at), places[0])
        numbers = fresh[:, SUBJECT].astype(np.float64)
        open_to(at, subjects, line_starts, bits)
        close_to(at, subjects, _allowed(line_starts, cuts, subjects, numbers, numbers)[0], line_starts, bits)
    counts = fresh[:, STOP] - fresh[:, START]
    entries, owners = spans(fresh[:, START], fresh[:, STOP])
    waiting_columns, waiting_ends = new_columns[entries], new_ends[entries]
    decided = np.zeros(len(entries), np.bool_)
    if len(entries):
        decided = _exclude(at[owners], waiting_columns, waiting_ends, places, line_starts, cuts, bits)
    order = np.lexsort((decided, owners))
    to, _ = spans(begins, begins + counts)
    entry_columns[to], ends[to] = waiting_columns[order], waiting_ends[order]
    for part in (SLOT, SUBJECT, OWNER):
        rows[at, part] = fresh[:, part]
    rows[at, START], rows[at, STOP] = begins, begins + counts
    rows[at, VERIFIED] = begins + np.bincount(owners[~decided], minlength=len(at))
    mark(bits, at, 0, True)
    sizes[ROWS] += len(at)
    sizes[WRITTEN] += len(at)


def _exclude(
    at: Array, columns: Array, ends: Array, places: Array, line_starts: Array, cuts: Array, bits: Array
) -> Array:  # fmt: skip
    """Make rows impossible where their clauses exclude them; return the entries that this decides completely."""
    is_first = np.concatenate([[True], columns[:-1] & OR_NEXT == 0])
    firsts, clauses = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    its, rows = _places_of(places, columns), at[firsts]
    # A clause on several columns excludes nothing by one of them.
    is_placed = np.logical_and.reduceat((its >= 0) & (its == its[firsts[clauses]]), firsts)
    # Another item of a list may satisfy a second clause on a column: only the first clause excludes.
    _, unlike = np.unique(rows * PLACE + np.where(is_placed, its[firsts], PLACE - 1), return_index=True)
    bars = np.zeros(len(firsts), np.bool_)
    bars[unlike] = is_placed[unlike]
    some = bars[clauses]
    allowed, are_all = _allowed(line_starts, cuts, its[some], ends[some, 0], ends[some, 1])
    starts = np.flatnonzero(is_first[some])
    close_to(rows[bars], its[firsts[bars]], np.bitwise_or.reduceat(allowed, starts), line_starts, bits)
    decided = np.zeros(len(firsts), np.bool_)
    decided[bars] = np.logical_and.reduceat(are_all, starts)
    _, begins, of_row = np.unique(rows, return_index=True, return_inverse=True)
    decided &= np.arange(len(firsts)) - begins[of_row] < _DECIDED_MAX
    result: Array = decided[clauses]
    return result


def _allowed(line_starts: Array, cuts: Array, places: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the buckets between values, as bits, and whether the buckets contain no other values."""
    first, stop = line_starts[places] + 1, line_starts[places + 1]
    begin, end = (lines_of(line_starts, cuts, places, each) for each in (low, high))
    with np.errstate(over="ignore"):
        last = np.where(end + 1 < stop, np.nextafter(cuts[np.minimum(end + 1, len(cuts) - 1)], -np.inf), np.inf)
    is_exact = (cuts[begin] == low) & (last == high)
    allowed = (_ALL << (begin - first).astype(np.uint64)) & (_ALL >> (63 - end + first).astype(np.uint64))
    return allowed, is_exact | (begin > end)


def gather(
    numbers: Array, rows: Array, entry_columns: Array, ends: Array, traits: Array, filled: Array, new_rows: Array,
    new_columns: Array, new_ends: Array,
) -> None:  # fmt: skip
    """Append the live rows among these to arrays without gaps; ``filled`` is the used length of the arrays."""
    row, entry = filled.tolist()
    its = rows[numbers]
    its = its[traits[its[:, SLOT]] != 0]
    entries, _ = spans(its[:, START], its[:, STOP])
    stops = entry + np.cumsum(its[:, STOP] - its[:, START])
    its[:, START], its[:, STOP] = stops - (its[:, STOP] - its[:, START]), stops
    new_rows[row : row + len(its)] = its
    new_columns[entry : entry + len(entries)] = entry_columns[entries]
    new_ends[entry : entry + len(entries)] = ends[entries]
    filled[:] = row + len(its), entry + len(entries)
