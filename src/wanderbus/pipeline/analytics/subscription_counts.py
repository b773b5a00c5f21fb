"""Counts of subscriptions: how many events each saw, and what became of its matches."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.counts import OUTCOMES
from wanderbus.pipeline.analytics.entries import lake_of
from wanderbus.subscription import EVERY_SUBJECT

_KEY: Final = ["owner", "id"]
"""Columns that identify a subscription: servers of two domains may give the same id."""

_STATE: Final = ("session", "subject", "expression", "language")


def subscription_counts(versions: DataFrame, events: DataFrame, matches: DataFrame, blocked: DataFrame) -> DataFrame:
    """Return the counts of each subscription, with its filter as it was last.

    ``events_seen`` are the events of its subject while it lived. A subscription with events
    and without matches, blocked ones included, never matches.
    """
    last = versions.groupBy("owner", "id").agg(
        F.max_by(F.struct(*_STATE, "is_live"), F.struct("is_live", "from_us", "from_offset")).alias("version"),
        F.min("from_us").alias("from_us"),
    )
    of_match = (F.col("user").alias("owner"), F.col("subscription").alias("id"))
    seen = events_seen(versions, events)
    counts = matches.groupBy(*of_match).agg(
        F.count("*").alias("generated"),
        *(F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
    )
    restricted = blocked.groupBy(*of_match).agg(F.sum("restricted").alias("restricted"))
    found = last.join(seen, _KEY, "left").join(counts, _KEY, "left").join(restricted, _KEY, "left")
    numbers = ("events_seen", "generated", *OUTCOMES, "restricted")
    return found.select(
        "id", "owner", "version.*", "from_us", *(F.coalesce(name, F.lit(0)).alias(name) for name in numbers)
    ).withColumnRenamed("owner", "user")


def events_seen(versions: DataFrame, events: DataFrame) -> DataFrame:
    """Return ``owner, id, events_seen``: the events of a subscription's subject from its begin to its end, without it.

    In several lakes they are those of the lake that has the subscription.

    Events are counted in one pass in order of time, and of offset in one log; the bounds of the versions are rows among
    them. Times of records never decrease in a log, so only events of other servers than that of the subscription depend
    on two clocks.
    """
    offsets = events.select("subject", lake_of("offset"), "at_us", "offset", F.lit(1).alias("event"))
    every = offsets.withColumn("subject", F.lit(EVERY_SUBJECT))
    never = F.lit((1 << 63) - 1)
    begin = _bounds(versions, F.col("from_us"), F.col("from_offset"), -1)
    end = _bounds(versions, F.coalesce("to_us", never), F.coalesce("to_offset", never), 1)
    # A bound stands before the event at its offset, so that a begin includes it and an end does not.
    by_time = Window.partitionBy("lake", "subject").orderBy("at_us", "offset", "event")
    in_order = by_time.rowsBetween(Window.unboundedPreceding, 0)
    nobody = F.lit(None).cast("string")
    rows = offsets.union(every).withColumns({"owner": nobody, "id": nobody, "sign": F.lit(0)})
    bounds = begin.union(end)
    counted = rows.unionByName(bounds).withColumn("before", F.sum("event").over(in_order))
    signed = counted.where("id is not null")
    return signed.groupBy(*_KEY).agg(F.sum(F.col("before") * F.col("sign")).alias("events_seen"))


def _bounds(versions: DataFrame, at_us: Column, offset: Column, sign: int) -> DataFrame:
    return versions.select(
        "subject",
        lake_of("from_offset"),
        at_us.alias("at_us"),
        offset.alias("offset"),
        F.lit(0).alias("event"),
        *_KEY,
        F.lit(sign).alias("sign"),
    )
