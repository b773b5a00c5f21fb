"""The job log → lake: one streaming query, whose batches bring every table up to the same offset (SPEC T-03).

Each table records in its commits up to which offset it has the log. A batch skips the tables that have it, and a table
takes the rows from its own offset on. So a job may be killed anywhere and started again, with the checkpoint of the
query or, from the begin of the log, without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.streaming.query import StreamingQuery

from wanderbus.errors import StorageError, WanderbusError
from wanderbus.pipeline.checkpoint import checkpoint_location
from wanderbus.pipeline.lake.compaction import SMALL_FILES_MAX, compact
from wanderbus.pipeline.lake.decoding import PassPlan, PassTarget, decode_bronze, decode_log
from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed
from wanderbus.pipeline.lake.event_rows import EVENT_KINDS, event_decoder
from wanderbus.pipeline.lake.lifetimes import CHANGES, SUBSCRIPTION_KINDS, change_decoder, lifetimes
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.log_places import adopt_checksums, checked_lake_place
from wanderbus.pipeline.lake.logs import add_logs, logs_in
from wanderbus.pipeline.lake.quality import TableCounts, require
from wanderbus.pipeline.lake.quarantine import rejections_of_log, replace_rejected
from wanderbus.pipeline.lake.records import Decoding
from wanderbus.pipeline.lake.registration import EXPIRES_S, register_lake
from wanderbus.pipeline.lake.schema_rows import SCHEMA_KINDS, declared_in, schema_decoder
from wanderbus.pipeline.lake.session_rows import DELIVERY_KINDS, SESSION_KINDS, delivery_decoder, session_decoder
from wanderbus.pipeline.lake.table_files import LakeFile, new_attempt
from wanderbus.pipeline.lake.writing import WrittenFiles
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.source.options import ROWS_PER_PARTITION
from wanderbus.pipeline.tables import QUARANTINE, RECORDS, SCHEMAS, SUBSCRIPTIONS, TABLES, TableSpecification, named
from wanderbus.pipeline.tables.declared import Declared, events_table
from wanderbus.pipeline.tables.schemas import columns_in
from wanderbus.pipeline.tables.silver import EVENTS
from wanderbus.segments import LogPlace

_log = logging.getLogger(__name__)

LakeCounts = dict[str, TableCounts]
"""Counts of a job, by table."""

DECODINGS: Final = (
    Decoding(DELIVERY_KINDS, delivery_decoder),
    Decoding(SESSION_KINDS, session_decoder),
    Decoding(SUBSCRIPTION_KINDS, change_decoder),
)
"""Decodings that do not depend on the declared attributes."""


class _Behind(NamedTuple):
    """A table that lacks the records of a batch from ``first`` on, and its version."""

    target: LakeTable
    delta: DeltaTable
    first: int


class Ingestion:
    """A job that brings the lake in ``lake`` up to the log in ``log``.

    The attributes that get columns are those of the schemas that the log declares, and of ``declared``, which is for
    logs whose declarations were removed before the lake began. ``has_silver`` is false for a lake with bronze tables
    alone. A partition with more than ``small_files_max`` small files is compacted. Retention keeps the records that the
    lake does not have yet, unless no job has run on it for ``reader_expires_s``; with None the lake does not register
    as a reader of the log. ``counts`` are those of the batches since the job began. Jobs on several logs have the lock
    ``storing`` in common: one of them changes the tables at a time.
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
        storing: threading.Lock | None = None,
    ) -> None:
        self._spark = spark
        self._log = log.absolute()
        self._files = LogFiles(self._log)  # its index of places grows with the log
        self._lake = lake
        self._declared = declared or {}
        self._has_silver = has_silver
        self._small_files_max = small_files_max
        self._reader_expires_s = reader_expires_s
        self._registered = LogPlace(0)
        self._storing = storing or threading.Lock()
        self._is_stopped = False
        self.counts: LakeCounts = {}
        self.error: Exception | None = None

    def start(
        self, checkpoint: Path, *, rows_per_batch: int | None = None, every_s: float | None = None
    ) -> StreamingQuery:
        """Start the query: up to the log's present end, or with ``every_s`` continuously until it is stopped."""
        with self._storing:
            self.register()
        records = self._spark.readStream.format(FORMAT).schema(log_schema("offset")).option("path", str(self._log))
        if rows_per_batch is not None:
            records = records.option("maxRowsPerTrigger", str(rows_per_batch))
        trigger: dict[str, Any] = (
            {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
        )
        writer = records.load().writeStream.foreachBatch(self._on_batch).queryName(f"wanderbus-lake {self._log}")
        return writer.option("checkpointLocation", checkpoint_location(checkpoint)).trigger(**trigger).start()

    def register(self) -> None:
        """Register that the lake needs the records that a table of it lacks, and none before.

        Within a query, call it only between batches: Spark reads a batch again that it has not recorded as done.
        Raises ``LogReplaced`` if the log does not have the records that the lake has read.
        """
        versions = self._versions()
        if versions:
            adopt_checksums(self._lake, self._files, log_identity(self._log), versions)
        self._registered = self._files.place(self._end_of(versions))
        self.refresh()

    def refresh(self) -> None:
        """Repeat the last registration, so that it does not expire while there is nothing to read."""
        if self._reader_expires_s is not None:
            register_lake(self._log, self._lake, self._registered, self._reader_expires_s)

    def stop(self, query: StreamingQuery, batch_s_max: float) -> None:
        """Stop the query between two batches, or after ``batch_s_max`` within one, which the next job repeats."""
        is_between = self._storing.acquire(timeout=batch_s_max)
        self._is_stopped = True
        try:
            query.stop()
        finally:
            if is_between:
                self._storing.release()

    def end(self) -> int:
        """Return the offset up to which all tables durably have the log; its oldest record if one has nothing."""
        return self._end_of(self._versions())

    def _versions(self) -> list[tuple[LakeTable, DeltaTable]]:
        """Return the tables that follow the log, as far as they exist, each with its newest version."""
        tables = [RECORDS, *(each for each in TABLES if each.layer == "silver" and self._has_silver)]
        return [(found, found.load()) for each in tables if (found := LakeTable(self._lake, each)).exists]

    def _end_of(self, versions: Sequence[tuple[LakeTable, DeltaTable]]) -> int:
        silver = sum(each.layer == "silver" for each in TABLES) if self._has_silver else 0
        if len(versions) <= silver:
            return self._files.oldest()
        identity = log_identity(self._log)
        for target, version in versions:
            target.sync_commit(version)
        ends = [committed(version, application_of(identity, target.table)) for target, version in versions]
        return min(self._files.oldest() if end is None else end for end in ends)

    def store(self, first: int, end: int) -> None:
        """Bring all tables up to offset ``end`` of the log; none may lack a record before ``first``."""
        if first >= end:
            return
        if not self._has_silver:
            self._bring((RECORDS,), (), first, end)
        else:
            self._bring((SCHEMAS,), (Decoding(SCHEMA_KINDS, schema_decoder),), first, end, *SCHEMA_KINDS)
            events, decoding = self._events()
            tables = (RECORDS, events, *map(named, ("notifications", "deliveries", "sessions", "subscriptions")))
            self._bring(tables, (decoding, *DECODINGS), first, end)
        self._compact()

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        with self._storing:
            if self._is_stopped:
                raise StorageError("the job was stopped before this batch")  # not returned: Spark would record it
            try:
                self.register()  # Spark has recorded the batch before
                first, last = rows.agg(F.min("offset"), F.max("offset")).collect()[0]
                if first is not None:
                    self.store(first, last + 1)
            except Exception as error:
                self.error = error
                raise

    def _compact(self) -> None:
        """Bound the number of small files of each partition."""
        for each in TABLES:
            if LakeTable(self._lake, each).exists:
                compact(self._spark, self._lake, each, files_min=self._small_files_max + 1)

    def _events(self) -> tuple[TableSpecification, Decoding]:
        """Return the table of events with the columns that are declared by now, and its decoding."""
        events, decoding, is_wider = declared_events(self._lake, self._declared)
        if is_wider:
            self._rebuild(events, decoding)
        return events, decoding

    def _rebuild(self, table: TableSpecification, decoding: Decoding) -> None:
        """Decode the bronze records again, and replace all rows of a table; it then has the columns of ``table``."""
        target, bronze = LakeTable(self._lake, table), LakeTable(self._lake, RECORDS)
        delta = target.load()
        plan = PassPlan(self._lake, new_attempt(), {table.name: PassTarget(table, 0, quarantined=0)}, (decoding,))
        paths, ends = bronze.paths(bronze.load()), ends_of(self._lake, delta, table)
        written = decode_bronze(self._spark, paths, ends, plan).get(table.name, WrittenFiles())
        target.commit(delta, written.files, misfits=written.counts.misfits, replaces=True)
        replace_rejected(self._lake, table, written.quarantine, own_ends(self._lake, ends))

    def _bring(
        self, tables: Sequence[TableSpecification], decodings: Sequence[Decoding], first: int, end: int, *mentioned: str
    ) -> None:
        """Bring tables up to ``end`` in one pass over the records, or over the parts of the log that mention a text."""
        identity = log_identity(self._log)
        logs = add_logs(self._lake, [identity])
        base = logs.base(identity)
        quarantine = LakeTable(self._lake, QUARANTINE).create(logs.first)
        behind = [found for table in tables if (found := self._behind(table, logs.first, identity, first, end))]
        if not behind:
            return
        targets: dict[str, PassTarget] = {}
        for target, _, own_first in behind:
            table = CHANGES if target.table is SUBSCRIPTIONS else target.table
            quarantined = committed(quarantine, rejections_of_log(identity, table)) or 0
            targets[table.name] = PassTarget(table, base + own_first, base + quarantined)
        wanted = [each for each in decodings if targets.keys() & set(each.kinds.values())]
        plan = PassPlan(self._lake, new_attempt(), targets, wanted)
        reached = self._files.place(end)
        parts = self._files.slices(min(each.first for each in behind), end, ROWS_PER_PARTITION)
        written = decode_log(self._spark, parts, base, plan, mentioned)
        removed: list[LakeFile] = []
        if SUBSCRIPTIONS.name in targets:
            removed = self._replace_versions(written)
        self._require(behind, written, reached)
        for each in behind:
            own = written.get(each.target.table.name, WrittenFiles())
            self._commit(each, identity, own, removed if each.target.table is SUBSCRIPTIONS else [], reached)

    def _behind(self, table: TableSpecification, first_log: str, identity: str, first: int, end: int) -> _Behind | None:
        target = LakeTable(self._lake, table)
        delta = target.create(first_log)
        done = committed(delta, application_of(identity, table))
        self._require_no_gap(target, done, first)
        return None if done is not None and done >= end else _Behind(target, delta, max(first, done or 0))

    def _replace_versions(self, written: dict[str, WrittenFiles]) -> list[LakeFile]:
        """Make versions of the changes of subscriptions that were written; return the files that they replace."""
        target = LakeTable(self._lake, SUBSCRIPTIONS)
        changes = written.get(SUBSCRIPTIONS.name, WrittenFiles())
        if not changes.files:
            return []
        live = [file for file in target.files(target.load()) if file.partition["is_live"] == "true"]
        versions = write_versions(self._spark, target, live, changes.files)
        rejected = TableCounts(rejected=changes.counts.rejected)
        written[SUBSCRIPTIONS.name] = WrittenFiles(versions.files, changes.quarantine, versions.counts + rejected)
        return live

    def _require(self, behind: Sequence[_Behind], written: Mapping[str, WrittenFiles], reached: LogPlace) -> None:
        """Remove all files if rows do not meet a check that stops the job, or the log was replaced meanwhile."""
        try:
            checked_lake_place(self._lake, self._files, reached)
            for target, _, first in behind:
                counts = written.get(target.table.name, WrittenFiles()).counts
                require(counts, target.table, f"{self._log}: records {first} to {reached.offset - 1}")
        except WanderbusError:
            for target, _, _ in behind:
                own = written.get(target.table.name, WrittenFiles())
                target.discard(own.files)
                LakeTable(self._lake, QUARANTINE).discard(own.quarantine)
            raise

    def _commit(
        self, behind: _Behind, identity: str, written: WrittenFiles, removed: list[LakeFile], reached: LogPlace
    ) -> None:
        """Commit the rejected rows to the quarantine, and then the table."""
        table = behind.target.table
        if written.quarantine:
            quarantine = LakeTable(self._lake, QUARANTINE)
            rejections = rejections_of_log(identity, table)
            quarantine.commit(quarantine.load(), written.quarantine, ends={rejections: reached})
        ends, misfits = {application_of(identity, table): reached}, written.counts.misfits
        behind.target.commit(behind.delta, written.files, removed=removed, ends=ends, misfits=misfits)
        self.counts[table.name] = self.counts.get(table.name, TableCounts()) + written.counts
        if written.counts.rejected and table.name != RECORDS.name:
            _log.warning(
                "%s: %d records up to record %d of %s rejected; the table quarantine of the lake has the reasons",
                table.name,
                written.counts.rejected,
                reached.offset - 1,
                self._log,
            )

    def _require_no_gap(self, target: LakeTable, done: int | None, first: int) -> None:
        have = self._files.oldest() if done is None else done
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
    reader_expires_s: float | None = EXPIRES_S,
) -> LakeCounts:
    """Bring the lake up to the log's durable mark and return the counts of what was added, by table.

    May be interrupted and called again. ``rows_per_batch`` bounds what one commit adds. With ``reader_expires_s`` None
    the lake does not register as a reader of the log. Raises ``StorageError`` when
    the log cannot be read, and :class:`~wanderbus.pipeline.lake.quality.CheckFailed` when a check stops the job, both
    in one line.
    """
    job = Ingestion(spark, log, lake, declared=declared, has_silver=has_silver, reader_expires_s=reader_expires_s)
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


