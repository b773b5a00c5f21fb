"""Columns of the source (SPEC T-02).

A reader makes only the columns that are asked for: a schema given to Spark (``.schema(log_schema("offset", "kind"))``)
is the choice of columns.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from wanderbus.pipeline.source.options import ColumnError

ERROR_TYPE: Final = StructType(
    [StructField("reason", StringType()), StructField("path", StringType()), StructField("byte", LongType())]
)
"""Why a record cannot be read, and where it is; null for all others."""

COLUMNS: Final[dict[str, DataType]] = {
    "offset": LongType(),
    "at_us": LongType(),
    "kind": StringType(),
    "user": StringType(),
    "session": StringType(),
    "device": StringType(),
    "subject": StringType(),
    "record": BinaryType(),
    "error": ERROR_TYPE,
    "published_us": LongType(),
    "attributes": VariantType(),
    "json": StringType(),
}
"""All columns. ``record`` has the bytes as they are; the last three are decoded from them, on request only."""

DECODED: Final = ("published_us", "attributes", "json")
DEFAULT: Final = tuple(name for name in COLUMNS if name not in DECODED)
"""Columns of :func:`log_schema` without a choice."""

READ_DEFAULT: Final = tuple(name for name in COLUMNS if name != "json")
"""Columns that Spark reads without a schema: the attributes of events are among them."""


def log_schema(*names: str) -> StructType:
    """Return the schema with these columns, by default :data:`DEFAULT`; :class:`ColumnError` for an unknown one."""
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ColumnError(f"the source has no column {unknown[0]!r}; it has {', '.join(COLUMNS)}")
    return StructType([StructField(name, COLUMNS[name]) for name in names or DEFAULT])


def check_schema(schema: StructType) -> StructType:
    """Return ``schema`` if the source has its columns, with these types; :class:`ColumnError` otherwise."""
    for field, own in zip(schema.fields, log_schema(*schema.names).fields, strict=True):
        if field.dataType != own.dataType:
            raise ColumnError(
                f"the column {field.name!r} of the source is {own.dataType.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return schema
