"""The shape of a segment from a sample of its rows: which columns have buckets, and where to cut (DESIGN 7.4)."""

from __future__ import annotations

from typing import Final

import numpy as np

from wanderbus.matching.layout import BUCKETS_MAX, PLACE, PLACES_MAX, START, STOP, SUBJECT, WORTH
from wanderbus.matching.segment import Array, Shape

SAMPLE_ROWS: Final = 2048

_NAMED_MIN: Final = 1 / 128
"""Least share of rows that name a column for which buckets pay off."""


def shape_of(rows: Array, entry_columns: Array, ends: Array) -> Shape:
    """Return the shape for some rows."""
    sample = rows[:: len(rows) // SAMPLE_ROWS + 1]
    lengths = sample[:, STOP] - sample[:, START]
    source = np.repeat(sample[:, START] - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    subjects = sample[:, SUBJECT].astype(np.float64)
    asked = np.concatenate([np.zeros(len(sample), np.int32), entry_columns[source]])
    low = np.concatenate([subjects, ends[source, 0]])
    high = np.concatenate([subjects, ends[source, 1]])
    columns = asked & PLACE
    named = np.bincount(columns)
    chosen = np.flatnonzero(named >= max(2, _NAMED_MIN * len(sample)))
    chosen = chosen[(chosen > 0) | (len(np.unique(subjects)) > 1)]
    chosen = chosen[np.argsort(-named[chosen], kind="stable")[:PLACES_MAX]]
    places = np.full(max(1, len(named)), -1, np.int32)
    places[chosen] = np.arange(len(chosen))
    cuts, worths = [], []
    for column in chosen.tolist():
        its = columns == column
        cuts.append(_cuts(low[its], high[its]))
        worths.append(_let_through(low[its & (low == high)]))
    lines = [part for each in cuts for part in ([np.nan], each)]
    return Shape(
        chosen,
        np.cumsum([1, *(1 + len(each) for each in cuts)]).astype(np.int32),
        np.concatenate([[np.nan], *lines]),
        places,
        np.array(worths, np.int32),
    )


def _let_through(values: Array) -> int:
    """Return how many of :data:`WORTH` values with this distribution one of these values lets through."""
    _, counts = np.unique(values, return_counts=True)
    shares = counts / max(1, len(values))
    return int(WORTH * float(shares @ shares))


def _cuts(low: Array, high: Array) -> Array:
    """Return the least values of a column's buckets, chosen so that about as many intervals begin or end in each."""
    with np.errstate(over="ignore"):
        bounds = np.concatenate([low, np.nextafter(high, np.inf)])
    bounds = np.sort(bounds[np.isfinite(bounds)])
    distinct = np.unique(bounds)
    most = BUCKETS_MAX - 1
    if len(distinct) > most:
        distinct = np.unique(bounds[np.linspace(0, len(bounds) - 1, most).astype(np.int64)])
    return np.concatenate([[-np.inf], distinct])
