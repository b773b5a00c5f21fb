"""The two-level bitset of the study, for fixed subscriptions and events that are encoded before.

What an index that may change is held against: the same idea with all that is hard left out. For each attribute and
each bucket of its values there is a row of bits, one a subscription that the bucket does not exclude; in a second
level, one bit for each block of 512 that has any. An event's rows are and-ed, and what is left is verified.
Subscriptions are numbered by their most selective equalities, so that blocks are alike. Conjunctions alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

from bench.matching_workload import DOMAIN, NAMES, STRINGS, WORDS, Ints, Workload

BUCKETS: Final = 128
"""Bits of a number."""
Words = npt.NDArray[np.uint64]


class Static:
    """The index of the first ``count`` subscriptions of a workload of conjunctions."""

    def __init__(self, workload: Workload, count: int) -> None:
        self._count = count
        order = cluster_order(workload, count)
        sizes = np.diff(workload.start[: count + 1])[order]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        source = np.repeat(workload.start[:-1][order] - start[:-1], sizes) + np.arange(start[-1])
        self._start, self._order = start, order.astype(np.int32)
        self._attribute = workload.attribute[source].astype(np.int8)
        self._low, self._high = workload.low[source].astype(np.int16), workload.high[source].astype(np.int16)
        buckets = [words + 1 for words in WORDS] + [BUCKETS + 1] * (len(NAMES) - STRINGS)
        self._offset = np.concatenate([[0], np.cumsum(buckets)]).astype(np.int64)
        words = (count + 511) // 512 * 8
        self._bits = np.zeros((int(self._offset[-1]), words), np.uint64)
        owner = np.repeat(np.arange(count), sizes)
        _fill(self._bits, self._offset, self._attribute, self._low, self._high, owner)
        self._summary = np.zeros((len(self._bits), (words // 8 + 63) // 64), np.uint64)
        _summarise(self._bits, self._summary)
        self._out = np.empty(count, np.int32)

    def count(self, encoded: Ints) -> int:
        """Return the total number of matches of some events: the measured function, one call for all events."""
        return int(_count_all(encoded, self._out, self._count, *self._tables()))

    def match(self, row: Ints) -> Ints:
        """Return the numbers of the subscriptions that one event matches."""
        rows = np.zeros(len(row), np.int64)
        return self._out[: _match(row, rows, self._out, self._count, *self._tables())].copy()

    def match_in_numpy(self, row: Ints) -> Ints:
        """Return the same, by numpy alone: the rows and-ed, and all candidates verified at once."""
        places = np.arange(len(NAMES))
        buckets = np.where(places < STRINGS, row, row.astype(np.int64) * BUCKETS // DOMAIN)
        rows = np.where(row < 0, self._offset[1:] - 1, self._offset[:-1] + buckets)
        left = np.bitwise_and.reduce(self._bits[rows], axis=0)
        some = np.flatnonzero(left)
        word, bit = np.nonzero(np.unpackbits(left[some].view(np.uint8), bitorder="little").reshape(-1, 64))
        found = some[word] * 64 + bit
        found = found[found < self._count]
        if not len(found):
            return found
        sizes = self._start[found + 1] - self._start[found]
        begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        asked = np.repeat(self._start[found] - begins, sizes) + np.arange(sizes.sum())
        value = row[self._attribute[asked]]
        holds = (value >= self._low[asked]) & (value <= self._high[asked])
        matched: Ints = self._order[found[np.logical_and.reduceat(holds, begins)]]
        return matched

    def _tables(self) -> tuple[Any, ...]:
        rows = self._offset, self._bits, self._summary
        return *rows, self._start, self._attribute, self._low, self._high, self._order


def cluster_order(workload: Workload, count: int) -> Ints:
    """Return the subscriptions, sorted by their three most selective equalities: those of the longest vocabularies."""
    last = int(workload.start[count])
    owner = np.repeat(np.arange(count), np.diff(workload.start[: count + 1]))
    asked = np.flatnonzero(workload.attribute[:last] < STRINGS)
    code = (STRINGS - 1 - workload.attribute[asked].astype(np.int64)) * 2000 + workload.low[asked]
    ranked = np.lexsort((code, owner[asked]))
    whose, code = owner[asked][ranked], code[ranked]
    place = np.arange(len(whose)) - np.searchsorted(whose, whose)
    keys = np.full((count, 3), 10**6, np.int64)
    for number in range(3):
        these = place == number
        keys[whose[these], number] = code[these]
    return np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))


@njit(cache=True)
def _fill(bits: Words, offset: Ints, attribute: Ints, low: Ints, high: Ints, owner: Ints) -> None:
    one = np.uint64(1)
    for p in range(attribute.shape[0]):
        a, s = attribute[p], owner[p]
        word, mask = s >> 6, one << np.uint64(s & 63)
        last = offset[a + 1] - offset[a] - 1
        first_in, last_in = np.int64(low[p]), np.int64(high[p])
        if a >= STRINGS:
            first_in, last_in = first_in * BUCKETS // DOMAIN, last_in * BUCKETS // DOMAIN
        for b in range(first_in):
            bits[offset[a] + b, word] |= mask
        for b in range(last_in + 1, last + 1):
            bits[offset[a] + b, word] |= mask
    for i in range(bits.shape[0]):
        for j in range(bits.shape[1]):
            bits[i, j] = ~bits[i, j]


@njit(cache=True)
def _summarise(bits: Words, summary: Words) -> None:
    for i in range(bits.shape[0]):
        for block in range(bits.shape[1] // 8):
            some = np.uint64(0)
            for j in range(8):
                some |= bits[i, block * 8 + j]
            if some != 0:
                summary[i, block >> 6] |= np.uint64(1) << np.uint64(block & 63)


@njit(inline="always")
def _lowest(bit: Any) -> Any:
    """Return the place of the only bit that is set."""
    place = 0
    if bit & np.uint64(0xFFFFFFFF) == 0:
        place += 32
        bit >>= np.uint64(32)
    if bit & np.uint64(0xFFFF) == 0:
        place += 16
        bit >>= np.uint64(16)
    if bit & np.uint64(0xFF) == 0:
        place += 8
        bit >>= np.uint64(8)
    if bit & np.uint64(0xF) == 0:
        place += 4
        bit >>= np.uint64(4)
    if bit & np.uint64(3) == 0:
        place += 2
        bit >>= np.uint64(2)
    if bit & np.uint64(1) == 0:
        place += 1
    return place


@njit(cache=True)
def _match(
    event: Ints, rows: Ints, out: Ints, count: int, offset: Ints, bits: Words, summary: Words, start: Ints,
    attribute: Ints, low: Ints, high: Ints, order: Ints,
) -> int:  # fmt: skip
    n, width = 0, rows.shape[0]
    for a in range(width):
        # The most selective strings first, because they exclude most blocks.
        place = STRINGS - 1 - a if a < STRINGS else a
        value = event[place]
        if value < 0:
            rows[a] = offset[place + 1] - 1
        else:
            rows[a] = offset[place] + (value if place < STRINGS else value * BUCKETS // DOMAIN)
    left = np.zeros(8, np.uint64)
    for part in range(summary.shape[1]):
        blocks = summary[rows[0], part]
        for a in range(1, width):
            blocks &= summary[rows[a], part]
        while blocks != 0:
            lowest = blocks & (~blocks + np.uint64(1))
            blocks ^= lowest
            begin = ((part << 6) + _lowest(lowest)) * 8
            if not _and_rows(bits, rows, begin, left):
                continue
            for j in range(8):
                word = left[j]
                while word != 0:
                    lowest = word & (~word + np.uint64(1))
                    word ^= lowest
                    i = ((begin + j) << 6) + _lowest(lowest)
                    if i < count and _verified(event, i, start, attribute, low, high):
                        out[n] = order[i]
                        n += 1
    return n


@njit(inline="always")
def _and_rows(bits: Words, rows: Ints, w: int, left: Words) -> bool:
    """And one block of all rows into ``left``; return whether any bit is left."""
    r = rows[0]
    a0, a1, a2, a3 = bits[r, w], bits[r, w + 1], bits[r, w + 2], bits[r, w + 3]
    a4, a5, a6, a7 = bits[r, w + 4], bits[r, w + 5], bits[r, w + 6], bits[r, w + 7]
    some = True
    for q in range(1, rows.shape[0]):
        r = rows[q]
        a0 &= bits[r, w]
        a1 &= bits[r, w + 1]
        a2 &= bits[r, w + 2]
        a3 &= bits[r, w + 3]
        a4 &= bits[r, w + 4]
        a5 &= bits[r, w + 5]
        a6 &= bits[r, w + 6]
        a7 &= bits[r, w + 7]
        if (a0 | a1 | a2 | a3 | a4 | a5 | a6 | a7) == 0:
            some = False
            break
    if some:
        left[0], left[1], left[2], left[3] = a0, a1, a2, a3
        left[4], left[5], left[6], left[7] = a4, a5, a6, a7
    return some


@njit(inline="always")
def _verified(event: Ints, i: int, start: Ints, attribute: Ints, low: Ints, high: Ints) -> bool:
    holds = True
    for p in range(start[i], start[i + 1]):
        value = event[attribute[p]]
        if value < low[p] or value > high[p]:
            holds = False
            break
    return holds


@njit(cache=True)
def _count_all(
    events: Ints, out: Ints, count: int, offset: Ints, bits: Words, summary: Words, start: Ints, attribute: Ints,
    low: Ints, high: Ints, order: Ints,
) -> int:  # fmt: skip
    rows = np.zeros(events.shape[1], np.int64)
    n = 0
    for i in range(events.shape[0]):
        n += _match(events[i], rows, out, count, offset, bits, summary, start, attribute, low, high, order)
    return n
