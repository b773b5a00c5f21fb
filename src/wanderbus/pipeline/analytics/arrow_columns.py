"""Arrow schemas of the rows that Python functions give Spark, from the columns in Spark's words."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TYPES: Final = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}


def arrow_columns(columns: str) -> pa.Schema:
    """Return the schema of ``columns``, each a name and a type; of a struct, the fields have one of these types."""
    return pa.schema([(name, _type(kind)) for name, kind in (each.split() for each in columns.split(", "))])


def _type(kind: str) -> pa.DataType:
    if not kind.startswith("struct"):
        return _TYPES[kind]
    fields = (each.split(":") for each in kind.removeprefix("struct<").removesuffix(">").split(","))
    return pa.struct([(name, _TYPES[own]) for name, own in fields])
