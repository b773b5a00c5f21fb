"""Ingestion from the event log to the lake: typed Parquet, partitioned by kind and date, every record once (SPEC T-03).

Transforms are ``DataFrame -> DataFrame`` and know no files; :func:`ingest` is the job: read, transform, write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.schemas import LAKE_SCHEMA
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source import FORMAT, log_schema

PARTITION_COLUMNS = ("kind", "date")
"""Columns that are directories of the lake, outermost first; ``date`` is the day of ``at_us`` in UTC."""

_FIELDS = """
    epoch bigint, number bigint, first bigint, last bigint, reason string, status string, address string,
    acceptance struct<id: array<string>, epoch: bigint, number: bigint>,
    delivery struct<notified: array<array<string>>>
"""

RECORD_COLUMNS: Final = (
    *("offset", "at_us", "kind", "user", "session", "device", "subject", "published_us", "attributes", "json"),
)
"""Columns of the source from which the lake is made."""


def lake_rows(records: DataFrame) -> DataFrame:
    """Turn rows of the source, with :data:`RECORD_COLUMNS`, into rows of the lake."""
    fields = F.from_json("json", _FIELDS)
    return records.withColumn("fields", fields).select(
        "offset",
        "at_us",
        "user",
        "session",
        "device",
        "subject",
        _event_id().alias("event_id"),
        *(F.coalesce(f"fields.acceptance.{name}", f"fields.{name}").alias(name) for name in ("epoch", "number")),
        *(f"fields.{name}" for name in ("first", "last", "reason", "status", "address")),
        "published_us",
        "attributes",
        _notified().alias("notified"),
        F.col("json").alias("record"),
        "kind",
        F.to_date(F.timestamp_micros("at_us")).alias("date"),
    )


def _event_id() -> Column:
    """Return the text form of an event's id (:class:`wanderbus.event.EventId`)."""
    origin, incarnation, number = (F.col("fields.acceptance.id")[place] for place in range(3))
    return F.concat(origin, F.lit("-"), F.lower(F.conv(incarnation, 10, 36)), F.lit("-"), number)


def _notified() -> Column:
    """Return the notifications of an event: in JSON they are mixed arrays, which Spark reads as texts."""
    return F.transform(
        "fields.delivery.notified",
        lambda item: F.struct(
            item[0].alias("user"),
            item[1].alias("session"),
            item[2].cast("bigint").alias("number"),
            F.from_json(item[3], "array<string>").alias("subscriptions"),
        ),
    )


def published(lake: DataFrame, subject: str) -> DataFrame:
    """Keep the events published under ``subject``."""
    return lake.where((F.col("kind") == "published") & (F.col("subject") == subject))


def notifications(lake: DataFrame) -> DataFrame:
    """Return one row per notification generated: the event's offset, and the user, session and number notified."""
    return lake.select("offset", "at_us", "subject", F.explode("notified").alias("notified")).select(
        "offset", "at_us", "subject", "notified.*"
    )


def read_lake(spark: SparkSession, lake_dir: Path) -> DataFrame:
    """Return the lake in ``lake_dir``: exactly the records whose ingestion was completed."""
    return spark.read.schema(LAKE_SCHEMA).parquet(str(lake_dir))


def ingest(
    spark: SparkSession,
    log_dir: Path,
    lake_dir: Path,
    checkpoint_dir: Path,
    *,
    rows_per_batch: int | None = None,
) -> int:
    """Bring the lake up to the log's durable mark and return how many rows were added.

    May be interrupted and called again: ``checkpoint_dir`` holds how far it came, the lake's own index which files
    count, and every record is in the lake once. ``rows_per_batch`` bounds what one commit adds. Raises
    ``LogCorrupt`` or ``StorageError``, in one line, when the log cannot be read.
    """
    with plain_errors():
        records = spark.readStream.format(FORMAT).schema(log_schema(*RECORD_COLUMNS))
        records = records.option("path", str(log_dir)).option("mode", "failfast")
        if rows_per_batch is not None:
            records = records.option("maxRowsPerTrigger", str(rows_per_batch))
        query = (
            lake_rows(records.load())
            .writeStream.format("parquet")
            .partitionBy(*PARTITION_COLUMNS)
            .option("path", str(lake_dir))
            .option("checkpointLocation", str(checkpoint_dir))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return sum(int(progress["numInputRows"]) for progress in query.recentProgress)
