"""Matches of past events with subscriptions: all of them, their number, or a sample (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StringType, StructField, StructType

from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.pipeline.history.matched_rows import (
    drawn_rows,
    matched_batch,
    matched_counts,
    matched_places,
    matching_rows,
    undecided_counts,
)
from wanderbus.pipeline.history.queries import MatcherWork, QueryMatcher, queries_of, undecidable
from wanderbus.pipeline.history.spark_batches import Events, in_workers
from wanderbus.subscription import Subscription

_EVENTS: Final = "offset bigint, at_us bigint, subject string, event binary, user string"
_COUNTS: Final = "subscription string, events bigint"
_SAMPLES: Final = "subscription string, offset bigint, draw bigint"


def match(events: Events, subscriptions: Iterable[Subscription], work_max: int = FILTER_WORK_MAX) -> DataFrame:
    """Return the events that match, by ``offset``, with the ids of the ``subscriptions`` that each one matches.

    The columns of ``events`` are described in :mod:`wanderbus.pipeline.history.event_columns`. Restrictions and
    lifetimes are ignored: see :func:`wanderbus.pipeline.history.replays.replay`. All subscriptions are matched in one
    pass. :class:`FilterError` names a subscription that cannot be parsed. An event for which a filter takes more than
    ``work_max`` units of work is undecided and left out, here and in the other functions: see :func:`undecided`.
    """
    return in_workers(events, queries_of(subscriptions, work_max), _each(matched_batch), _matches(StringType()))


def match_places(events: Events, subscriptions: Iterable[Subscription], work_max: int = FILTER_WORK_MAX) -> DataFrame:
    """Do the same as :func:`match`, but name each subscription by its place among the given ones, from 0 on.

    Spark copies every id by itself and numbers all at once, so this is faster if events match many subscriptions.
    """
    return in_workers(events, queries_of(subscriptions, work_max), _each(matched_places), _matches(IntegerType()))


def count(events: Events, subscriptions: Iterable[Subscription], work_max: int = FILTER_WORK_MAX) -> DataFrame:
    """Return the number of ``events`` that each ``subscription`` matches, as :func:`match` finds them."""
    counted = in_workers(events, queries_of(subscriptions, work_max), matched_counts, _COUNTS)
    return counted.groupBy("subscription").agg(F.sum("events").alias("events"))


def matching_events(
    events: Events, subscriptions: Iterable[Subscription], work_max: int = FILTER_WORK_MAX
) -> DataFrame:
    """Return the events that match any of the ``subscriptions``, each encoded as in messages: ``offset``, ``at_us``,
    ``subject``, ``event``, and ``user``, the publisher, which is null if the events do not have that column.
    """
    queries = queries_of(subscriptions, work_max)._replace(asked=None)
    further = ["at_us"] if isinstance(events, DataFrame) and "user" not in events.columns else ["at_us", "user"]
    return in_workers(events, queries, matching_rows, _EVENTS, further)


def undecided(events: Events, subscriptions: Iterable[Subscription], work_max: int = FILTER_WORK_MAX) -> dict[str, int]:
    """Return the number of ``events`` that are undecided for each subscription, by its id, where there are any.

    The events are read only if there is a filter that can take more than ``work_max`` units of work for one.
    """
    queries = undecidable(subscriptions, work_max)
    if queries is None:
        return {}
    counted = in_workers(events, queries, undecided_counts, _COUNTS).groupBy("subscription")
    rows = counted.agg(F.sum("events").alias("events")).where("events > 0").collect()
    return {row.subscription: row.events for row in rows}


def sample(
    events: Events, subscriptions: Iterable[Subscription], size: int, seed: int = 0, work_max: int = FILTER_WORK_MAX
) -> DataFrame:
    """Return up to ``size`` events of those that each ``subscription`` matches, by ``offset``.

    They are drawn by ``seed`` and the events' offsets, so that the same events are drawn again however the work is
    divided.
    """

    def drawn(matcher: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return drawn_rows(matcher, batches, size, seed)

    each = in_workers(events, queries_of(subscriptions, work_max), drawn, _SAMPLES)
    ranked = Window.partitionBy("subscription").orderBy("draw", "offset")
    return each.withColumn("rank", F.row_number().over(ranked)).where(F.col("rank") <= size).drop("rank", "draw")


def _each(matched: Callable[[QueryMatcher, pa.RecordBatch], pa.RecordBatch]) -> MatcherWork:
    def work(matcher: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (matched(matcher, batch) for batch in batches)

    return work


def _matches(named_by: DataType) -> StructType:
    """Return the columns of matches. No subscription is null: Spark then does not look for that, item by item."""
    subscriptions = ArrayType(named_by, containsNull=False)
    return StructType([StructField("offset", LongType()), StructField("subscriptions", subscriptions, nullable=False)])
