"""Schemas of a table in Spark and in Delta, made of its specification."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from deltalake import Schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from wanderbus.pipeline.tables.specification import Column, Table, Type

_SPARK: Final[dict[Type, DataType]] = {
    "string": StringType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "date": DateType(),
    "binary": BinaryType(),
    "variant": VariantType(),
    "array<string>": ArrayType(StringType()),
}
_NAMES: Final = {kind.simpleString(): name for name, kind in _SPARK.items()}


def spark_schema(columns: Table | Iterable[Column]) -> StructType:
    """Return the schema of these columns in Spark; a reader cannot rely on ``nullable``, so all may be null."""
    own = columns.columns if isinstance(columns, Table) else columns
    return StructType([StructField(column.name, _SPARK[column.type]) for column in own])


def delta_schema(table: Table) -> Schema:
    """Return the schema of a table in Delta, which is Spark's in JSON."""
    fields = [StructField(column.name, _SPARK[column.type], column.nullable) for column in table.columns]
    return Schema.from_json(StructType(fields).json())


def columns_in(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of a table that exists, with their types alone."""
    fields = StructType.fromJson(json.loads(schema.to_json())).fields
    return tuple(
        Column(field.name, _NAMES[field.dataType.simpleString()], f"column `{field.name}`", nullable=field.nullable)
        for field in fields
    )
