"""Detections of a pattern in the records of a growing log, as a streaming query (SPEC T-07, S-06; decision 0078).

Events are classified as past ones are, a batch of records at a time. What takes part is packed into one row for each
bucket of keys, and the automaton's state for the bucket is in Spark's store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from wanderbus.patterns import Pattern, Seen
from wanderbus.pipeline.patterns.bucket_states import NO_BUCKET, OUTCOMES, BucketStates, bucket_of
from wanderbus.pipeline.patterns.spark_time import to_spark_us
from wanderbus.pipeline.patterns.taking_part import compiled, seen_in, text_of
from wanderbus.pipeline.workers import settle

COLUMNS: Final = ("offset", "at_us", "kind", "subject", "record")
"""Columns of the log's records that are needed."""

_PACKED: Final = "bucket int, at timestamp, seen binary"
_SCHEMA: Final = pa.schema([("bucket", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("seen", pa.binary())])

_encode: Final = msgspec.msgpack.Encoder().encode


def live_outcomes(records: DataFrame, pattern: Pattern) -> DataFrame:
    """Return the outcomes of a pattern in a stream of the log's records, with the columns :data:`OUTCOMES`.

    ``records`` has the columns :data:`COLUMNS`, of records of every kind. The watermark is the latest time of the
    batches before, less the pattern's lateness: with receipt time, that of any record; else that of events that take
    part. The query runs in the output mode ``append``.
    """
    wanted = text_of(pattern)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = compiled(wanted)
        settle()
        return (packed(own, batch) for batch in batches)

    rows = records.select(*COLUMNS).mapInArrow(work, _PACKED)
    lateness_ms = -(-pattern.lateness_us // 1_000)
    # Without the column of times behind the watermark, Spark drops no late rows: the automaton counts them.
    timed = rows.withWatermark("at", f"{lateness_ms} milliseconds").select("bucket", "seen")
    return timed.groupBy("bucket").transformWithState(BucketStates(wanted), OUTCOMES, "append", "eventTime")


def packed(pattern: Pattern, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row for each bucket with events of these records that take part, and one for the watermark."""
    events = records.filter(pc.fill_null(pc.equal(records.column("kind"), "published"), False))
    found = seen_in(pattern, events) if len(events) else []
    latest_us = _latest_us(pattern, records, found)
    if latest_us is None:
        return _rows([], 0)
    buckets: dict[int, list[Seen]] = {}
    for seen in found:
        buckets.setdefault(bucket_of(seen.key), []).append(seen)
    rows: list[tuple[int, bytes | None]] = [(bucket, _encode(several)) for bucket, several in buckets.items()]
    return _rows(rows or [(NO_BUCKET, None)], latest_us)


def _latest_us(pattern: Pattern, records: pa.RecordBatch, found: Sequence[Seen]) -> int | None:
    """Return the latest time that these records show, at most that of receipt; None if they show none."""
    if pattern.declaration.time_source == "receipt":
        latest: int | None = pc.max(records.column("at_us")).as_py()
        return latest
    received_us = dict(zip(*(records.column(name).to_pylist() for name in ("offset", "at_us")), strict=True))
    return max((min(seen.time_us, received_us[seen.offset]) for seen in found), default=None)


def _rows(rows: Sequence[tuple[int, bytes | None]], latest_us: int) -> pa.RecordBatch:
    buckets, seen = [bucket for bucket, _ in rows], [each for _, each in rows]
    columns = (buckets, [to_spark_us(latest_us)] * len(rows), seen)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
