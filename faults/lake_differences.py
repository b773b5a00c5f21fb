"""Comparison of two lakes of one log, table by table and row by row."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.types import VariantType

from wanderbus.pipeline.lake import table
from wanderbus.pipeline.tables import TABLES


def differences(spark: SparkSession, one: Path, other: Path) -> dict[str, int]:
    """Return how many rows of each table are in only one of two lakes; a row that is there twice counts as well."""
    found = {}
    for each in TABLES:
        left, right = (comparable(table(spark, lake, each.name)) for lake in (one, other))
        found[each.name] = left.exceptAll(right).count() + right.exceptAll(left).count()
    return found


def comparable(rows: DataFrame) -> DataFrame:
    """Return the rows with variants as JSON, in columns ordered by name."""
    columns = [
        F.to_json(field.name).alias(field.name) if isinstance(field.dataType, VariantType) else F.col(f"`{field.name}`")
        for field in sorted(rows.schema.fields, key=lambda field: field.name)
    ]
    return rows.select(*columns)
