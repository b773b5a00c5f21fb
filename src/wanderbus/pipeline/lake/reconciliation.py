"""Proof that the lake has the log: counts and checksums of both, segment by segment (SPEC T-03).

A checksum is the sum of the checksums of a segment's records, each computed over offset and bytes. So it does not
depend on the order, and notices records that are missing, repeated, changed or exchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.log_places import require_same_log
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.tables import QUARANTINE, RECORDS
from wanderbus.runtime.segment_files import durable_end

_OFFSET: Final = struct.Struct("<q")
_SUMS: Final = "segment bigint, records bigint, checksum bigint"


class RecordSums(msgspec.Struct, frozen=True):
    """Number and checksum of some records."""

    records: int = 0
    checksum: int = 0


class SegmentReport(msgspec.Struct, frozen=True):
    """One segment, by its first offset, in the log and in the lake."""

    segment: int
    log: RecordSums
    lake: RecordSums

    @property
    def differs(self) -> bool:
        """True if the lake does not have what the log has."""
        return self.log != self.lake


def reconcile(spark: SparkSession, log: Path, lake: Path) -> list[SegmentReport]:
    """Compare each segment that the log still has with the lake, as far as the lake has come.

    Raises ``LogReplaced`` if the log is not the one that the lake has read.
    """
    require_same_log(lake, log)
    end = min(durable_end(log), lake_end(log, lake))
    bases = [base for base in LogFiles(log).bases() if base < end]
    if not bases:
        return []
    of_log = segment_sums(records_between(spark, log, bases[0], end, "offset", "record"), bases)
    of_lake = segment_sums(lake_records(spark, log, lake, bases[0], end), bases)
    return [SegmentReport(base, of_log.get(base, RecordSums()), of_lake.get(base, RecordSums())) for base in bases]


def records_between(spark: SparkSession, log: Path, first: int, end: int, *columns: str) -> DataFrame:
    """Return the records ``first..end-1`` of the log."""
    rows = (
        spark.read.format(FORMAT)
        .schema(log_schema(*columns))
        .option("startingOffset", str(first))
        .load(str(log.absolute()))
    )
    return rows.where((F.col("offset") >= first) & (F.col("offset") < end))


def lake_end(log: Path, lake: Path) -> int:
    """Return the offset up to which the lake has the log; 0 if it has nothing yet."""
    target = LakeTable(lake, RECORDS)
    if not target.exists:
        return 0
    return committed(target.load(), application_of(log_identity(log), RECORDS)) or 0


def lake_records(spark: SparkSession, log: Path, lake: Path, first: int, end: int) -> DataFrame:
    """Return offset and bytes of the records ``first..end-1`` of a log in the lake, with those in the quarantine."""
    records = table(spark, lake, RECORDS.name).select("offset", "record")
    if LakeTable(lake, QUARANTINE).exists:
        unreadable = table(spark, lake, QUARANTINE.name).where(F.col("table") == RECORDS.name)
        records = records.unionByName(unreadable.select("offset", "record"))
    records = records.withColumn("offset", F.col("offset") - logs_in(lake).base(log_identity(log)))
    return records.where((F.col("offset") >= first) & (F.col("offset") < end))


def segment_sums(records: DataFrame, bases: Sequence[int]) -> dict[int, RecordSums]:
    """Return the sums of offset and record by segment; ``bases`` are the segments' first offsets."""

    def batches(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield batch_sums(part, bases)

    rows = records.mapInArrow(batches, _SUMS).groupBy("segment").agg(F.sum("records"), F.sum("checksum"))
    return {int(segment): RecordSums(int(count), int(checksum)) for segment, count, checksum in rows.collect()}


def batch_sums(part: pa.RecordBatch, bases: Sequence[int]) -> pa.RecordBatch:
    """Return the sums of one batch by segment."""
    offsets = part.column("offset").to_numpy()
    checksums = [
        crc32(_OFFSET.pack(offset) + (record or b""))
        for offset, record in zip(offsets.tolist(), part.column("record").to_pylist(), strict=True)
    ]
    segments = np.searchsorted(np.asarray(bases), offsets, side="right") - 1
    found = np.unique(segments)
    sums = [int(np.asarray(checksums, "i8")[segments == segment].sum()) for segment in found]
    counts = [int((segments == segment).sum()) for segment in found]
    arrays = [pa.array(values, pa.int64()) for values in ([bases[segment] for segment in found], counts, sums)]
    return pa.RecordBatch.from_arrays(arrays, names=["segment", "records", "checksum"])
