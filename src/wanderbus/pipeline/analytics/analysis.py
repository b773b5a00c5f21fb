"""Analysis of a period: totals, and of each gold table the rows that matter most, as plain values (SPEC T-08)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.analytics.counts import GIVEN_UP, parted
from wanderbus.pipeline.analytics.gold import GoldTables
from wanderbus.pipeline.analytics.latencies import PARTS
from wanderbus.pipeline.analytics.queue_depths import queue_depths

ROWS_MAX: Final = 50
"""Rows of a ranking; the gold tables have all."""

POINTS: Final = 120
"""Times into which the period is divided for the depth of queues."""

CURVES: Final = 5
"""Sessions whose depths are drawn."""

STRIPS: Final = 15
"""Devices whose times away are drawn, and the number of them for each."""

Row = dict[str, Any]


class Ranking(msgspec.Struct, frozen=True):
    """The first rows of a table in the order of what matters; ``is_cut`` if it has more."""

    rows: list[Row] = []
    is_cut: bool = False


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all sessions, devices and subscriptions; the unit of those from ``generated`` on is the match.

    ``given_up`` are the drops that somebody asked for, which ``dropped`` does not contain, unlike in the gold tables.

    ``healing`` percentiles are over all moves that healed, in milliseconds. ``handovers`` are the sessions that went to
    another server, with the notifications and bytes that went with them; of the gaps, those of devices that were
    connected. ``group_moves`` are the channel groups that another server leads now, with the times for which publishes
    waited. ``uncompared`` are the filters that were not compared with all others of their subject in the search for
    coverings.
    """

    events: int = 0
    repeated_events: int = 0
    notifications: int = 0
    missing: int = 0
    repeated: int = 0
    generated: int = 0
    delivered: int = 0
    dropped: int = 0
    given_up: int = 0
    queued: int = 0
    handed_over: int = 0
    restricted: int = 0
    redelivered: int = 0
    sessions: int = 0
    devices: int = 0
    absences: int = 0
    moves: int = 0
    healed: int = 0
    healing_p50_ms: float | None = None
    healing_p95_ms: float | None = None
    healing_max_ms: float | None = None
    handovers: int = 0
    handover_gap_p50_ms: float | None = None
    handover_gap_p99_ms: float | None = None
    handover_gap_max_ms: float | None = None
    handover_notifications: int = 0
    handover_bytes: int = 0
    group_moves: int = 0
    group_pause_p50_ms: float | None = None
    group_pause_p99_ms: float | None = None
    group_pause_max_ms: float | None = None
    subscriptions: int = 0
    live: int = 0
    never_matched: int = 0
    coverings: int = 0
    uncompared: int = 0


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a server for a period; times are microseconds since the Unix epoch by the server's clock.

    ``server`` has the names of all servers whose logs are in the lake, or of the one that is meant.

    ``rejected`` are the numbers of records that tables of the lake rejected, by table: the figures miss them.

    ``records`` are those of the log in the period, from ``first_us`` to ``last_us``. ``depth_bucket_us`` is the time of
    one row of ``depth``, which is that of the server, and of ``depths``. ``causes`` are the counts of handovers by
    cause.
    """

    server: str
    records: int
    first_us: int | None
    last_us: int | None
    totals: Totals
    reasons: Ranking
    drops: Ranking
    sessions: Ranking
    latencies: Mapping[str, Ranking]
    depth_bucket_us: int
    depth: list[Row]
    depths: list[Row]
    devices: Ranking
    slow: Ranking
    absences: list[Row]
    moves: Ranking
    handovers: Ranking
    causes: Ranking
    group_moves: Ranking
    subjects: Ranking
    never: Ranking
    coverings: Ranking
    rejected: Mapping[str, int] = {}


def analyse(gold: GoldTables) -> Analysis:
    """Compute the figures of the report; the frames of ``gold`` are evaluated here."""
    found = gold.frames
    records, first_us, last_us = _span(gold)
    bucket_us = max(1, -(-((last_us or 0) - (first_us or 0) + 1) // POINTS))
    keep = gold.tables.keep
    devices, counts = keep(found["device_counts"]), keep(found["subscription_counts"])
    every_drop, pairs = keep(found["drops"]), found["coverings"]
    sessions = keep(parted(found["session_counts"], every_drop, "user", "session"))
    subjects = parted(found["subject_counts"], every_drop, "subject")
    drops = every_drop.where(~F.col("reason").isin(*GIVEN_UP))
    latencies = keep(found["latencies"])
    handovers = keep(found["handovers"])
    is_never = (F.col("generated") + F.col("restricted") == 0) & F.col("is_live")
    away = ranked(devices.where("absences > 0"), F.desc("away_us"), F.desc("is_away"), "user", "device")
    try:
        return Analysis(
            server=", ".join(gold.tables.servers),
            records=records,
            first_us=first_us,
            last_us=last_us,
            totals=_totals(sessions, devices, counts, {**found, "handovers": handovers}, is_never),
            reasons=ranked(drops.groupBy("reason").agg(F.sum("dropped").alias("dropped")), F.desc("dropped"), "reason"),
            drops=ranked(drops, F.desc("dropped"), "user", "session", "subject", "reason"),
            sessions=ranked(
                sessions, F.desc(F.col("dropped") + F.col("queued")), F.desc("generated"), "user", "session"
            ),
            latencies={scope: _latencies(latencies, scope) for scope in ("server", "subject", "user", "device")},
            depth_bucket_us=bucket_us,
            depth=_depth(gold, bucket_us),
            depths=_depths(gold, bucket_us),
            devices=ranked(devices, F.desc("taken"), F.desc("events"), "user", "device"),
            slow=ranked(devices.where("taking_p95_ms is not null"), F.desc("taking_p95_ms"), "user", "device"),
            absences=_absences(found["absences"], away),
            moves=ranked(found["moves"], F.col("healing_us").desc_nulls_first(), "user", "device", "moved_us"),
            handovers=ranked(handovers, F.col("gap_us").desc_nulls_last(), "begun_us", "user", "session"),
            causes=_causes(handovers),
            group_moves=ranked(found["group_moves"], F.col("pause_us").desc_nulls_last(), "begun_us", "channel_group"),
            subjects=ranked(subjects, F.desc("events"), "subject"),
            never=ranked(counts.where(is_never), F.desc("events_seen"), "id"),
            coverings=ranked(pairs, F.desc("covered_subscriptions"), "subject", "covering", "covered"),
        )
    finally:
        for each in (devices, counts, sessions, every_drop, pairs, latencies, handovers):
            each.unpersist()


_NAMES: Final = ("subject", "user", "device")


def _latencies(latencies: DataFrame, scope: str) -> Ranking:
    """Return the latencies of a scope: who took most first, and the parts of one in the order of time."""
    busiest = F.max("acknowledgements").over(Window.partitionBy(*_NAMES))
    part = F.array_position(F.array(*map(F.lit, PARTS)), F.col("part"))
    own = latencies.where(F.col("scope") == scope).withColumns({"busiest": busiest, "place": part})
    found = ranked(own, F.desc("busiest"), *_NAMES, "place")
    return Ranking([{name: row[name] for name in latencies.columns} for row in found.rows], found.is_cut)


def ranked(frame: DataFrame, *order: Column | str, limit: int = ROWS_MAX) -> Ranking:
    """Return the first rows of a frame in an order."""
    rows = [row.asDict() for row in frame.orderBy(*order).limit(limit + 1).collect()]
    return Ranking(rows[:limit], len(rows) > limit)


def _span(gold: GoldTables) -> tuple[int, int | None, int | None]:
    records = gold.period.within(gold.tables.records)
    (row,) = records.agg(F.count("*"), F.min("at_us"), F.max("at_us")).collect()
    return row[0], row[1], row[2]


def _totals(
    sessions: DataFrame,
    devices: DataFrame,
    counts: DataFrame,
    found: Mapping[str, DataFrame],
    is_never: Column,
) -> Totals:
    """Return the totals: each part is one row, and all parts are one query."""
    summed = (
        "notifications",
        "missing",
        "repeated",
        "generated",
        "delivered",
        "dropped",
        "given_up",
        "queued",
        "handed_over",
    )
    healing = F.col("healing_us") / 1_000
    parts = [
        sessions.agg(F.count("*").alias("sessions"), *map(_sum, (*summed, "restricted"))),
        devices.agg(
            F.count("*").alias("devices"),
            *map(_sum, ("events", "repeated_events", "redelivered", "absences", "moves", "healed")),
        ),
        counts.agg(
            F.count("*").alias("subscriptions"),
            F.count_if("is_live").alias("live"),
            F.count_if(is_never).alias("never_matched"),
        ),
        found["moves"].agg(
            F.percentile(healing, 0.5).alias("healing_p50_ms"),
            F.percentile(healing, 0.95).alias("healing_p95_ms"),
            F.max(healing).alias("healing_max_ms"),
        ),
        found["handovers"].where(_HAS_MOVED).agg(*_of_handovers("handover_")),
        found["group_moves"]
        .where(_HAS_MOVED)
        .agg(F.count("*").alias("group_moves"), *_percentiles("pause_us", "group_pause")),
        found["coverings"].agg(F.count("*").alias("coverings")),
        found["uncompared_filters"].agg(F.count("*").alias("uncompared")),
    ]
    (row,) = reduce(DataFrame.crossJoin, parts).collect()
    return Totals(**row.asDict())


_HAS_MOVED: Final = "outcome = 'moved'"


def _of_handovers(prefix: str = "") -> list[Column]:
    """Return the figures of handovers, whose names but the first begin with ``prefix``."""
    return [
        F.count("*").alias("handovers"),
        *_percentiles("gap_us", f"{prefix}gap"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(f"{prefix}{name}") for name in ("notifications", "bytes")),
    ]


def _percentiles(column: str, name: str) -> list[Column]:
    """Return the percentiles of a span, in milliseconds."""
    span = F.col(column) / 1_000
    return [
        F.percentile(span, 0.5).alias(f"{name}_p50_ms"),
        F.percentile(span, 0.99).alias(f"{name}_p99_ms"),
        F.max(span).alias(f"{name}_max_ms"),
    ]


def _causes(handovers: DataFrame) -> Ranking:
    """Return the figures of the handovers by cause, and the moves of each that were withdrawn or are under way."""
    by_cause = handovers.groupBy(F.coalesce("cause", F.lit("")).alias("cause"))
    own = by_cause.agg(
        *(F.count_if(F.col("outcome") == each).alias(each) for each in ("withdrawn", "under_way")),
    )
    moved = handovers.where(_HAS_MOVED).groupBy(F.coalesce("cause", F.lit("")).alias("cause")).agg(*_of_handovers())
    found = own.join(moved, "cause", "left").fillna(0, ["handovers", "notifications", "bytes"])
    return ranked(found, F.desc("handovers"), "cause")


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _depth(gold: GoldTables, bucket_us: int) -> list[Row]:
    """Return the depth of all queues together."""
    frame = gold.period.after_begin(queue_depths(gold.every_match, bucket_us, by=()), bucket_us)
    return [row.asDict() for row in frame.orderBy("from_us").collect()]


def _depths(gold: GoldTables, bucket_us: int) -> list[Row]:
    """Return the depths of the sessions with the deepest queues."""
    frame = gold.period.after_begin(queue_depths(gold.every_match, bucket_us), bucket_us).cache()
    top = ranked(
        frame.groupBy("user", "session").agg(F.max("depth_max").alias("most")),
        F.desc("most"),
        "user",
        "session",
        limit=CURVES,
    )
    wanted = [(row["user"], row["session"]) for row in top.rows]
    rows = [row.asDict() for row in frame.where(_is_among(("user", "session"), wanted)).orderBy("from_us").collect()]
    frame.unpersist()
    return sorted(rows, key=lambda row: wanted.index((row["user"], row["session"])))


def _absences(frame: DataFrame, away: Ranking) -> list[Row]:
    """Return the times away of the devices that were away longest."""
    wanted = [(row["user"], row["device"]) for row in away.rows[:STRIPS]]
    rows = frame.where(_is_among(("user", "device"), wanted)).orderBy("from_us").limit(STRIPS * ROWS_MAX).collect()
    return sorted((row.asDict() for row in rows), key=lambda row: wanted.index((row["user"], row["device"])))


def _is_among(names: tuple[str, str], wanted: Sequence[tuple[str, str]]) -> Column:
    """Return the condition that two columns have the values of one of the pairs."""
    one, other = map(F.col, names)
    return reduce(lambda any_, pair: any_ | ((one == pair[0]) & (other == pair[1])), wanted, F.lit(False))
