"""Tables of the lake as they are, or as they were (SPEC T-03)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import Conditions, LakeTable
from wanderbus.pipeline.lake.lake_paths import file_rows
from wanderbus.pipeline.tables import ALL_TABLES, RECORDS, TableSpecification, named
from wanderbus.pipeline.tables.schemas import columns_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def require_lake(lake: Path) -> None:
    """Return if there is a lake; ``StorageError`` otherwise."""
    if not LakeTable(lake, RECORDS).exists:
        raise StorageError(f"{lake} has no lake yet; make it with 'wanderbus pipeline run'")


def existing_tables(lake: Path) -> list[TableSpecification]:
    """Return the tables that a lake has; ``StorageError`` if there is no lake."""
    require_lake(lake)
    return [each for each in ALL_TABLES if LakeTable(lake, each).exists]


def table(
    spark: SparkSession,
    lake: Path | str,
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
    lake = Path(lake)
    delta = opened(lake, named(name), version=version, as_of=as_of)
    return file_rows(spark, columns_in(delta.schema()), LakeTable(lake, named(name)).paths(delta, conditions))


def opened(
    lake: Path, table: TableSpecification, *, version: int | None = None, as_of: datetime | None = None
) -> DeltaTable:
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
