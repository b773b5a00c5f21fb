"""Comparison of two lakes of one log, table by table and row by row."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.types import VariantType

from wanderbus.pipeline.lake import table
from wanderbus.pipeline.tables import TABLES

_DIFFERING: Final = "rows that differ"
_SURPLUS: Final = "surplus of the first"
"""Names that no attribute has, for they have spaces."""


def differences(spark: SparkSession, one: Path, other: Path) -> dict[str, int]:
    """Return how many rows of each table are in only one of two lakes; a row that is there twice counts as well.

    One query counts them all, since each query costs more than it has to compute.
    """
    counts = [
        _differing(*(comparable(table(spark, lake, each.name)) for lake in (one, other))).select(
            F.lit(each.name), _DIFFERING
        )
        for each in TABLES
    ]
    return {row[0]: row[1] for row in reduce(DataFrame.union, counts).collect()}


def _differing(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return one row with the number of rows that one of two tables has more often than the other."""
    columns = [F.col(f"`{name}`") for name in left.columns]
    signed = left.withColumn(_SURPLUS, F.lit(1)).union(right.withColumn(_SURPLUS, F.lit(-1)))
    surplus = signed.groupBy(*columns).agg(F.sum(_SURPLUS).alias(_SURPLUS))
    return surplus.agg(F.coalesce(F.sum(F.abs(_SURPLUS)), F.lit(0)).alias(_DIFFERING))


def comparable(rows: DataFrame) -> DataFrame:
    """Return the rows with variants as JSON, in columns ordered by name."""
    columns = [
        F.to_json(field.name).alias(field.name) if isinstance(field.dataType, VariantType) else F.col(f"`{field.name}`")
        for field in sorted(rows.schema.fields, key=lambda field: field.name)
    ]
    return rows.select(*columns)
