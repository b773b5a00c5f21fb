"""Matches of past events with subscriptions: all of them, their number, or a sample (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StringType, StructField, StructType

from wanderbus.pipeline.history.event_columns import encoded_events, table_of
from wanderbus.pipeline.history.queries import Array, Events, Matcher, Work, in_workers, queries_of
from wanderbus.subscription import Subscription

_EVENTS: Final = "offset bigint, at_us bigint, subject string, event binary"
_COUNTS: Final = "subscription string, events bigint"
_SAMPLES: Final = "subscription string, offset bigint, draw bigint"


def match(events: Events, subscriptions: Iterable[Subscription]) -> DataFrame:
    """Return the events that match, by ``offset``, with the ids of the ``subscriptions`` that each one matches.

    The columns of ``events`` are described in :mod:`wanderbus.pipeline.history.event_columns`. Restrictions and
    lifetimes are ignored: see :func:`wanderbus.pipeline.history.replay.replay`. All subscriptions are matched in one
    pass. :class:`FilterError` names a subscription that cannot be parsed.
    """
    return in_workers(events, queries_of(subscriptions), _each(matched_batch), _matches(StringType()))


def match_places(events: Events, subscriptions: Iterable[Subscription]) -> DataFrame:
    """Do the same as :func:`match`, but name each subscription by its place among the given ones, from 0 on.

    Spark copies every id by itself and numbers all at once, so this is faster if events match many subscriptions.
    """
    return in_workers(events, queries_of(subscriptions), _each(matched_places), _matches(IntegerType()))


def count(events: Events, subscriptions: Iterable[Subscription]) -> DataFrame:
    """Return the number of ``events`` that each ``subscription`` matches, as :func:`match` finds them."""
    counted = in_workers(events, queries_of(subscriptions), _counts, _COUNTS)
    return counted.groupBy("subscription").agg(F.sum("events").alias("events"))


def matching_events(events: Events, subscriptions: Iterable[Subscription]) -> DataFrame:
    """Return the events that match any of the ``subscriptions``, each encoded as in messages: ``offset``, ``at_us``,
    ``subject``, ``event``.
    """
    queries = queries_of(subscriptions)._replace(asked=None)
    return in_workers(events, queries, _matching_events, _EVENTS, ["at_us"])


def sample(events: Events, subscriptions: Iterable[Subscription], size: int, seed: int = 0) -> DataFrame:
    """Return up to ``size`` events of those that each ``subscription`` matches, by ``offset``.

    They are drawn by ``seed`` and the events' offsets, so that the same events are drawn again however the work is
    divided.
    """

    def drawn(matcher: Matcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _samples(matcher, batches, size, seed)

    each = in_workers(events, queries_of(subscriptions), drawn, _SAMPLES)
    ranked = Window.partitionBy("subscription").orderBy("draw", "offset")
    return each.withColumn("rank", F.row_number().over(ranked)).where(F.col("rank") <= size).drop("rank", "draw")


def matched_batch(matcher: Matcher, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of a batch that match, with the ids of the subscriptions."""
    found = matcher.pairs(batch)
    return _by_event(batch, found.rows, matcher.ids.take(pa.array(found.queries)))


def matched_places(matcher: Matcher, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of a batch that match, with the places of the subscriptions."""
    found = matcher.pairs(batch)
    return _by_event(batch, found.rows, pa.array(found.queries.astype(np.int32)))


def _by_event(batch: pa.RecordBatch, rows: Array, values: pa.Array) -> pa.RecordBatch:
    """Return the offsets of some rows, ascending ones, each once with a list of the values that belong to it."""
    counts = np.bincount(rows, minlength=len(batch))
    matched = np.flatnonzero(counts)
    ends = np.concatenate([[0], np.cumsum(counts[matched])]).astype(np.int32)
    kind = pa.list_(pa.field("element", values.type, nullable=False))
    lists = pa.ListArray.from_arrays(pa.array(ends), values, type=kind)
    return pa.RecordBatch.from_arrays(
        [batch.column("offset").take(pa.array(matched)), lists],
        schema=pa.schema([("offset", pa.int64()), pa.field("subscriptions", kind, nullable=False)]),
    )


def _each(matched: Callable[[Matcher, pa.RecordBatch], pa.RecordBatch]) -> Work:
    def work(matcher: Matcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (matched(matcher, batch) for batch in batches)

    return work


def _matches(named_by: DataType) -> StructType:
    """Return the columns of matches. No subscription is null: Spark then does not look for that, item by item."""
    subscriptions = ArrayType(named_by, containsNull=False)
    return StructType([StructField("offset", LongType()), StructField("subscriptions", subscriptions, nullable=False)])


def _matching_events(matcher: Matcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = table_of(batch)
        rows = np.unique(matcher.pairs_in(table).rows)
        chosen = batch.take(pa.array(rows))
        encoded = encoded_events(table, chosen.column("subject").to_pylist(), rows.tolist())
        columns = [*(chosen.column(name) for name in ("offset", "at_us", "subject")), encoded]
        yield pa.RecordBatch.from_arrays(columns, names=["offset", "at_us", "subject", "event"])


def _counts(matcher: Matcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total = np.zeros(len(matcher.ids), np.int64)
    for batch in batches:
        total += np.bincount(matcher.pairs(batch).queries, minlength=len(total))
    yield pa.RecordBatch.from_arrays([matcher.ids, pa.array(total)], names=["subscription", "events"])


def _samples(matcher: Matcher, batches: Iterator[pa.RecordBatch], size: int, seed: int) -> Iterator[pa.RecordBatch]:
    kept = np.empty((0, 3), np.int64)
    for batch in batches:
        rows, queries = matcher.pairs(batch)
        offsets = batch.column("offset").to_numpy()[rows]
        kept = _least(np.concatenate([kept, np.stack([queries, _draws(offsets, seed), offsets], axis=1)]), size)
    columns = [matcher.ids.take(pa.array(kept[:, 0])), pa.array(kept[:, 2]), pa.array(kept[:, 1])]
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
