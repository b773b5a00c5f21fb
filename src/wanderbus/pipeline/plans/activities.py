"""Activity of each subject: its events, their notifications, and their bytes in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.errors import StorageError
from wanderbus.pipeline.history.domain_lakes import DomainLake, lakes_of, passing_users
from wanderbus.pipeline.history.lakes_events import counting, repeated_rows
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.source.partial_records import DeliveryRecord
from wanderbus.pipeline.workers import settle
from wanderbus.planning import Activity

_COUNTS: Final = "subject string, events bigint, notifications bigint, log_bytes bigint"


class ActivityPeriod(NamedTuple):
    """Time from a bound up to another, in microseconds since the Unix epoch; None is no bound."""

    from_us: int | None = None
    to_us: int | None = None

    def of_rows(self, rows: DataFrame) -> DataFrame:
        """Return the rows within the bounds."""
        if self.from_us is not None:
            rows = rows.where(rows["at_us"] >= self.from_us)
        return rows if self.to_us is None else rows.where(rows["at_us"] < self.to_us)


EVER: Final = ActivityPeriod()


def lake_activities(
    spark: SparkSession, lake: Path | Sequence[DomainLake], period: ActivityPeriod = EVER
) -> dict[str, Activity]:
    """Return the activity by subject in a lake, or in several: an event counts once, in the record that counts there.

    Notifications of several lakes are those of users, not those on the way to another one of these domains.
    ``StorageError`` if there is no lake.
    """
    lakes = lakes_of(lake)
    repeated = None
    if len(lakes) > 1:
        repeated = repeated_rows([table(spark, each.path, "events") for each in lakes], lakes).persist()
    counts = [_counts_in(spark, each, lakes, period, repeated) for each in lakes]
    found = _by_subject(reduce(DataFrame.unionByName, counts))
    if repeated is not None:
        repeated.unpersist()
    return found


def _counts_in(
    spark: SparkSession,
    lake: DomainLake,
    lakes: Sequence[DomainLake],
    period: ActivityPeriod,
    repeated: DataFrame | None,
) -> DataFrame:
    """Return counts of the events and of the notifications in one of the ``lakes``, without ``repeated`` rows."""
    records = period.of_rows(table(spark, lake.path, "records")).where("kind = 'published'")
    if repeated is not None:
        records = counting(records, repeated, lake)
    events = records.groupBy("subject").agg(
        F.count("*").alias("events"),
        F.lit(0).alias("notifications"),
        F.sum(F.octet_length("record")).alias("log_bytes"),
    )
    notified = period.of_rows(table(spark, lake.path, "notifications"))
    notifications = (
        notified.where(~F.col("user").isin(passing_users(lake, lakes)))
        .groupBy("subject")
        .agg(F.lit(0).alias("events"), F.count("*").alias("notifications"), F.lit(0).alias("log_bytes"))
    )
    return events.unionByName(notifications)


def log_activities(records: DataFrame, period: ActivityPeriod = EVER) -> dict[str, Activity]:
    """Return the activity by subject in records of the source, with ``at_us``, ``kind``, ``subject`` and ``record``."""
    events = period.of_rows(records).where("kind = 'published'").select("subject", "record")
    return _by_subject(events.mapInArrow(_counted, _COUNTS))


def _by_subject(counts: DataFrame) -> dict[str, Activity]:
    names = Activity.__struct_fields__
    rows = counts.groupBy("subject").agg(*(F.sum(name).alias(name) for name in names)).collect()
    return {row["subject"]: Activity(**{name: row[name] for name in names}) for row in rows}


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    decode = msgspec.msgpack.Decoder(DeliveryRecord).decode
    settle()
    for batch in batches:
        records = batch.column("record")
        try:
            notifications = [len(decode(each).delivery.notified) for each in records.to_pylist()]
        except msgspec.DecodeError as error:
            raise StorageError(f"a record of an event cannot be read: {error}") from None
        columns = [
            batch.column("subject"),
            pa.array([1] * len(batch), pa.int64()),
            pa.array(notifications, pa.int64()),
            pc.binary_length(records).cast(pa.int64()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["subject", "events", "notifications", "log_bytes"])
