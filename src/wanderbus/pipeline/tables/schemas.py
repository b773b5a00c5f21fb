"""Schemas of a table in Spark and in Delta, made of its specification."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from deltalake import Schema

from wanderbus.pipeline.tables.specification import Column, TableSpecification, Type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXTS: Final[dict[Type, Any]] = {
    "string": "string",
    "bigint": "long",
    "double": "double",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "date": "date",
    "binary": "binary",
    "variant": "variant",
    "array<string>": {"type": "array", "elementType": "string", "containsNull": True},
}
"""Types of columns in the JSON of a schema, which Spark and Delta share."""

_NAMES: Final = {json.dumps(text): name for name, text in _TEXTS.items()}


def spark_schema(columns: TableSpecification | Iterable[Column]) -> StructType:
    """Return the schema of these columns in Spark; a reader cannot rely on ``nullable``, so all may be null."""
    from pyspark.sql.types import StructType

    own = columns.columns if isinstance(columns, TableSpecification) else columns
    return StructType.fromJson(_struct(_field(column.name, column.type, nullable=True) for column in own))


def delta_schema(table: TableSpecification) -> Schema:
    """Return the schema of a table in Delta, which is Spark's in JSON."""
    fields = (_field(column.name, column.type, nullable=column.nullable) for column in table.columns)
    return Schema.from_json(json.dumps(_struct(fields)))


def columns_in(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of a table that exists, with their types alone."""
    return tuple(
        Column(each["name"], _named(each["type"]), f"column `{each['name']}`", nullable=each["nullable"])
        for each in json.loads(schema.to_json())["fields"]
    )


def _struct(fields: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _field(name: str, kind: Type, *, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": _TEXTS[kind], "nullable": nullable, "metadata": {}}


def _named(text: Any) -> Type:
    """Return the type that a schema in JSON has as ``text``; items of a list may be null or not."""
    return _NAMES[json.dumps({**text, "containsNull": True} if isinstance(text, dict) else text)]
