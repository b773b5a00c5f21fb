"""The job log → lake: one streaming query, whose batches bring every table up to the same offset (SPEC T-03).

Each table records in its commits up to which offset it has the log. A batch skips the tables that have it, and a table
takes the rows from its own offset on. So a job may be killed anywhere and started again, with the checkpoint of the
query or, from the begin of the log, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.streaming.query import StreamingQuery

from wanderbus.errors import StorageError, WanderbusError
from wanderbus.pipeline.lake.compaction import SMALL_FILES_MAX, compact
from wanderbus.pipeline.lake.delta import LakeFile, LakeTable, committed
from wanderbus.pipeline.lake.event_rows import (
    EVENT_KINDS,
    NOTIFICATION_KINDS,
    event_decoder,
    notification_decoder,
)
from wanderbus.pipeline.lake.lifetimes import CHANGES, SUBSCRIPTION_KINDS, change_decoder, lifetimes
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.quality import REJECTED, TableCounts, counted, judged, observed, require
from wanderbus.pipeline.lake.quarantine import quarantine_rows
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.lake.records import ERROR, Decode, decoded, decoded_records, records_between
from wanderbus.pipeline.lake.registration import EXPIRES_S, register_lake
from wanderbus.pipeline.lake.schema_rows import SCHEMA_KINDS, declared_in, schema_decoder
from wanderbus.pipeline.lake.session_rows import DELIVERY_KINDS, SESSION_KINDS, delivery_decoder, session_decoder
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.tables import QUARANTINE, RECORDS, SCHEMAS, SUBSCRIPTIONS, TABLES, Table, named
from wanderbus.pipeline.tables.catalogue import EVENTS
from wanderbus.pipeline.tables.declared import Declared, events_table
from wanderbus.pipeline.tables.schemas import columns_in

LakeCounts = dict[str, TableCounts]
"""Counts of a job, by table."""

BRONZE: Final = ("records",)
"""The tables of a lake without decoded records."""

KINDS: Final = (EVENT_KINDS, NOTIFICATION_KINDS, DELIVERY_KINDS, SESSION_KINDS, SUBSCRIPTION_KINDS, SCHEMA_KINDS)
"""The kinds of record that silver tables are made of; the first of each names them in observations."""

_FIRST, _END = "first_offset", "end_offset"


class Silver(NamedTuple):
    """A silver table that each record adds rows to: the kinds of record, and the maker of their decoder."""

    table: Table
    kinds: tuple[str, ...]
    make_decode: Callable[[], Decode]


class Ingestion:
    """A job that brings the lake in ``lake`` up to the log in ``log``.

    The attributes that get columns are those of the schemas that the log declares, and of ``declared``, which is for
    logs whose declarations were removed before the lake began. ``has_silver`` is false for a lake with bronze tables
    alone. A partition with more than ``small_files_max`` small files is compacted. Retention keeps the records that the
    lake does not have yet, unless no job has run on it for ``reader_expires_s``; with None the lake does not register
    as a reader of the log. ``counts`` are those of the batches since the job began.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Path,
        lake: Path,
        *,
        declared: Declared | None = None,
        has_silver: bool = True,
        small_files_max: int = SMALL_FILES_MAX,
        reader_expires_s: float | None = EXPIRES_S,
    ) -> None:
        self._spark = spark
        self._log = log
        self._lake = lake
        self._declared = declared or {}
        self._has_silver = has_silver
        self._small_files_max = small_files_max
        self._reader_expires_s = reader_expires_s
        self.counts: LakeCounts = {}
        self.error: WanderbusError | None = None

    def start(
        self, checkpoint: Path, *, rows_per_batch: int | None = None, every_s: float | None = None
    ) -> StreamingQuery:
        """Start the query: up to the log's present end, or with ``every_s`` continuously until it is stopped."""
        self.register()
        records = self._spark.readStream.format(FORMAT).schema(log_schema()).option("path", str(self._log))
        if rows_per_batch is not None:
            records = records.option("maxRowsPerTrigger", str(rows_per_batch))
        trigger: dict[str, Any] = (
            {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
        )
        writer = records.load().writeStream.foreachBatch(self._on_batch).queryName("wanderbus-lake")
        return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()

    def register(self) -> None:
        """Register that the lake needs the records that a table of it lacks, and none before.

        Within a query, call it only between batches: Spark reads a batch again that it has not recorded as done.
        """
        if self._reader_expires_s is not None:
            register_lake(self._log, self._lake, self.end(), self._reader_expires_s)

    def end(self) -> int:
        """Return the offset up to which all tables of the lake have the log; its oldest record if one has nothing."""
        tables = [RECORDS, *(each for each in TABLES if each.layer == "silver" and self._has_silver)]
        found = [LakeTable(self._lake, each) for each in tables]
        if not all(each.exists for each in found):
            return LogFiles(self._log).oldest()
        identity = log_identity(self._log)
        ends = [committed(each.load(), _application(identity, each.table)) for each in found]
        return min(LogFiles(self._log).oldest() if end is None else end for end in ends)

    def store(self, rows: DataFrame) -> None:
        """Bring all tables up to the end of ``rows``: consecutive rows of the source, with its own columns."""
        identity = log_identity(self._log)
        LakeTable(self._lake, QUARANTINE).create(identity)
        first, end, kinds = self._store_records(rows, identity)
        if self._has_silver and first < end:
            schemas = Silver(SCHEMAS, SCHEMA_KINDS, schema_decoder)
            self._store_silver(schemas, identity, first, end, kinds[SCHEMA_KINDS[0]])
            for silver in self._silver():
                self._store_silver(silver, identity, first, end, kinds[silver.kinds[0]])
            self._store_subscriptions(identity, first, end, kinds[SUBSCRIPTION_KINDS[0]])
        self._compact()

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        try:
            self.register()  # Spark has recorded the batch before
            self.store(rows)
        except WanderbusError as error:
            self.error = error
            raise

    def _compact(self) -> None:
        """Bound the number of small files of each partition."""
        for each in TABLES:
            if LakeTable(self._lake, each).exists:
                compact(self._spark, self._lake, each, files_min=self._small_files_max + 1)

    def _silver(self) -> list[Silver]:
        declared = {**self._declared, **declared_in(self._lake)}
        found = LakeTable(self._lake, EVENTS)
        existing = columns_in(found.load().schema())[len(EVENTS.columns) :] if found.exists else ()
        columns = events_table(declared, existing)
        events = Silver(columns, EVENT_KINDS, event_decoder(declared, columns))
        types = {column.name: column.type for column in columns.columns}
        if any(types[column.name] != column.type for column in existing):
            self._rebuild(events)
        return [
            events,
            Silver(named("notifications"), NOTIFICATION_KINDS, notification_decoder),
            Silver(named("deliveries"), DELIVERY_KINDS, delivery_decoder),
            Silver(named("sessions"), SESSION_KINDS, session_decoder),
        ]

    def _rebuild(self, silver: Silver) -> None:
        """Decode the bronze records again, and replace all rows of a table; it then has the columns of ``silver``."""
        target = LakeTable(self._lake, silver.table)
        delta = target.load()
        end = committed(delta, _application(log_identity(self._log), silver.table)) or 0
        records = table(self._spark, self._lake, RECORDS.name, conditions=[("offset", "<", end)])
        records = records.where(F.col("kind").isin(list(silver.kinds)) & (F.col("offset") < end))
        rows = judged(decoded_records(records, silver.table, silver.make_decode), silver.table)
        target.commit(delta, target.write(rows.where(F.col(REJECTED).isNull())), replaces=True)

    def _store_records(self, rows: DataFrame, identity: str) -> tuple[int, int, Mapping[str, bool]]:
        """Store the bronze rows; return the range of the batch, and of which tables it has records."""
        target = LakeTable(self._lake, RECORDS)
        delta = target.create(identity)
        done = committed(delta, _application(identity, RECORDS))
        extent = Observation()
        rows = rows.coalesce(self._spark.sparkContext.defaultParallelism).observe(
            extent,
            F.min("offset").alias(_FIRST),
            (F.max("offset") + 1).alias(_END),
            *(F.bool_or(F.col("kind").isin(list(kinds))).alias(kinds[0]) for kinds in KINDS),
        )
        rows = rows.where(F.col("offset") >= (done or 0)).withColumn(ERROR, F.col("error.reason"))
        rows = rows.withColumn("date", F.to_date(F.timestamp_micros("at_us")))
        files, counts = self._written(target, rows)
        found = extent.get
        if found[_FIRST] is None:
            return 0, 0, {}
        first, end = int(found[_FIRST]), int(found[_END])
        self._require_no_gap(target, done, first)
        if done is None or done < end:
            self._commit(target, delta, identity, files, counts, max(first, done or 0), end)
        else:
            target.discard(files)
        return first, end, {kinds[0]: bool(found[kinds[0]]) for kinds in KINDS}

    def _store_silver(self, silver: Silver, identity: str, first: int, end: int, has_rows: bool) -> None:
        target = LakeTable(self._lake, silver.table)
        delta = target.create(identity)
        done = committed(delta, _application(identity, silver.table))
        self._require_no_gap(target, done, first)
        if done is not None and done >= end:
            return
        first = max(first, done or 0)
        files: list[LakeFile] = []
        counts = TableCounts()
        if has_rows:
            files, counts = self._written(target, self._decoded(silver, first, end))
        self._commit(target, delta, identity, files, counts, first, end, silver)

    def _store_subscriptions(self, identity: str, first: int, end: int, has_rows: bool) -> None:
        """Replace the live versions of subscriptions, and add those that have ended."""
        target = LakeTable(self._lake, SUBSCRIPTIONS)
        delta = target.create(identity)
        done = committed(delta, _application(identity, SUBSCRIPTIONS))
        self._require_no_gap(target, done, first)
        if done is not None and done >= end:
            return
        first = max(first, done or 0)
        files: list[LakeFile] = []
        removed: list[LakeFile] = []
        counts = TableCounts()
        silver = Silver(CHANGES, SUBSCRIPTION_KINDS, change_decoder)
        if has_rows:
            removed = [file for file in target.files(delta) if file.partition["is_live"] == "true"]
            changes = judged(self._decoded(silver, first, end), CHANGES)
            versions = lifetimes(target.rows(self._spark, removed), changes.where(F.col(REJECTED).isNull()))
            files, counts = self._written(target, versions)
            rejected = changes.where(F.col(REJECTED).isNotNull()).count()
            counts = counts + TableCounts(rejected=rejected)
        self._commit(target, delta, identity, files, counts, first, end, silver, removed)

    def _decoded(self, silver: Silver, first: int, end: int) -> DataFrame:
        return decoded(self._spark, self._log, first, end, silver.table, silver.kinds, silver.make_decode)

    def _written(self, target: LakeTable, rows: DataFrame) -> tuple[list[LakeFile], TableCounts]:
        """Write the rows that the table takes into files; return these, and the counts of all rows."""
        observation = Observation()
        rows = observed(judged(rows, target.table), target.table, observation)
        files = target.write(rows.where(F.col(REJECTED).isNull()))
        return files, counted(observation.get)

    def _commit(
        self,
        target: LakeTable,
        delta: Any,
        identity: str,
        files: list[LakeFile],
        counts: TableCounts,
        first: int,
        end: int,
        silver: Silver | None = None,
        removed: list[LakeFile] | None = None,
    ) -> None:
        """Commit the rejected rows to the quarantine, and then the table."""
        try:
            require(counts, target.table, f"{self._log}: records {first} to {end - 1}")
        except WanderbusError:
            target.discard(files)
            raise
        if counts.rejected:
            self._quarantine(target.table, identity, first, end, silver)
        application = _application(identity, target.table)
        target.commit(delta, files, removed=removed or [], application=application, end=end)
        self.counts[target.table.name] = self.counts.get(target.table.name, TableCounts()) + counts

    def _quarantine(self, table: Table, identity: str, first: int, end: int, silver: Silver | None) -> None:
        target = LakeTable(self._lake, QUARANTINE)
        delta = target.create(identity)
        application = f"{_application(identity, QUARANTINE)}/{table.name}"
        first = max(first, committed(delta, application) or 0)
        if first >= end:
            return
        columns = ("offset", "at_us", "kind", "user", "session", "device", "subject", "record", "error")
        records = records_between(self._spark, self._log, first, end, *columns)
        if silver is None:
            rows = records.withColumn(ERROR, F.col("error.reason"))
            rows = judged(rows.withColumn("date", F.to_date(F.timestamp_micros("at_us"))), table)
        else:
            rows = judged(self._decoded(silver, first, end), silver.table)
        rejected = rows.where(F.col(REJECTED).isNotNull())
        files = target.write(quarantine_rows(rejected, records, self._log, table.name))
        target.commit(delta, files, application=application, end=end)

    def _require_no_gap(self, target: LakeTable, done: int | None, first: int) -> None:
        have = LogFiles(self._log).oldest() if done is None else done
        if have < first:
            raise StorageError(
                f"{target.directory} has the log up to record {have}, but the checkpoint is at {first}: the checkpoint "
                "is of another lake; begin with a new checkpoint"
            )


def ingest(
    spark: SparkSession,
    log: Path,
    lake: Path,
    checkpoint: Path,
    *,
    rows_per_batch: int | None = None,
    declared: Declared | None = None,
    has_silver: bool = True,
) -> LakeCounts:
    """Bring the lake up to the log's durable mark and return the counts of what was added, by table.

    May be interrupted and called again. ``rows_per_batch`` bounds what one commit adds. Raises ``StorageError`` when
    the log cannot be read, and :class:`~wanderbus.pipeline.lake.quality.CheckFailed` when a check stops the job, both
    in one line.
    """
    job = Ingestion(spark, log, lake, declared=declared, has_silver=has_silver)
    with plain_errors():
        query = job.start(checkpoint, rows_per_batch=rows_per_batch)
        try:
            query.awaitTermination()
        except Exception:
            if job.error is not None:
                raise job.error from None
            raise
        finally:
            query.stop()
        job.register()
    return job.counts


def _application(identity: str, table: Table) -> str:
    """Return the application id of the commits of a log to a table."""
    return f"{identity}/{table.name}"