def declared_events(lake: Path, declared: Declared) -> tuple[TableSpecification, Decoding, bool]:
    """Return the table of events with the columns that are declared by now, and its decoding.

    The columns are those of the schemas in the lake, and of ``declared``. The last item is true if a column that the
    lake has gets a wider type.
    """
    declared = {**declared, **declared_in(lake)}
    found = LakeTable(lake, EVENTS)
    existing = columns_in(found.load().schema())[len(EVENTS.columns) :] if found.exists else ()
    events = events_table(declared, existing)
    types = {column.name: column.type for column in events.columns}
    is_wider = any(types[column.name] != column.type for column in existing)
    return events, Decoding(EVENT_KINDS, event_decoder(declared, events, logs_in(lake).bases)), is_wider


def ends_of(lake: Path, delta: DeltaTable, table: TableSpecification) -> dict[int, int]:
    """Return up to which lake offset a version of a table has the records of each log, by the base of the log."""
    return {
        base: base + (committed(delta, application_of(identity, table)) or 0)
        for identity, base in logs_in(lake).bases.items()
    }


def own_ends(lake: Path, ends: Mapping[int, int]) -> dict[str, LogPlace]:
    """Return the ends of :func:`ends_of` as places in each log, by the identity of the log."""
    return {identity: LogPlace(ends[base] - base) for identity, base in logs_in(lake).bases.items()}


def write_versions(
    spark: SparkSession, target: LakeTable, live: Sequence[LakeFile], changes: Sequence[LakeFile]
) -> WrittenFiles:
    """Write the versions of subscriptions that follow from the ``live`` ones and ``changes``, which are discarded."""
    rows = LakeTable(target.lake, CHANGES).rows(spark, changes)
    versions = target.write(lifetimes(target.rows(spark, live), rows))
    target.discard(changes)
    return versions
