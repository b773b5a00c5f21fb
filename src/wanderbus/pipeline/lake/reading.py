"""Tables of the lake as they are, or as they were (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.tables import ALL_TABLES, RECORDS, Table, named
from wanderbus.pipeline.tables.schemas import columns_in, spark_schema

Conditions = Sequence[tuple[str, str, str | int | list[str]]]
"""Conditions on columns, as ``("subject", "=", "Departure")`` or ``("offset", ">=", 1_000)``; all of them hold."""


def existing_tables(lake: Path) -> list[Table]:
    """Return the tables that a lake has; ``StorageError`` if there is no lake."""
    if not LakeTable(lake, RECORDS).exists:
        raise StorageError(f"{lake} has no lake yet; make it with 'wanderbus pipeline run'")
    return [each for each in ALL_TABLES if LakeTable(lake, each).exists]


def table(
    spark: SparkSession,
    lake: Path,
    name: str,
    *,
    version: int | None = None,
    as_of: datetime | None = None,
    conditions: Conditions = (),
) -> DataFrame:
    """Return a table of the lake: its newest version, that with a number, or that of an instant.

    ``conditions`` leave out files in which no row meets them; rows of the other files are not filtered. Raises
    ``StorageError`` if there is no such table or version.
    """
    delta = opened(lake, named(name), version=version, as_of=as_of)
    paths = paths_in(delta, conditions)
    schema = spark_schema(columns_in(delta.schema()))
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(*paths)


def paths_in(delta: DeltaTable, conditions: Conditions = ()) -> list[str]:
    """Return the files of a version, without those in which no row meets the ``conditions``."""
    return delta.file_uris(file_pruning_predicate=list(conditions) or None)


def opened(lake: Path, table: Table, *, version: int | None = None, as_of: datetime | None = None) -> DeltaTable:
    """Return a version of a table, as delta-rs reads it."""
    delta = LakeTable(lake, table).load()
    try:
        if version is not None:
            delta.load_as_version(version)
        elif as_of is not None:
            delta.load_as_version(as_of)
    except (DeltaError, ValueError) as error:
        wanted = f"version {version}" if version is not None else f"version as of {as_of}"
        text = " ".join(str(error).split())
        raise StorageError(
            f"{lake / table.directory} has no {wanted}: {text}; its newest is {delta.version()}"
        ) from None
    return delta
