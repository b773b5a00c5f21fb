"""Files that workers write, and what they report of them to the driver (decision 0066)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from wanderbus.pipeline.lake.quality import TableCounts, judged
from wanderbus.pipeline.lake.table_files import LakeFile, TableFiles, arrow_schema
from wanderbus.pipeline.tables import TableSpecification

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESULT: Final = "result binary"
_BATCH_ROWS: Final = 65_536


class WrittenFiles(msgspec.Struct):
    """The files that were written for one table, its own and those of the quarantine, and the counts of its rows."""

    files: list[LakeFile] = []
    quarantine: list[LakeFile] = []
    counts: TableCounts = TableCounts()

    def __add__(self, other: WrittenFiles) -> WrittenFiles:
        return WrittenFiles(self.files + other.files, self.quarantine + other.quarantine, self.counts + other.counts)


def run(spark: SparkSession, tasks: Sequence[Callable[[], Mapping[str, WrittenFiles]]]) -> dict[str, WrittenFiles]:
    """Run each task in a worker; return their files and counts, by table."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield _result(tasks[task]())

    if not tasks:
        return {}
    return collected(spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, _RESULT))


def writing_rows(rows: DataFrame, table: TableSpecification, directory: Path, attempt: str) -> DataFrame:
    """Return the tasks that write rows that Spark has, those that meet the checks of the table."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, counts, schema = TableFiles(table, directory, attempt), TableCounts(), arrow_schema(table)
        for batch in batches:
            found = judged(pa.RecordBatch.from_arrays(batch.columns, schema=schema), table)
            counts += found.counts
            files.write(found.rows)
        yield _result({table.name: WrittenFiles(files.close(), counts=counts)})

    own = rows.select(*(f"`{column.name}`" for column in table.columns))
    return own.mapInArrow(work, _RESULT)


def merge(
    table: TableSpecification, directory: Path, attempt: str, files: Sequence[LakeFile]
) -> Mapping[str, WrittenFiles]:
    """Write the rows of files of one partition into one file; columns that a file lacks have no values."""
    merged, schema = TableFiles(table, directory, attempt), arrow_schema(table)
    for each in files:
        with pq.ParquetFile(directory / each.path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                columns = [
                    batch.column(field.name).cast(field.type)
                    if field.name in batch.schema.names
                    else pa.nulls(len(batch), field.type)
                    for field in schema
                ]
                merged.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    return {table.name: WrittenFiles(merged.close())}


def collected(results: DataFrame) -> dict[str, WrittenFiles]:
    """Run the tasks whose results these are; return the files and counts by table."""
    found: dict[str, WrittenFiles] = {}
    for row in results.collect():
        for name, written in msgspec.msgpack.decode(row[0], type=dict[str, WrittenFiles]).items():
            found[name] = found.get(name, WrittenFiles()) + written
    return found


def _result(written: Mapping[str, WrittenFiles]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(written)], pa.binary())], names=["result"])
