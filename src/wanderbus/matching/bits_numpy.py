"""Helpers on whole arrays that the numpy kernel and the numpy writer share: spans of numbers, lines, and bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from wanderbus.matching.layout import BLOCK_ROWS
from wanderbus.matching.segment import Array

_ONE: Final = np.uint64(1)


def spans(starts: Array, stops: Array) -> tuple[Array, Array]:
    """Return all numbers from each start up to its stop, concatenated, and the span of each number."""
    lengths = (stops - starts).astype(np.int64)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return np.arange(len(owners)) + (starts - np.cumsum(lengths) + lengths)[owners], owners


def line_of(line_starts: Array, cuts: Array, place: int, values: Array) -> Array:
    """Return the lines of the buckets in which the values of a column are."""
    first = int(line_starts[place])
    among = cuts[first + 1 : line_starts[place + 1]]
    lines: Array = np.where(np.isnan(values), first, first + np.searchsorted(among, values, "right"))
    return lines


def lines_of(line_starts: Array, cuts: Array, places: Array, values: Array) -> Array:
    """Return the lines of values, each of which belongs to its own column."""
    lines = np.empty(len(values), np.int64)
    for place in np.unique(places).tolist():
        its = places == place
        lines[its] = line_of(line_starts, cuts, place, values[its])
    return lines


def rows_in(words: Array) -> Array:
    """Return the rows whose bits are set, counted from the first word."""
    return np.flatnonzero(np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little"))


def open_to(at: Array, places: Array, line_starts: Array, bits: Array) -> None:
    """Make rows possible for all values of columns."""
    lines, owners = spans(line_starts[places], line_starts[places + 1])
    mark(bits, at[owners], lines, True)


def close_to(at: Array, places: Array, allowed: Array, line_starts: Array, bits: Array) -> None:
    """Make rows impossible for the buckets of columns that ``allowed`` lacks, and where the columns are missing."""
    lines, owners = spans(line_starts[places], line_starts[places + 1])
    bucket = lines - line_starts[places][owners] - 1
    barred = (bucket < 0) | (allowed[owners] >> np.maximum(bucket, 0).astype(np.uint64) & _ONE == 0)
    mark(bits, at[owners[barred]], lines[barred], False)


def mark(bits: Array, at: Array, lines: Array | int, is_set: bool) -> None:
    """Set the bits of rows in lines, or clear them."""
    words = (at // BLOCK_ROWS * bits.shape[1] + lines) * 8 + (at >> 6 & 7)
    its = _ONE << (at & 63).astype(np.uint64)
    if is_set:
        np.bitwise_or.at(bits.reshape(-1), words, its)
    else:
        np.bitwise_and.at(bits.reshape(-1), words, ~its)


def summarise(blocks: Iterable[int], bits: Array, summary: Array) -> None:
    """Recompute the summary of some blocks: for each bucket, whether the bucket leaves any row."""
    for block in blocks:
        some = (bits[block] & bits[block, 0]).any(axis=1)
        mask = _ONE << np.uint64(block & 63)
        its = summary[:, block >> 6]
        summary[:, block >> 6] = np.where(some, its | mask, its & ~mask)
