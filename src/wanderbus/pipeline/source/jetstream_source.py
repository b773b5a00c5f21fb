"""Records in a stream of NATS JetStream as a Spark data source: ``format("wanderbus-jetstream")`` (SPEC T-02).

A message is the bytes of one record, and its sequence number is the record's offset; the columns are those of the log.

Options: ``url``, the server's address; ``stream``; ``startingOffset``, ``maxRowsPerTrigger``, ``rowsPerPartition`` and
``mode`` as for the log. Without frames there is no time before decoding: filters on ``at_us`` choose rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.pipeline.source.columns import READ_DEFAULT, check_schema, log_schema
from wanderbus.pipeline.source.jetstream import Extent, checksum_before, extent, messages, place_of
from wanderbus.pipeline.source.options import OptionError, StreamOptions
from wanderbus.pipeline.source.places import REMEDY, Offset, stored
from wanderbus.pipeline.source.pushdown import Pushed
from wanderbus.pipeline.source.rows import BatchBuilder, RecordRows
from wanderbus.runtime.log_place import compared_place
from wanderbus.segments import LogPlace

JETSTREAM_FORMAT: Final = "wanderbus-jetstream"
"""Name of the source in Spark."""


class JetStreamSource(DataSource):
    """Data source for ``spark.dataSource.register``."""

    @classmethod
    def name(cls) -> str:
        """Return the name to use with ``format``."""
        return JETSTREAM_FORMAT

    def schema(self) -> StructType:
        """Return the columns of a record, without a choice of columns."""
        return log_schema(*READ_DEFAULT)

    def reader(self, schema: StructType) -> JetStreamReader:
        """Return the reader of everything that the stream has at the time of planning."""
        return JetStreamReader(StreamOptions.parse(self.options, JETSTREAM_FORMAT), schema)

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a stream."""
        return JetStreamStreamReader(StreamOptions.parse(self.options, JETSTREAM_FORMAT), schema)


class FilteringJetStreamSource(JetStreamSource):
    """The same source with pushdown, for a session with ``spark.sql.python.filterPushdown.enabled``."""

    def reader(self, schema: StructType) -> FilteringJetStreamReader:
        """Return the reader of what the filters leave."""
        return FilteringJetStreamReader(StreamOptions.parse(self.options, JETSTREAM_FORMAT), schema)


class JetStreamReader(DataSourceReader):
    """Batch: the messages from ``startingOffset`` to the last one."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = check_schema(schema)
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        there = extent(self._options)
        first, end = _first_offset(self._options, there), there.end
        least, most = self._pushed.bounds("offset")
        first = first if least is None else max(first, least)
        return _partitions(self._options, first, end if most is None else min(end, most + 1), there)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``partition`` as Arrow batches."""
        return _batches(partition, self._options, self._schema, self._pushed)


class FilteringJetStreamReader(JetStreamReader):
    """Batch with pushdown: messages are chosen by sequence number, rows by all columns but the bytes."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over what the source can check; return the filters left to Spark."""
        self._pushed, left = Pushed.parse(filters)
        return left


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream: each message in exactly one micro-batch.

    ``{"offset": n, "checksum": c}`` is the next sequence number to read, and the checksum of the message before.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = check_schema(schema)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the start offset of a query without a checkpoint."""
        return stored(self._place(_first_offset(self._options, extent(self._options))))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size of one micro-batch, by the options."""
        return ReadMaxRows(self._options.rows_max) if self._options.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of an available-now query: messages that come later are for the next query."""
        self._target = extent(self._options).end

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the end of the stream, for the query's progress figures."""
        return {"offset": extent(self._options).end}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch; ``LogReplaced`` if the stream is not the one of this checkpoint."""
        there = extent(self._options)
        place = self._checked(start, there)
        first, end = place.offset, there.end if self._target is None else self._target
        end = min(end, first + limit.max_rows) if isinstance(limit, ReadMaxRows) else end
        return stored(place if end <= first else self._place(end))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return one partition per task for the messages from ``start`` up to ``end``.

        Raises ``LogReplaced`` if the stream is not the one of this checkpoint, which may have planned the batch before.
        """
        there = extent(self._options)
        for each in (start, end):
            self._checked(each, there)
        return _partitions(self._options, start["offset"], end["offset"], there)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``partition`` as Arrow batches."""
        return _batches(partition, self._options, self._schema, Pushed())

    def _place(self, sequence: int) -> LogPlace:
        return LogPlace(sequence, checksum_before(self._options, sequence))

    def _checked(self, offset: Offset, there: Extent) -> LogPlace:
        place = LogPlace(**offset)
        found = checksum_before(self._options, place.offset) if place.offset <= there.end else None
        name = place_of(self._options)
        return compared_place(place, there.end, found, name=name, reader="the checkpoint", remedy=REMEDY)


def _first_offset(options: StreamOptions, there: Extent) -> int:
    match options.starting_offset:
        case int(offset):
            if offset > there.end:
                raise OptionError(f"startingOffset {offset} is beyond the end of {place_of(options)}, {there.end}")
            return offset
        case "latest":
            return there.end
        case _:
            return there.first


def _partitions(options: StreamOptions, first: int, end: int, there: Extent) -> list[InputPartition]:
    if first >= end:
        return []
    if first < there.first:
        raise StorageError(
            f"{place_of(options)} no longer has message {first}: the oldest kept is {there.first}; "
            "begin with a new checkpoint"
        )
    step = options.rows_per_partition
    return [InputPartition((low, min(low + step, end))) for low in range(first, end, step)]


def _batches(
    partition: InputPartition, options: StreamOptions, schema: StructType, pushed: Pushed
) -> Iterator[pa.RecordBatch]:
    """Yield the content of ``partition``; Spark plans a partition without a value when there is nothing to read."""
    if partition.value is None:
        return
    builder, path = BatchBuilder(schema), place_of(options)
    for group in messages(options, *partition.value):
        rows = RecordRows(group.sequences, None, group.payloads, lambda _: (path, None))
        rows.filter(pushed)
        if len(rows):
            batch = builder.batch(rows)
            if options.is_failfast and rows.errors:
                row = min(rows.errors)
                raise LogCorrupt(f"message {rows.offsets[row]} of {path} is no record ({rows.errors[row]})")
            yield batch
