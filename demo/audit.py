"""Audit of a run on Spark: the evidence of every traveller's notifications, compared with the lake (SPEC T-08).

Evidence is four files of JSON lines, written by whoever ran the travellers (:data:`EVIDENCE_SCHEMAS`): the
events each should receive, those each took and in which order, its moves, and its times away. The lake says what was
published and notified. Every transform here turns its input into *facts*: one row per thing that happened, with the
traveller and the measures it counts towards; one aggregation then serves each traveller and all of them together.

An event is a subject and a row. Order is promised among the events of one engine: the server's, or Spark.

The counts add up: expected = delivered + lost, and takings = delivered + repeated + unexpected.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from demo import SUBJECTS
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import table
from wanderbus.pipeline.lake.quarantine import rejected_records
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.tables.declared import Declared

EVIDENCE_SCHEMAS: Final = {
    "expected": "user string, subject string, row bigint",
    "taken": "user string, subject string, seq bigint, row bigint, at_us bigint",
    "moves": "user string, moved_us bigint, healed_us bigint, address string",
    "away": "user string, from_us bigint, to_us bigint, why string",
}
"""Columns of the files of a run's evidence, ``<name>.jsonl``; only ``healed_us`` may be null: never healed."""

ROW_ATTRIBUTE: Final = "Row"
"""The attribute of an event that names its row in the input."""

EVENT: Final = ("subject", "row")
"""Columns that name an event."""

DECLARED: Final[Declared] = {subject: {ROW_ATTRIBUTE: "Integer"} for subject in SUBJECTS}
"""The attributes that get columns of their own in the lake."""

COUNTS: Final = (
    *("expected", "delivered", "lost", "repeated", "out_of_order", "unexpected"),
    *("notified", "moves", "healed"),
)
"""Measures that are summed; each is a field of :class:`Journey`."""


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one traveller, or of all together.

    ``delivered`` are expected events taken at least once, ``lost`` those never taken; ``repeated`` are takings beyond
    an event's first, ``unexpected`` events taken that were not expected. ``out_of_order`` are events whose first taking
    came after that of an event of the same engine published later. ``healing`` is the time from a move to the first
    sign that it had healed, in milliseconds, as exact percentiles; None if no move healed. ``latency`` is from the
    publisher's own clock (the broker's where it gives none) to the first taking, times away included.
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


class SubjectResult(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a subject in the lake, the engine that matched them, and the latency of their first takings."""

    subject: str
    engine: str
    published: int
    takings: int = 0
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_max_ms: float | None = None


class JourneysResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of :func:`journeys`; ``published`` counts the events of all subjects.

    ``quarantined_own_records`` counts the records of known kinds that tables of the lake rejected.
    """

    published: int
    quarantined_own_records: int
    totals: Journey
    travellers: tuple[Traveller, ...]
    subjects: tuple[SubjectResult, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, texts and numbers, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def published_events(events: DataFrame, engines: Mapping[str, str]) -> DataFrame:
    """Return ``subject, row, engine, offset, published_us`` of the first event of each subject and row.

    ``engines`` names the engine of each subject.
    """
    engine = F.create_map(*(F.lit(text) for pair in engines.items() for text in pair))[F.col("subject")]
    at_us = F.coalesce("published_us", "at_us")
    return (
        events.select(
            "subject",
            F.col(ROW_ATTRIBUTE).alias("row"),
            F.struct("offset", at_us.alias("published_us")).alias("event"),
        )
        .where("row is not null")
        .groupBy(*EVENT)
        .agg(F.min("event").alias("event"))
        .select(*EVENT, engine.alias("engine"), "event.*")
    )


def expected_facts(expected: DataFrame, taken: DataFrame) -> DataFrame:
    """One fact for each event that a traveller should receive: delivered or lost."""
    got = taken.select("user", *EVENT, F.lit(1).alias("delivered")).distinct()
    delivered = F.coalesce("delivered", F.lit(0))
    return (
        expected.select("user", *EVENT)
        .distinct()
        .join(got, ["user", *EVENT], "left")
        .select("user", F.lit(1).alias("expected"), delivered.alias("delivered"), (1 - delivered).alias("lost"))
    )


def taking_facts(taken: DataFrame, expected: DataFrame, events: DataFrame) -> DataFrame:
    """One fact for each taking: repeated, unexpected, out of order, and how long the event was under way.

    Order is judged between first takings of one engine, by the place in the log: an event that was never published has
    none. ``events`` are the :func:`published_events`.
    """
    due = expected.select("user", *EVENT, F.lit(True).alias("due")).distinct()
    nth = F.row_number().over(Window.partitionBy("user", *EVENT).orderBy("seq"))
    known = taken.withColumn("first", nth == 1).join(due, ["user", *EVENT], "left").join(events, [*EVENT], "left")
    earlier = Window.partitionBy("user", "engine").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    latest_before = F.max(F.when(F.col("first"), F.col("offset"))).over(earlier)
    first = F.col("first")
    return known.select(
        *("user", "subject"),
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


def subject_results(events: DataFrame, takings: DataFrame, engines: Mapping[str, str]) -> tuple[SubjectResult, ...]:
    """Return the result of each subject of ``engines``, in their order."""
    published = events.groupBy("subject").agg(F.count("*").alias("published"))
    taken = takings.groupBy("subject").agg(F.count("latency_ms").alias("takings"), *_percentiles("latency"))
    found = {row["subject"]: row.asDict() for row in published.join(taken, "subject", "left").collect()}
    results = []
    for subject, engine in engines.items():
        measures = {name: value for name, value in found.get(subject, {}).items() if value is not None}
        results.append(SubjectResult(**{"subject": subject, "published": 0, **measures, "engine": engine}))
    return tuple(results)


def journeys(spark: SparkSession, lake_dir: Path, evidence_dir: Path, engines: Mapping[str, str]) -> JourneysResult:
    """Read the lake and the evidence, and return the result of every traveller for the events of the demonstration.

    ``engines`` names the engine of each subject. Raises ``StorageError``, in one line, when a file of the evidence is
    missing or has lines that cannot be used.
    """
    evidence = {name: read_evidence(spark, evidence_dir, name) for name in EVIDENCE_SCHEMAS}
    expected, taken = evidence["expected"], evidence["taken"]
    with plain_errors():
        events, notifications = (
            table(spark, lake_dir, name).where(F.col("subject").isin(*engines)) for name in ("events", "notifications")
        )
        users = reduce(DataFrame.union, [lines.select("user") for lines in evidence.values()]).distinct()
        takings = taking_facts(taken, expected, published_events(events, engines)).cache()
        facts = [
            expected_facts(expected, taken),
            takings.drop("subject"),
            move_facts(evidence["moves"]),
            away_facts(evidence["away"]),
            notified_facts(notifications, users),
        ]
        rows = journey_rows(facts).collect()
        subjects = subject_results(events, takings, engines)
        takings.unpersist()
        return JourneysResult(
            published=sum(each.published for each in subjects),
            quarantined_own_records=sum(rejected_records(lake_dir).values()),
            totals=Journey(**_measures(rows[0] if rows else None)),
            travellers=tuple(Traveller(user=row["user"], **_measures(row)) for row in rows[1:]),
            subjects=subjects,
        )


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
