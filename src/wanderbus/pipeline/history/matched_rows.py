"""Work on batches of past events, by Spark's workers or without Spark: matches, their number, and samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from wanderbus.pipeline.history.event_columns import encoded_events, table_of
from wanderbus.pipeline.history.queries import Array, Pairs, QueryMatcher


def matched_batch(matcher: QueryMatcher, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of a batch that match, with the ids of the subscriptions."""
    found = matcher.pairs(batch)
    return _by_event(batch, found.rows, matcher.ids.take(pa.array(found.queries, pa.int64())))


def matched_places(matcher: QueryMatcher, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of a batch that match, with the places of the subscriptions."""
    found = matcher.pairs(batch)
    return _by_event(batch, found.rows, pa.array(found.queries, pa.int32()))


def _by_event(batch: pa.RecordBatch, rows: Array, values: pa.Array) -> pa.RecordBatch:
    """Return the offsets of some rows, ascending ones, each once with a list of the values that belong to it."""
    counts = np.bincount(rows, minlength=len(batch))
    matched = np.flatnonzero(counts)
    ends = np.concatenate([[0], np.cumsum(counts[matched])])
    kind = pa.list_(pa.field("element", values.type, nullable=False))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind)
    return pa.RecordBatch.from_arrays(
        [batch.column("offset").take(pa.array(matched, pa.int64())), lists],
        schema=pa.schema([("offset", pa.int64()), pa.field("subscriptions", kind, nullable=False)]),
    )


def matching_rows(matcher: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events of batches that match, encoded, with their publishers if the batches have them."""
    for batch in batches:
        table = table_of(batch)
        rows = np.unique(matcher.pairs_in(table).rows)
        chosen = batch.take(pa.array(rows, pa.int64()))
        encoded = encoded_events(table, chosen.column("subject").to_pylist(), rows.tolist())
        users = chosen.column("user") if "user" in chosen.schema.names else pa.nulls(len(chosen), pa.string())
        columns = [*(chosen.column(name) for name in ("offset", "at_us", "subject")), encoded, users]
        yield pa.RecordBatch.from_arrays(columns, names=["offset", "at_us", "subject", "event", "user"])


def undecided_counts(matcher: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the number of the events that are undecided for each query."""
    return _summed(matcher, (matcher.judged_in(table_of(batch))[1] for batch in batches))


def matched_counts(matcher: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the number of the events that each query matches."""
    return _summed(matcher, map(matcher.pairs, batches))


def _summed(matcher: QueryMatcher, found: Iterable[Pairs]) -> Iterator[pa.RecordBatch]:
    """Yield the number of the pairs of each query."""
    total = np.zeros(len(matcher.ids), np.int64)
    for each in found:
        total += np.bincount(each.queries, minlength=len(total))
    yield pa.RecordBatch.from_arrays([matcher.ids, pa.array(total, pa.int64())], names=["subscription", "events"])


def drawn_rows(
    matcher: QueryMatcher, batches: Iterator[pa.RecordBatch], size: int, seed: int
) -> Iterator[pa.RecordBatch]:
    """Yield the events with the least draws of those that each query matches."""
    kept = np.empty((0, 3), np.int64)
    for batch in batches:
        rows, queries = matcher.pairs(batch)
        offsets = batch.column("offset").to_numpy()[rows]
        kept = _least(np.concatenate([kept, np.stack([queries, _draws(offsets, seed), offsets], axis=1)]), size)
    places, draws, offsets = (pa.array(kept[:, column], pa.int64()) for column in range(3))
    columns = [matcher.ids.take(places), offsets, draws]
    yield pa.RecordBatch.from_arrays(columns, names=["subscription", "offset", "draw"])


def _least(drawn: Array, size: int) -> Array:
    """Return for each subscription the rows with the least draws."""
    ordered = drawn[np.lexsort((drawn[:, 2], drawn[:, 1], drawn[:, 0]))]
    begins = np.flatnonzero(np.diff(ordered[:, 0], prepend=-1))
    place = np.arange(len(ordered)) - np.repeat(begins, np.diff(begins, append=len(ordered)))
    least: Array = ordered[place < size]
    return least


def _draws(offsets: Array, seed: int) -> Array:
    """Return a number for each offset that looks random, below 2**63 (the finaliser of SplitMix64)."""
    mixed = offsets.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    drawn: Array = (mixed >> np.uint64(1)).astype(np.int64)
    return drawn
