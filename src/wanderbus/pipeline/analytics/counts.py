"""Counts of sessions, drops, subjects and devices. The unit is the match (decision 0020)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.entries import lake_of
from wanderbus.pipeline.lake_offsets import NUMBER_SHIFT

OUTCOMES: Final = ("delivered", "dropped", "queued", "handed_over")

GIVEN_UP: Final = ("discarded", "purged", "unsubscribed")
"""Reasons of drops that somebody asked for: nothing is lost to whom it was meant for."""

_OF_SESSION: Final = ["user", "session"]
_OF_DEVICE: Final = ["user", "device"]


def blocked(marks: DataFrame, owners: DataFrame) -> DataFrame:
    """Return the matches that a restriction blocked: ``at_us, user, session, subscription, restricted``."""
    found = marks.where("kind = 'restricted'").select(
        "at_us", F.col("subscriptions")[0].alias("subscription"), F.col("number").alias("restricted"), lake_of("offset")
    )
    return found.join(owners, ["subscription", "lake"])


def session_counts(matches: DataFrame, notifications: DataFrame, blocked: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return the counts of each session; those of matches are the broker's own counters.

    ``missing`` are numbers between the first and the last notification that none has, ``repeated`` those that more than
    one has: both are 0 unless records were lost or written twice. They are counted for each time in which one server
    had the session: it then gives the numbers alone.
    """
    counts = matches.groupBy(*_OF_SESSION).agg(F.count("*").alias("generated"), *_outcomes())
    log = F.shiftright("offset", NUMBER_SHIFT).alias("log")
    arrivals = sessions.where("kind = 'session_imported'").groupBy(*_OF_SESSION, log)
    stays = arrivals.agg(F.collect_list("offset").alias("arrivals"))
    stay = F.size(F.filter(F.coalesce("arrivals", F.array()), lambda arrival: arrival < F.col("offset"))).alias("stay")
    numbered = notifications.withColumn("log", log).join(F.broadcast(stays), [*_OF_SESSION, "log"], "left")
    by_stay = numbered.groupBy(*_OF_SESSION, "log", stay).agg(
        F.count("*").alias("notifications"),
        F.countDistinct("number").alias("distinct"),
        (F.max("number") - F.min("number") + 1).alias("span"),
    )
    numbers = by_stay.groupBy(*_OF_SESSION).agg(
        *(F.sum(name).alias(name) for name in ("notifications", "distinct", "span"))
    )
    restricted = blocked.groupBy(*_OF_SESSION).agg(F.sum("restricted").alias("restricted"))
    found = counts.join(numbers, _OF_SESSION, "full").join(restricted, _OF_SESSION, "full")
    return found.select(
        *_OF_SESSION,
        *_zeros("notifications", "generated", *OUTCOMES, "restricted"),
        F.coalesce(F.col("span") - F.col("distinct"), F.lit(0)).alias("missing"),
        F.coalesce(F.col("notifications") - F.col("distinct"), F.lit(0)).alias("repeated"),
    )


def drops(matches: DataFrame) -> DataFrame:
    """Return the number of dropped matches by session, subject and reason."""
    found = matches.where("outcome = 'dropped'").groupBy(*_OF_SESSION, "subject", "reason")
    return found.agg(F.count("*").alias("dropped"))


def parted(counts: DataFrame, dropped: DataFrame, *by: str) -> DataFrame:
    """Return counts ``by`` some columns, whose drops by request are in a column ``given_up`` instead of ``dropped``."""
    asked_for = dropped.where(F.col("reason").isin(*GIVEN_UP)).groupBy(*by).agg(F.sum("dropped").alias("given_up"))
    found = counts.join(asked_for, list(by), "left").fillna(0, ["given_up"])
    return found.withColumn("dropped", F.col("dropped") - F.col("given_up"))


def subject_counts(events: DataFrame, matches: DataFrame) -> DataFrame:
    """Return the events and matches of each subject; ``events_in_peak_s`` is the most events within one second."""
    seconds = events.groupBy("subject", F.floor(F.col("at_us") / 1_000_000).alias("second")).agg(
        F.count("*").alias("events"), F.min("at_us").alias("first_us"), F.max("at_us").alias("last_us")
    )
    published = seconds.groupBy("subject").agg(
        F.sum("events").alias("events"),
        F.max("events").alias("events_in_peak_s"),
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
    )
    counts = matches.groupBy("subject").agg(F.count("*").alias("generated"), *_outcomes())
    return published.join(counts, "subject", "full").select(
        "subject", *_zeros("events", "events_in_peak_s", "generated", *OUTCOMES), "first_us", "last_us"
    )


def device_counts(events: DataFrame, acknowledgements: DataFrame, absences: DataFrame, moves: DataFrame) -> DataFrame:
    """Return, for each device, what it published and took, its times away and its moves.

    ``repeated_events`` were accepted more than once, which is 0 unless the broker failed to recognise them.
    ``redelivered`` matches were sent again to a later life of the agent, so the application may have seen them before.
    ``away_us`` are those of absences that have ended.
    """
    life = F.struct("device_epoch", "device_number")
    published = events.groupBy(*_OF_DEVICE).agg(
        F.count("*").alias("events"), (F.count("*") - F.countDistinct(life)).alias("repeated_events")
    )
    taken = acknowledgements.groupBy(*_OF_DEVICE).agg(
        F.count("*").alias("taken"),
        F.sum(F.col("is_redelivered").cast("bigint")).alias("redelivered"),
        (F.percentile(F.col("taken_us") - F.col("matched_us") - F.col("away_us"), 0.95) / 1_000).alias("taking_p95_ms"),
    )
    away = absences.groupBy(*_OF_DEVICE).agg(
        F.count("*").alias("absences"),
        F.sum(F.col("to_us") - F.col("from_us")).alias("away_us"),
        F.max(F.col("to_us").isNull()).alias("is_away"),
    )
    moved = moves.groupBy(*_OF_DEVICE).agg(
        F.count("*").alias("moves"),
        F.count("healed_us").alias("healed"),
        (F.percentile("healing_us", 0.5) / 1_000).alias("healing_p50_ms"),
        (F.max("healing_us") / 1_000).alias("healing_max_ms"),
    )
    found = published.join(taken, _OF_DEVICE, "full").join(away, _OF_DEVICE, "full").join(moved, _OF_DEVICE, "full")
    counted = ("events", "repeated_events", "taken", "redelivered", "absences", "away_us", "moves", "healed")
    return found.select(
        *_OF_DEVICE,
        *_zeros(*counted),
        F.coalesce("is_away", F.lit(False)).alias("is_away"),
        *("taking_p95_ms", "healing_p50_ms", "healing_max_ms"),
    )


def _outcomes() -> list[Column]:
    return [F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES]


def _zeros(*names: str) -> list[Column]:
    return [F.coalesce(name, F.lit(0)).alias(name) for name in names]
