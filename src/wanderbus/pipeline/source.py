"""The event log as a Spark data source, in batch and as a stream: ``spark.read.format("wanderbus")`` (SPEC T-02).

A stream's offset is ``{"offset": n}``: log offsets are dense, so a batch is exactly the records from one number up
to another, and admission is arithmetic. Nothing at or beyond the durable mark is ever seen, a torn tail least of all.

Options: ``path``, the log directory; ``maxRowsPerTrigger`` or ``maxBytesPerTrigger``, how much one micro-batch takes;
``startingOffset``, ``earliest`` (the default), ``latest`` or a number; ``rowsPerPartition``, the size of one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
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

from wanderbus.errors import LogCorrupt, StorageError, WanderbusError
from wanderbus.pipeline.log_files import LogFiles, Slice, durable_end, read_slice
from wanderbus.pipeline.schemas import LOG_ARROW_SCHEMA, LOG_SCHEMA, log_row
from wanderbus.records import AnyRecord, decode_record
from wanderbus.segments import Frame

FORMAT: Final = "wanderbus"
"""The name of the source in Spark."""

ROWS_PER_PARTITION: Final = 50_000
"""Records that one task reads, unless ``rowsPerPartition`` says otherwise."""

ROWS_PER_ARROW_BATCH: Final = 4_096
"""Records that travel from Python to Spark at once."""

Offset = dict[str, int]


class OptionError(WanderbusError):
    """An option of the source is missing, unknown or has no usable value."""


class SourceOptions(msgspec.Struct, frozen=True):
    """The options of the source, checked."""

    path: Path
    starting_offset: int | str = "earliest"
    rows_max: int | None = None
    bytes_max: int | None = None
    rows_per_partition: int = ROWS_PER_PARTITION

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Return the checked options; :class:`OptionError` names the one at fault. Names ignore case, as in Spark."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(given.keys() - {name.lower() for name in _OPTION_NAMES})
        if unknown:
            raise OptionError(f"unknown option {unknown[0]!r}; the source {FORMAT!r} knows {', '.join(_OPTION_NAMES)}")
        if not given.get("path"):
            raise OptionError(f"the source {FORMAT!r} needs the option path: the directory of the event log")
        rows_max = _positive(given, "maxRowsPerTrigger")
        bytes_max = _positive(given, "maxBytesPerTrigger")
        if rows_max and bytes_max:
            raise OptionError("maxRowsPerTrigger and maxBytesPerTrigger exclude each other; give one")
        return cls(
            path=_directory(given["path"]),
            starting_offset=_starting_offset(given.get("startingoffset", "earliest")),
            rows_max=rows_max,
            bytes_max=bytes_max,
            rows_per_partition=_positive(given, "rowsPerPartition") or ROWS_PER_PARTITION,
        )


_OPTION_NAMES = (
    "path",
    "startingOffset",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "rowsPerPartition",
)


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise OptionError(f"{name} must be a whole number above 0, not {text!r}")
    return int(text)


def _directory(text: str) -> Path:
    path = Path(text.removeprefix("file://"))
    if not path.is_dir():
        raise OptionError(f"path {text!r} is not a directory; it must be the directory of the event log")
    return path


def _starting_offset(text: str) -> int | str:
    if text in ("earliest", "latest"):
        return text
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"startingOffset must be earliest, latest or a whole number, not {text!r}")
    return int(text)


class LogPartition(InputPartition):
    """The part of a segment that one task reads."""

    def __init__(self, part: Slice) -> None:
        super().__init__(tuple(part))


class WanderbusSource(DataSource):
    """Data source for ``spark.dataSource.register``; :func:`wanderbus.pipeline.session.spark_session` calls that."""

    @classmethod
    def name(cls) -> str:
        """Return the name to use with ``format``."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a log record."""
        return LOG_SCHEMA

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of everything durable at the time of planning."""
        return LogReader(SourceOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader of a stream."""
        return LogStreamReader(SourceOptions.parse(self.options))


class LogReader(DataSourceReader):
    """Batch: the records from ``startingOffset`` to the durable mark."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        files = LogFiles(self._options.path)
        end = durable_end(self._options.path)
        return _partitions(files, _first_offset(self._options, files, end), end, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``partition`` as Arrow batches."""
        return _batches(partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream: the durable records, each in exactly one micro-batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._files = LogFiles(options.path)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the start offset of a query without a checkpoint."""
        return {"offset": _first_offset(self._options, self._files, self._end())}

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
        """Return the end of the next micro-batch.

        Raises ``StorageError`` when the log ends before ``start``: it is not the log of this checkpoint.
        """
        first, end = start["offset"], self._end()
        if end < first:
            raise StorageError(
                f"the checkpoint is at record {first}, but {self._options.path} is durable only up to {end}: "
                "it is another log; use it with a new checkpoint and an empty lake"
            )
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        elif isinstance(limit, ReadMaxBytes) and first < end:
            end = self._files.end_within(first, end, limit.max_bytes)
        return {"offset": end}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return one partition per task for the records from ``start`` up to ``end``."""
        return _partitions(self._files, start["offset"], end["offset"], self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``partition`` as Arrow batches."""
        return _batches(partition)

    def _end(self) -> int:
        return durable_end(self._options.path) if self._target is None else self._target


def _first_offset(options: SourceOptions, files: LogFiles, end: int) -> int:
    match options.starting_offset:
        case int(offset):
            if offset > end:
                raise OptionError(f"startingOffset {offset} is beyond the {end} durable records of {options.path}")
            return offset
        case "latest":
            return end
        case _:
            return files.oldest()


def _partitions(files: LogFiles, first: int, end: int, options: SourceOptions) -> list[InputPartition]:
    return [LogPartition(part) for part in files.slices(first, end, options.rows_per_partition)]


def _batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the content of ``partition``; Spark plans a partition without a value when there is nothing to read."""
    if partition.value is None:
        return
    part = Slice(*partition.value)
    rows: list[tuple[Any, ...]] = []
    for frame in read_slice(part):
        rows.append(log_row(frame.offset, _decoded(part, frame)))
        if len(rows) == ROWS_PER_ARROW_BATCH:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, LOG_ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_ARROW_SCHEMA)


def _decoded(part: Slice, frame: Frame) -> AnyRecord:
    try:
        return decode_record(frame.payload)
    except msgspec.DecodeError as error:
        raise LogCorrupt(
            f"{part.path}: record {frame.offset}, which ends at byte {part.first_byte + frame.end}, is "
            f"unknown to this version ({error})"
        ) from None
