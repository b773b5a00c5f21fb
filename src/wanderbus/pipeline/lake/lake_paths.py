"""Paths of a lake for Spark and for delta-rs, which both take some characters for more than a part of a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wanderbus.errors import StorageError
from wanderbus.pipeline.tables.schemas import spark_schema
from wanderbus.pipeline.tables.specification import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATTERN_CHARACTERS: Final = re.compile(r"[{}\[\]*?\\]")
"""Characters that make a pattern of a path that Spark is given."""

_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""Parts of a path that delta-rs decodes, takes for a separator, or refuses."""


def check_lake_path(lake: Path) -> None:
    """Return if delta-rs finds a lake at this path; ``StorageError`` otherwise. It follows symbolic links first."""
    found = _MISREAD.search(str(lake.resolve()))
    if found is not None:
        raise StorageError(
            f"{str(lake.resolve())!r} cannot be the path of a lake: delta-rs takes {found[0]!r} for something else; "
            "use another directory"
        )


def file_rows(spark: SparkSession, columns: Sequence[Column], paths: Iterable[Path]) -> DataFrame:
    """Return the rows of Parquet files with the columns of a table."""
    schema, names = spark_schema(columns), [_PATTERN_CHARACTERS.sub(r"\\\g<0>", str(path)) for path in paths]
    if not names:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(*names)
