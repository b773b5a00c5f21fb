"""The event log as a Spark data source, in batch and as a stream: ``spark.read.format("wanderbus")`` (SPEC T-02).

A stream's offset is ``{"offset": n, "checksum": c}``: log offsets are dense, so a batch is exactly the records from one
number up to another, and admission is arithmetic. The checksum is that of the record before: a checkpoint recognises
its log by it. Nothing at or beyond the durable mark is ever seen, a torn tail least of all.

Options: ``path``, the data directory of a server, or its log; ``maxRowsPerTrigger`` or ``maxBytesPerTrigger``, the
size of one micro-batch; ``startingOffset``, ``earliest`` (the default), ``latest`` or a number; ``rowsPerPartition``,
the size of one task; ``mode``, ``permissive`` (the default: a record that cannot be read is a row with an error) or
``failfast``.
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
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from wanderbus.errors import LogCorrupt
from wanderbus.pipeline.source.columns import READ_DEFAULT, check_schema, log_schema
from wanderbus.pipeline.source.frames import RecordFrames
from wanderbus.pipeline.source.log_files import ALL, LogFiles, RecordBounds, Slice, corrupt, read_slice
from wanderbus.pipeline.source.options import LogOptions, OptionError
from wanderbus.pipeline.source.places import REMEDY, Offset, stored
from wanderbus.pipeline.source.pushdown import Pushed
from wanderbus.pipeline.source.rows import BatchBuilder, RecordRows
from wanderbus.runtime.segment_files import durable_end
from wanderbus.segments import LogPlace

FORMAT: Final = "wanderbus"
"""Name of the source in Spark."""


class LogPartition(InputPartition):
    """The part of a segment that one task reads."""

    def __init__(self, part: Slice) -> None:
        super().__init__(tuple(part))


class LogSource(DataSource):
    """Data source for ``spark.dataSource.register``; :func:`wanderbus.pipeline.session.spark_session` calls that."""

    @classmethod
    def name(cls) -> str:
        """Return the name to use with ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a log record, without a choice of columns."""
        return log_schema(*READ_DEFAULT)

    def reader(self, schema: StructType) -> LogSourceReader:
        """Return the reader of everything durable at the time of planning."""
        return LogSourceReader(LogOptions.parse(self.options, FORMAT), schema)

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a stream."""
        return LogStreamReader(LogOptions.parse(self.options, FORMAT), schema)


class FilteringLogSource(LogSource):
    """The same source with pushdown, for a session with ``spark.sql.python.filterPushdown.enabled``.

    Spark refuses a reader that can filter in a session that has not enabled it.
    """

    def reader(self, schema: StructType) -> FilteringLogReader:
        """Return the reader of everything durable at the time of planning that the filters leave."""
        return FilteringLogReader(LogOptions.parse(self.options, FORMAT), schema)


class LogSourceReader(DataSourceReader):
    """Batch: the records from ``startingOffset`` to the durable mark."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = check_schema(schema)
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        files, end = LogFiles(self._options.path), durable_end(self._options.path)
        first = _first_offset(self._options, files, end)
        least, most = self._pushed.bounds("offset")
        first = first if least is None else max(first, least)
        end = end if most is None else min(end, most + 1)
        return _partitions(files, first, end, self._options, RecordBounds(*self._pushed.bounds("at_us")))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``partition`` as Arrow batches."""
        return _batches(partition, self._options, self._schema, self._pushed)


class FilteringLogReader(LogSourceReader):
    """Batch with pushdown: blocks are chosen by offset and time, rows by every column that is a number or a text."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over what the source can check; return the filters left to Spark."""
        self._pushed, left = Pushed.parse(filters)
        return left


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream: the durable records, each in exactly one micro-batch."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = check_schema(schema)
        self._files = LogFiles(options.path)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the start offset of a query without a checkpoint."""
        return stored(self._files.place(_first_offset(self._options, self._files, self._end())))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size of one micro-batch, by the options."""
        if self._options.rows_max:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of an available-now query: records that become durable later are for the next query."""
        self._target = durable_end(self._options.path)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the durable mark, for the query's progress figures."""
        return {"offset": durable_end(self._options.path)}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch; ``LogReplaced`` if the log is not the one of this checkpoint."""
        place = self._checked(start)
        first, end = place.offset, self._end()
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        elif isinstance(limit, ReadMaxBytes) and first < end:
            end = self._files.end_within(first, end, limit.max_bytes)
        return stored(place if end <= first else self._files.place(end))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return one partition per task for the records from ``start`` up to ``end``.

        Raises ``LogReplaced`` if the log is not the one of this checkpoint, which may have planned the batch earlier.
        """
        for each in (start, end):
            self._checked(each)
        return _partitions(self._files, start["offset"], end["offset"], self._options, ALL)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``partition`` as Arrow batches."""
        return _batches(partition, self._options, self._schema, Pushed())

    def _checked(self, offset: Offset) -> LogPlace:
        return self._files.checked(LogPlace(**offset), reader="the checkpoint", remedy=REMEDY)

    def _end(self) -> int:
        return durable_end(self._options.path) if self._target is None else self._target


def _first_offset(options: LogOptions, files: LogFiles, end: int) -> int:
    match options.starting_offset:
        case int(offset):
            if offset > end:
                raise OptionError(f"startingOffset {offset} is beyond the {end} durable records of {options.path}")
            return offset
        case "latest":
            return end
        case _:
            return files.oldest()


def _partitions(
    files: LogFiles, first: int, end: int, options: LogOptions, wanted: RecordBounds
) -> list[InputPartition]:
    return [LogPartition(part) for part in files.slices(first, end, options.rows_per_partition, wanted)]


def _batches(
    partition: InputPartition, options: LogOptions, schema: StructType, pushed: Pushed
) -> Iterator[pa.RecordBatch]:
    """Yield the content of ``partition``; Spark plans a partition without a value when there is nothing to read."""
    if partition.value is None:
        return
    part, builder = Slice(*partition.value), BatchBuilder(schema)
    if schema.names == ["offset"] and not pushed.conditions and not options.is_failfast:
        yield builder.numbered(part.first, part.end)  # offsets are dense, so the segment need not be read
        return
    for group in read_slice(part):
        rows = _rows(part, group)
        rows.filter(pushed)
        if len(rows):
            batch = builder.batch(rows)
            if options.is_failfast and rows.errors:
                raise _failure(rows, min(rows.errors))
            yield batch


def _rows(part: Slice, group: RecordFrames) -> RecordRows:
    def locate(place: int) -> tuple[str, int | None]:
        return part.path, part.first_byte + group.places[place]

    return RecordRows(range(group.first, group.first + len(group.times)), group.times, group.payloads, locate)


def _failure(rows: RecordRows, row: int) -> LogCorrupt:
    path, byte = rows.where(row)
    if rows.payloads[row] is None:
        return corrupt(path, byte or 0, rows.offsets[row])
    return LogCorrupt(
        f"{path}: record {rows.offsets[row]} at byte {byte} is unknown to this version ({rows.errors[row]})"
    )
