"""Report of a lake: its figures for a period, as one HTML file (SPEC T-08)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from wanderbus.pipeline.analytics.analysis import Analysis, analyse
from wanderbus.pipeline.analytics.gold import EVERYTHING, GoldTables, Period, lake_tables
from wanderbus.pipeline.analytics.report import PageRefresh, page, write_page
from wanderbus.pipeline.lake.quarantine import rejected_records


def write_report(
    spark: SparkSession,
    lake: Path | str,
    path: Path | str,
    period: Period = EVERYTHING,
    *,
    server: str | None = None,
    refresh: PageRefresh | None = None,
) -> Analysis:
    """Compute the figures of a lake, write or replace the file at ``path``, and return the figures.

    They are those of all servers of the lake, or of one ``server``. Raises ``StorageError`` if there is no such lake or
    server, or the file cannot be written.
    """
    with GoldTables(lake_tables(spark, lake, period, server), period) as gold:
        found = msgspec.structs.replace(analyse(gold), rejected=rejected_records(Path(lake)))
    write_page(Path(path), page(found, refresh=refresh))
    return found
