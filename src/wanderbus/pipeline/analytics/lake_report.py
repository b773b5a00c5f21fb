"""Report of a lake: its figures for a period, as one HTML file (SPEC T-08)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from wanderbus.pipeline.analytics.analysis import Analysis, analyse
from wanderbus.pipeline.analytics.gold import GoldTables
from wanderbus.pipeline.analytics.lake_tables import EVERYTHING, Period, lake_tables
from wanderbus.pipeline.analytics.report import PageRefresh, page, write_page
from wanderbus.pipeline.history.domain_lakes import DomainLake
from wanderbus.pipeline.lake.quarantine import rejected_records


def write_report(
    spark: SparkSession,
    lake: Path | str | Sequence[DomainLake],
    path: Path | str,
    period: Period = EVERYTHING,
    *,
    server: str | None = None,
    refresh: PageRefresh | None = None,
) -> Analysis:
    """Compute the figures of a lake or of several, write or replace the file at ``path``, and return the figures.

    They are those of all servers of the lakes, or of one ``server`` of one lake. Raises ``StorageError`` if there is no
    such lake or server, or the file cannot be written.
    """
    with GoldTables(lake_tables(spark, lake, period, server), period) as gold:
        found = msgspec.structs.replace(analyse(gold), rejected=_rejected(lake))
    write_page(Path(path), page(found, refresh=refresh))
    return found


def _rejected(lake: Path | str | Sequence[DomainLake]) -> dict[str, int]:
    """Return the numbers of records that tables rejected, by table; of several lakes by lake and table."""
    if isinstance(lake, Path | str):
        return dict(rejected_records(Path(lake)))
    before = {each.path: f"{each.name} " if len(lake) > 1 else "" for each in lake}
    return {f"{name}{table}": count for path, name in before.items() for table, count in rejected_records(path).items()}
