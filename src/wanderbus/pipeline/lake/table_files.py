"""Parquet files of a table, which the workers write themselves (decision 0066).

A file has the rows of one partition, with all columns, because a subject is no safe name for a directory. Files are
not part of the table until delta-rs commits them. Their names are unique, so tasks that are repeated do no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wanderbus.pipeline.tables.schemas import spark_schema
from wanderbus.pipeline.tables.specification import Column, TableSpecification

ATTEMPT: Final = "files-"
"""Begin of the names of the directories with files."""

BUFFER_BYTES: Final = 64 << 20
"""Rows of a table that are kept until they are written, so that they are not written in small pieces."""

GROUP_ROWS: Final = 65_536
"""Rows of a row group, which is as much as one reader of a file takes at once."""

OPEN_FILES_MAX: Final = 32
"""Files of a table that one task has open at once; a partition beyond them gets several."""

_COMPRESSION: Final[dict[str, Any]] = {"compression": "zstd", "compression_level": 1}
_PLAIN: Final = ("binary", "variant")
"""Types of columns whose values differ, so that neither a dictionary nor bounds help."""


class LakeFile(msgspec.Struct, frozen=True):
    """A data file of a table; ``path`` begins at the table's directory, ``statistics`` are Delta's, in JSON."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]
    statistics: str = ""


def arrow_schema(table: TableSpecification) -> pa.Schema:
    """Return the schema of a table's files."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(table), timezone="UTC")


def new_attempt() -> str:
    """Return the name of a directory for the files of one attempt."""
    return f"{ATTEMPT}{uuid.uuid4().hex}"


class TableFiles:
    """A writer of new files of a table into ``attempt``, a directory within the table's."""

    def __init__(self, table: TableSpecification, directory: Path, attempt: str) -> None:
        self._table = table
        self._directory = directory
        self._attempt = attempt
        self._schema = arrow_schema(table)
        self._rows: dict[tuple[Any, ...], list[pa.RecordBatch]] = {}
        self._bytes = 0
        self._open: dict[tuple[Any, ...], _File] = {}
        self._closed: list[LakeFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, which have the columns of the table."""
        for partition, own in _separated(rows, self._table.partitioned_by):
            self._rows.setdefault(partition, []).append(own)
        self._bytes += rows.nbytes
        if self._bytes > BUFFER_BYTES:
            self._flush()

    def close(self) -> list[LakeFile]:
        """Write what is left, make the files durable, and return them."""
        self._flush()
        while self._open:
            self._close_oldest()
        return self._closed

    def _flush(self) -> None:
        for partition, batches in self._rows.items():
            file = self._open.pop(partition, None) or self._new(partition)
            self._open[partition] = file
            file.write(pa.Table.from_batches(batches, self._schema))
            if len(self._open) > OPEN_FILES_MAX:
                self._close_oldest()
        self._rows, self._bytes = {}, 0

    def _new(self, partition: tuple[Any, ...]) -> _File:
        path = f"{self._attempt}/{uuid.uuid4().hex}.parquet"
        values = dict(zip(self._table.partitioned_by, map(partition_text, partition), strict=True))
        return _File(self._table, self._schema, self._directory, path, values)

    def _close_oldest(self) -> None:
        self._closed.append(self._open.pop(next(iter(self._open))).close())


class _File:
    """A file that is being written."""

    def __init__(
        self, table: TableSpecification, schema: pa.Schema, directory: Path, path: str, partition: dict[str, str | None]
    ) -> None:
        self._directory = directory
        self._path = path
        self._partition = partition
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        compact = [_leaf(column) for column in table.columns if column.type not in _PLAIN]
        self._writer = pq.ParquetWriter(
            place, schema, use_dictionary=compact, write_statistics=compact, store_schema=False, **_COMPRESSION
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=GROUP_ROWS)

    def close(self) -> LakeFile:
        self._writer.close()
        return durable_file(self._directory, self._path, self._partition)


def durable_file(directory: Path, path: str, partition: dict[str, str | None]) -> LakeFile:
    """Make a file durable that is complete, and return it.

    It is as readable as the directory of its table, whichever process has written it.
    """
    place, mode = directory / path, directory.stat().st_mode & 0o777
    place.chmod(mode & 0o666)
    for each in Path(path).parents[:-1]:
        with contextlib.suppress(PermissionError):  # of a directory that another worker's user has made
            (directory / each).chmod(mode)
    sync(place)
    metadata = pq.read_metadata(place)
    return LakeFile(path, place.stat().st_size, metadata.num_rows, partition, json.dumps(_statistics(metadata)))


def partition_text(value: object) -> str | None:
    """Return a value as Delta writes it in its log."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def sync(path: Path) -> None:
    """Make a file or directory durable: the log's segments may go once the lake has their records."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _separated(rows: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each partition, with the values of its columns."""
    if not len(rows):
        return
    numbers = np.zeros(len(rows), np.int64)
    for name in columns:
        encoded = rows.column(name).dictionary_encode("encode")
        numbers = numbers * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, firsts, places = np.unique(numbers, return_index=True, return_inverse=True)
    if len(firsts) == 1:
        yield _values(rows, columns, 0), rows
        return
    for number, first in enumerate(firsts.tolist()):
        yield _values(rows, columns, first), rows.take(pa.array(np.flatnonzero(places == number), pa.int64()))


def _values(rows: pa.RecordBatch, columns: tuple[str, ...], place: int) -> tuple[Any, ...]:
    return tuple(rows.column(name)[place].as_py() for name in columns)


def _leaf(column: Column) -> str:
    return f"{column.name}.list.element" if column.type == "array<string>" else column.name


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the numbers that readers skip files by: of rows, and the bounds of the columns of whole numbers."""
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for place, column in enumerate(metadata.schema):
        if column.physical_type != "INT64" or column.path != column.name or column.logical_type.type != "NONE":
            continue
        found = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        if all(each is not None and each.has_min_max for each in found):
            least[column.name], most[column.name] = min(each.min for each in found), max(each.max for each in found)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": {}}
