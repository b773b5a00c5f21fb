"""Records of a range of the log, and batches of rows decoded from them (SPEC T-03)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from wanderbus.pipeline.lake.delta import PART
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.source.log_files import LogFiles, Slice, read_slice
from wanderbus.pipeline.source.options import ROWS_PER_PARTITION
from wanderbus.pipeline.source.record_columns import heads_of
from wanderbus.pipeline.source.rows import variant_array
from wanderbus.pipeline.tables.schemas import spark_schema
from wanderbus.pipeline.tables.specification import Table

ERROR: Final = "_error"
"""Column of decoded rows with the reason for which a record cannot be decoded."""

MISFITS: Final = "_misfits"
"""Column of decoded events with the number of declared attributes whose value has another type."""

DATE: Final = "date"
SLICE_SCHEMA: Final = "path string, first bigint, end bigint, first_byte bigint, end_byte bigint"
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]+")

Columns = dict[str, Sequence[Any]]
Decode = Callable[["Payloads"], Columns]


class Payloads(NamedTuple):
    """Records in columns, with an error for each that was found undecodable."""

    offsets: list[int]
    times: list[int]
    records: list[bytes]


def records_between(spark: SparkSession, log: Path, first: int, end: int, *columns: str) -> DataFrame:
    """Return the records ``first..end-1`` of the log."""
    rows = spark.read.format(FORMAT).schema(log_schema(*columns)).option("startingOffset", str(first)).load(str(log))
    return rows.where((F.col("offset") >= first) & (F.col("offset") < end))


def decoded(
    spark: SparkSession,
    log: Path,
    first: int,
    end: int,
    table: Table,
    kinds: Iterable[str],
    make_decode: Callable[[], Decode],
) -> DataFrame:
    """Return the rows of ``table`` that ``make_decode()`` finds in the records ``first..end-1`` of these kinds.

    The workers read the log and decode its records in one step, so that only rows of the table go to Spark. A record
    that cannot be decoded is a row with an :data:`ERROR`.
    """
    wanted = tuple(kinds)

    def payloads(part: pa.RecordBatch) -> Iterator[Payloads]:
        for row in part.to_pylist():
            yield from payloads_in(Slice(**row), wanted)

    slices = LogFiles(log).slices(first, end, ROWS_PER_PARTITION)
    return _decoded(spark.createDataFrame(slices, SLICE_SCHEMA), table, make_decode, payloads)


def decoded_records(records: DataFrame, table: Table, make_decode: Callable[[], Decode]) -> DataFrame:
    """Return the rows of ``table`` that ``make_decode()`` finds in bronze records of the kinds that it decodes."""

    def payloads(part: pa.RecordBatch) -> Iterator[Payloads]:
        yield Payloads(*(part.column(name).to_pylist() for name in ("offset", "at_us", "record")))

    return _decoded(records.select("offset", "at_us", "record"), table, make_decode, payloads)


def _decoded(
    places: DataFrame,
    table: Table,
    make_decode: Callable[[], Decode],
    payloads: Callable[[pa.RecordBatch], Iterator[Payloads]],
) -> DataFrame:
    own = tuple(column for column in table.columns if column.name != DATE)
    has_part = "subject" in table.partitioned_by
    extra = [StructField(ERROR, StringType()), StructField(MISFITS, LongType())]
    extra += [StructField(PART, StringType())] if has_part else []
    schema = StructType([*spark_schema(own).fields, *extra])

    def batches(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode, arrow = make_decode(), to_arrow_schema(schema, timezone="UTC")
        for part in parts:
            for group in payloads(part):
                columns = decode_all(decode, group)
                if has_part:
                    columns[PART] = parts_of(columns)
                yield _batch(columns, arrow)

    rows = places.mapInArrow(batches, schema)
    return rows.withColumn(DATE, F.to_date(F.timestamp_micros("at_us"))) if table.column(DATE) else rows


def payloads_in(part: Slice, kinds: tuple[str, ...]) -> Iterator[Payloads]:
    """Yield the readable records of these kinds in a part of the log, in groups."""
    for group in read_slice(part):
        heads = heads_of(group.payloads, {})
        places = [place for place, head in enumerate(heads) if head.kind in kinds]
        if places:
            yield Payloads(
                [group.first + place for place in places],
                [group.times[place] or 0 for place in places],
                [group.payloads[place] or b"" for place in places],
            )


def parts_of(columns: Columns) -> list[str]:
    """Return the directory of each row: date and subject, which is shortened, with a digest to tell subjects apart."""
    names: dict[tuple[int, str | None], str] = {}
    found: list[str] = []
    for at_us, subject in zip(columns["at_us"], columns.get("subject", repeat(None)), strict=False):
        key = (at_us // _DAY_US, subject)
        name = names.get(key)
        if name is None:
            name = names[key] = _part_of(*key)
        found.append(name)
    return found


def _part_of(day: int, subject: str | None) -> str:
    text = subject or ""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{_EPOCH + timedelta(days=day)}-{_UNSAFE.sub('_', text)[:32]}-{digest}"


def decode_all(decode: Decode, payloads: Payloads) -> Columns:
    """Decode records together, or one by one if one of them is undecodable."""
    try:
        return decode(payloads)
    except (msgspec.DecodeError, TypeError):
        rows: list[Columns] = []
        for one in zip(*payloads, strict=True):
            try:
                rows.append(decode(Payloads([one[0]], [one[1]], [one[2]])))
            except (msgspec.DecodeError, TypeError) as error:
                rows.append({"offset": [one[0]], "at_us": [one[1]], ERROR: [f"cannot be decoded: {error}"]})
    names = {name for row in rows for name in row}
    sizes = [len(next(iter(row.values()))) for row in rows]
    return {
        name: [value for row, size in zip(rows, sizes, strict=True) for value in row.get(name, [None] * size)]
        for name in names
    }


def _batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    size = len(next(iter(columns.values())))
    return pa.RecordBatch.from_arrays([_array(columns.get(field.name), field, size) for field in schema], schema=schema)


def _array(values: Sequence[Any] | None, field: pa.Field, size: int) -> pa.Array:
    if values is None:
        return pa.nulls(size, field.type)
    if pa.types.is_struct(field.type):
        return variant_array(values, field.type)
    return pa.array(values, field.type)
