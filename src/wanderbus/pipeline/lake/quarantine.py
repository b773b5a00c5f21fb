"""Rows that a table did not take, with their places in the log (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)
from pyspark.sql.pandas.types import to_arrow_schema

from wanderbus.pipeline.lake.quality import REJECTED
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.tables import QUARANTINE
from wanderbus.pipeline.tables.schemas import spark_schema


def quarantine_rows(rejected: DataFrame, records: DataFrame, log: Path, table: str) -> DataFrame:
    """Return the quarantine's rows for ``rejected`` rows of ``table``, one for each record and reason.

    ``rejected`` has an offset and the reason as :data:`REJECTED`; ``records`` has offset, record and error.
    """
    reasons = rejected.select("offset", F.col(REJECTED).alias("reason")).distinct()
    found = reasons.join(records.select("offset", "record", "error"), "offset").select(
        F.lit(table).alias("table"),
        "offset",
        F.col("error.path").alias("path"),
        F.col("error.byte").alias("byte"),
        "reason",
        "record",
    )
    return located(found, log)


def located(rows: DataFrame, log: Path) -> DataFrame:
    """Return the quarantine's rows with path and byte of those records that have none yet."""
    schema = spark_schema(QUARANTINE)
    arrow = to_arrow_schema(schema)

    def batches(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = LogFiles(log)
        for part in parts:
            found = part.to_pylist()
            for row in found:
                if row["path"] is None:
                    (piece,) = files.slices(row["offset"], row["offset"] + 1, 1)
                    row["path"], row["byte"] = piece.path, piece.first_byte
            yield pa.RecordBatch.from_pylist(found, arrow)

    return rows.mapInArrow(batches, schema)
