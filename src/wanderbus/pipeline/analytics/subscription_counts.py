"""Counts of subscriptions: how many events each saw, and what became of its matches."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.counts import OUTCOMES
from wanderbus.subscription import EVERY_SUBJECT

_STATE: Final = ("owner", "session", "subject", "expression", "language")


def subscription_counts(versions: DataFrame, events: DataFrame, matches: DataFrame, blocked: DataFrame) -> DataFrame:
    """Return the counts of each subscription, with its filter as it was last.

    ``events_seen`` are the events of its subject while it lived. A subscription with events
    and without matches, blocked ones included, never matches.
    """
    last = versions.groupBy("id").agg(
        F.max_by(F.struct(*_STATE, "is_live"), F.struct("is_live", "from_us", "from_offset")).alias("version"),
        F.min("from_us").alias("from_us"),
    )
    seen = events_seen(versions, events)
    counts = matches.groupBy(F.col("subscription").alias("id")).agg(
        F.count("*").alias("generated"),
        *(F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
    )
    restricted = blocked.groupBy(F.col("subscription").alias("id")).agg(F.sum("restricted").alias("restricted"))
    found = last.join(seen, "id", "left").join(counts, "id", "left").join(restricted, "id", "left")
    numbers = ("events_seen", "generated", *OUTCOMES, "restricted")
    return found.select(
        "id", "version.*", "from_us", *(F.coalesce(name, F.lit(0)).alias(name) for name in numbers)
    ).withColumnRenamed("owner", "user")


def events_seen(versions: DataFrame, events: DataFrame) -> DataFrame:
    """Return ``id, events_seen``: the events of a subscription's subject from its begin to its end, without it.

    Events are counted in one pass in order of time, and of offset in one log; the bounds of the versions are rows among
    them. Times of records never decrease in a log, so only events of other servers than that of the subscription depend
    on two clocks.
    """
    offsets = events.select("subject", "at_us", "offset", F.lit(1).alias("event"))
    every = offsets.withColumn("subject", F.lit(EVERY_SUBJECT))
    never = F.lit((1 << 63) - 1)
    begin = _bounds(versions, F.col("from_us"), F.col("from_offset"), -1)
    end = _bounds(versions, F.coalesce("to_us", never), F.coalesce("to_offset", never), 1)
    # A bound stands before the event at its offset, so that a begin includes it and an end does not.
    in_order = (
        Window.partitionBy("subject").orderBy("at_us", "offset", "event").rowsBetween(Window.unboundedPreceding, 0)
    )
    rows = offsets.union(every).withColumns({"id": F.lit(None).cast("string"), "sign": F.lit(0)})
    bounds = begin.union(end)
    counted = rows.unionByName(bounds).withColumn("before", F.sum("event").over(in_order))
    signed = counted.where("id is not null")
    return signed.groupBy("id").agg(F.sum(F.col("before") * F.col("sign")).alias("events_seen"))


def _bounds(versions: DataFrame, at_us: Column, offset: Column, sign: int) -> DataFrame:
    return versions.select(
        "subject",
        at_us.alias("at_us"),
        offset.alias("offset"),
        F.lit(0).alias("event"),
        "id",
        F.lit(sign).alias("sign"),
    )
