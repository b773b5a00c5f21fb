"""Batches of events in Spark's workers: of the rows of a DataFrame, or of files that the workers read themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial, reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from wanderbus.pipeline.history.event_files import EventFiles, batches_of
from wanderbus.pipeline.history.lakes_batches import above
from wanderbus.pipeline.history.lakes_events import LakeRows, LakesEvents
from wanderbus.pipeline.history.queries import BatchWork, MatcherWork, Queries, matcher_of
from wanderbus.pipeline.source import ColumnError
from wanderbus.pipeline.tables.declared import attribute_of
from wanderbus.pipeline.workers import settle

_SCALARS: Final = (
    *(StringType, BooleanType, DoubleType, FloatType, LongType, IntegerType, ShortType, ByteType, TimestampType),
)

Schema = StructType | str
"""Columns of a result, as a schema of Spark or in its words."""

Events = DataFrame | EventFiles | LakesEvents
"""Events as rows, as files that the workers read themselves, or of several lakes."""


def in_workers(
    events: Events, queries: Queries, work: MatcherWork, schema: Schema, further: Sequence[str] = ()
) -> DataFrame:
    """Return the result of ``work``, done by the workers on the events' columns that the queries need.

    ``further`` are other columns that it needs.
    """
    spark = events.sparkSession if isinstance(events, DataFrame) else events.spark
    shared = spark.sparkContext.broadcast(queries)

    def matched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = matcher_of(shared.value)
        settle()
        yield from work(matcher, batches)

    return map_batches(events, queries.asked, matched, schema, further)


def map_batches(
    events: Events, asked: Set[str] | None, work: BatchWork, schema: Schema, further: Sequence[str] = ()
) -> DataFrame:
    """Return the result of ``work``, done by the workers on the columns of the ``asked`` attributes; None is all.

    ``further`` are other columns that it needs.
    """
    if isinstance(events, EventFiles):
        return _map_files(events, asked, work, schema, further)
    if isinstance(events, LakesEvents):
        each = (
            map_batches(part.rows, asked, partial(_above, part.base, work), schema, further) for part in events.parts
        )
        return reduce(DataFrame.unionByName, each)
    needed = columns_needed(events.schema, asked)
    columns = [*needed, *(name for name in further if name not in needed)]
    return events.select(*map(quoted, columns)).mapInArrow(work, schema)


def _map_files(
    events: EventFiles, asked: Set[str] | None, work: BatchWork, schema: Schema, further: Sequence[str]
) -> DataFrame:
    """Do the same with files: a task has the number of its part of a file."""
    parts = events.parts(events.spark.sparkContext.defaultParallelism)
    selection = events.selection

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return work(batch for number in numbers for batch in batches_of(parts[number], selection, asked, further))

    return events.spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(run, schema)


def _above(base: int, work: BatchWork, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the work on batches whose offsets are above a base."""
    return work(above(base, batches))


def at_offsets(events: Events, offsets: Iterable[int]) -> Events:
    """Return those of the events that have one of the ``offsets``."""
    if isinstance(events, EventFiles):
        return events._replace(selection=events.selection._replace(offsets=frozenset(offsets)))
    if isinstance(events, LakesEvents):
        wanted = list(offsets)
        own = ([each - part.base for each in wanted] for part in events.parts)
        rows = (part.rows.where(part.rows["offset"].isin(each)) for part, each in zip(events.parts, own, strict=True))
        return events._replace(parts=tuple(map(LakeRows, rows, (part.base for part in events.parts))))
    return events.where(events["offset"].isin(list(offsets)))


def quoted(name: str) -> str:
    """Return a column name as Spark reads it in an expression."""
    return "`" + name.replace("`", "``") + "`"


def columns_needed(schema: StructType, asked: Set[str] | None) -> list[str]:
    """Return the columns of events from which filters on the ``asked`` attributes are answered; None asks for all.

    :class:`ColumnError` if the columns are not those of events.
    """
    for name, kind in (("offset", LongType), ("subject", StringType)):
        if name not in schema.names or not isinstance(schema[name].dataType, kind):
            raise ColumnError(f"events need a column {name!r} of type {kind().simpleString()}")
    if "record" in schema.names and isinstance(schema["record"].dataType, BinaryType):
        return ["offset", "subject", "record"]
    needed = ["offset", "subject"]
    for field in schema.fields:
        attribute = attribute_of(field.name)
        if field.name == "attributes":
            if not isinstance(field.dataType, VariantType):
                raise ColumnError("the column 'attributes' must be a variant")
            needed.append(field.name)
        elif attribute is not None and (asked is None or attribute in asked):
            _check_type(field.name, field.dataType)
            needed.append(field.name)
    return needed


def _check_type(name: str, kind: DataType) -> None:
    item = kind.elementType if isinstance(kind, ArrayType) else kind
    if not isinstance(item, _SCALARS):
        raise ColumnError(
            f"the column {name!r} is {kind.simpleString()}, which no attribute has; "
            "use string, bigint, double, boolean, timestamp, or an array of one"
        )
