"""Audit of a run on Spark: the evidence of every traveller's notifications, compared with the lake (SPEC T-08).

Evidence is four files of JSON lines, written by whoever ran the travellers (:data:`EVIDENCE_SCHEMAS`): the rows
each should receive, the rows each took and in which order, its moves, and its times away. The lake says what was
published and notified. Every transform here turns its input into *facts*: one row per thing that happened, with the
traveller and the measures it counts towards; one aggregation then serves each traveller and all of them together.

The counts add up: expected = delivered + lost, and takings = delivered + repeated + unexpected.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from demo import SUBJECT
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import table
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.tables.declared import Declared

EVIDENCE_SCHEMAS: Final = {
    "expected": "user string, row bigint",
    "taken": "user string, seq bigint, row bigint, at_us bigint",
    "moves": "user string, moved_us bigint, healed_us bigint, address string",
    "away": "user string, from_us bigint, to_us bigint, why string",
}
"""Columns of the files of a run's evidence, ``<name>.jsonl``; only ``healed_us`` may be null: never healed."""

ROW_ATTRIBUTE: Final = "Row"
"""The attribute of an event that names its row in the input."""

DECLARED: Final[Declared] = {SUBJECT: {ROW_ATTRIBUTE: "Integer"}}
"""The attributes that get columns of their own in the lake."""

COUNTS: Final = (
    *("expected", "delivered", "lost", "repeated", "out_of_order", "unexpected"),
    *("notified", "moves", "healed"),
)
"""Measures that are summed; each is a field of :class:`Journey`."""

LATENCY_BUCKETS_PER_OCTAVE: Final = 2
"""Latency is counted in buckets whose bounds grow by the square root of two."""


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one traveller, or of all together.

    ``delivered`` are expected rows taken at least once, ``lost`` those never taken; ``repeated`` are takings beyond
    a row's first, ``unexpected`` rows taken that were not expected. ``out_of_order`` are rows whose first taking came
    after that of a row published later. ``healing`` is the time from a move to the first sign that it had healed,
    in milliseconds, as exact percentiles; None if no move healed. ``latency`` is from the publisher's own clock (the
    broker's where it gives none) to the first taking, times away included.
    """

    expected: int
    delivered: int
    lost: int
    repeated: int
    out_of_order: int
    unexpected: int
    notified: int
    moves: int
    healed: int
    away_s: float
    healing_p50_ms: float | None
    healing_p95_ms: float | None
    healing_max_ms: float | None
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    latency_max_ms: float | None


class Traveller(Journey, frozen=True, kw_only=True):
    """The journey of one user."""

    user: str


class LatencyBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Number of deliveries that took longer than ``above_ms``, and at most ``up_to_ms``."""

    above_ms: float
    up_to_ms: float
    deliveries: int


class JourneysResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of :func:`journeys`; ``published`` counts the events of ``subject`` in the lake."""

    subject: str
    published: int
    totals: Journey
    travellers: tuple[Traveller, ...]
    latency: tuple[LatencyBucket, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, texts and numbers, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def published_rows(events: DataFrame) -> DataFrame:
    """Return ``row, offset, published_us`` of the first event of each row."""
    at_us = F.coalesce("published_us", "at_us")
    return (
        events.select(F.col(ROW_ATTRIBUTE).alias("row"), F.struct("offset", at_us.alias("published_us")).alias("event"))
        .where("row is not null")
        .groupBy("row")
        .agg(F.min("event").alias("event"))
        .select("row", "event.*")
    )


def expected_facts(expected: DataFrame, taken: DataFrame) -> DataFrame:
    """One fact for each row that a traveller should receive: delivered or lost."""
    got = taken.select("user", "row", F.lit(1).alias("delivered")).distinct()
    delivered = F.coalesce("delivered", F.lit(0))
    return (
        expected.select("user", "row")
        .distinct()
        .join(got, ["user", "row"], "left")
        .select("user", F.lit(1).alias("expected"), delivered.alias("delivered"), (1 - delivered).alias("lost"))
    )


def taking_facts(taken: DataFrame, expected: DataFrame, rows: DataFrame) -> DataFrame:
    """One fact for each taking: repeated, unexpected, out of order, and how long the event was under way.

    Order is judged between first takings, by the place in the log: a row that was never published has none.
    """
    due = expected.select("user", "row", F.lit(True).alias("due")).distinct()
    nth = F.row_number().over(Window.partitionBy("user", "row").orderBy("seq"))
    known = taken.withColumn("first", nth == 1).join(due, ["user", "row"], "left").join(rows, "row", "left")
    earlier = Window.partitionBy("user").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    latest_before = F.max(F.when(F.col("first"), F.col("offset"))).over(earlier)
    first = F.col("first")
    return known.select(
        "user",
        _one_if(~first).alias("repeated"),
        _one_if(first & F.col("due").isNull()).alias("unexpected"),
        _one_if(first & (F.col("offset") < latest_before)).alias("out_of_order"),
        F.when(first, (F.col("at_us") - F.col("published_us")) / 1_000).alias("latency_ms"),
    )


def move_facts(moves: DataFrame) -> DataFrame:
    """One fact for each move: whether and how soon notifications came again."""
    return moves.select(
        "user",
        F.lit(1).alias("moves"),
        _one_if(F.col("healed_us").isNotNull()).alias("healed"),
        ((F.col("healed_us") - F.col("moved_us")) / 1_000).alias("healing_ms"),
    )


def away_facts(away: DataFrame) -> DataFrame:
    """One fact for each time away; where two overlap, the common part counts once."""
    before = Window.partitionBy("user").orderBy("from_us", "to_us").rowsBetween(Window.unboundedPreceding, -1)
    begins = F.greatest("from_us", F.max("to_us").over(before))
    return away.select("user", (F.greatest(F.col("to_us") - begins, F.lit(0)) / 1_000_000).alias("away_s"))


def notified_facts(notifications: DataFrame, travellers: DataFrame) -> DataFrame:
    """One fact for each notification that was generated for a traveller of the evidence."""
    return notifications.join(travellers, "user", "left_semi").select("user", F.lit(1).alias("notified"))


def journey_rows(facts: list[DataFrame]) -> DataFrame:
    """Sum up the facts for each traveller, and in the row without a user for all of them."""
    every = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), facts)
    return (
        every.rollup("user")
        .agg(
            F.grouping("user").alias("everyone"),
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS),
            F.coalesce(F.sum("away_s"), F.lit(0.0)).alias("away_s"),
            *_percentiles("healing"),
            *_percentiles("latency"),
        )
        .orderBy(F.desc("everyone"), "user")
    )


def latency_buckets(facts: DataFrame) -> DataFrame:
    """Count deliveries in buckets of growing width; latencies within a millisecond share the first bucket."""
    octave = F.log2(F.greatest("latency_ms", F.lit(1.0))) * LATENCY_BUCKETS_PER_OCTAVE
    return (
        facts.where("latency_ms is not null")
        .groupBy(F.ceil(octave).alias("bucket"))
        .agg(F.count("*").alias("deliveries"))
        .orderBy("bucket")
    )


def journeys(spark: SparkSession, lake_dir: Path, evidence_dir: Path, subject: str) -> JourneysResult:
    """Read the lake and the evidence, and return the result of every traveller for the events of ``subject``.

    Raises ``StorageError``, in one line, when a file of the evidence is missing or has lines that cannot be used.
    """
    evidence = {name: read_evidence(spark, evidence_dir, name) for name in EVIDENCE_SCHEMAS}
    expected, taken = evidence["expected"], evidence["taken"]
    with plain_errors():
        events, notifications = (
            table(spark, lake_dir, name, conditions=[("subject", "=", subject)]).where(F.col("subject") == subject)
            for name in ("events", "notifications")
        )
        users = reduce(DataFrame.union, [lines.select("user") for lines in evidence.values()]).distinct()
        takings = taking_facts(taken, expected, published_rows(events)).cache()
        facts = [
            expected_facts(expected, taken),
            takings,
            move_facts(evidence["moves"]),
            away_facts(evidence["away"]),
            notified_facts(notifications, users),
        ]
        rows = journey_rows(facts).collect()
        result = JourneysResult(
            subject=subject,
            published=events.count(),
            totals=Journey(**_measures(rows[0] if rows else None)),
            travellers=tuple(Traveller(user=row["user"], **_measures(row)) for row in rows[1:]),
            latency=tuple(_bucket(row) for row in latency_buckets(takings).collect()),
        )
        takings.unpersist()
        return result


def read_evidence(spark: SparkSession, evidence_dir: Path, name: str) -> DataFrame:
    """Return the evidence file ``name`` as a table; ``StorageError`` if it is missing or has unusable lines."""
    path = evidence_dir / f"{name}.jsonl"
    if not path.is_file():
        raise StorageError(f"{path} is missing: it belongs to the evidence of a run")
    schema = EVIDENCE_SCHEMAS[name]
    columns = [part.split()[0] for part in schema.split(", ")]
    lines = spark.read.schema(schema).json(str(path))
    required = [column for column in columns if column != "healed_us"]
    unusable = lines.where(" or ".join(f"{column} is null" for column in required)).count()
    if unusable:
        raise StorageError(f"{path} has {unusable} lines that cannot be used; each needs {', '.join(required)}")
    return lines


def _one_if(condition: Column) -> Column:
    return F.when(condition, 1).otherwise(0)


def _percentiles(measure: str) -> list[Column]:
    column = f"{measure}_ms"
    return [
        F.percentile(column, 0.5).alias(f"{measure}_p50_ms"),
        F.percentile(column, 0.95).alias(f"{measure}_p95_ms"),
        F.max(column).alias(f"{measure}_max_ms"),
    ]


def _measures(row: Row | None) -> dict[str, Any]:
    """The measures of one row of :func:`journey_rows`; without any fact there is none, not even a total."""
    found = {} if row is None else row.asDict()
    empty: dict[str, Any] = dict.fromkeys(COUNTS, 0) | {"away_s": 0.0}
    return {name: found.get(name, empty.get(name)) for name in Journey.__struct_fields__}


def _bucket(row: Row) -> LatencyBucket:
    up_to = int(row["bucket"])
    above_ms = 0.0 if up_to <= 0 else 2 ** ((up_to - 1) / LATENCY_BUCKETS_PER_OCTAVE)
    return LatencyBucket(
        above_ms=above_ms, up_to_ms=2 ** (up_to / LATENCY_BUCKETS_PER_OCTAVE), deliveries=row["deliveries"]
    )
