"""Analytics: gold tables made of a lake, and a report of them as one HTML file (SPEC T-08).

::

    with GoldTables(lake_tables(spark, Path("lake"))) as gold:
        gold.frames["session_counts"].show()
    write_report(spark, Path("lake"), Path("report.html"))
"""

from __future__ import annotations

from wanderbus.pipeline.analytics.analysis import Analysis, Ranking, Totals, analyse
from wanderbus.pipeline.analytics.gold import GoldTables
from wanderbus.pipeline.analytics.lake_report import write_report
from wanderbus.pipeline.analytics.lake_tables import EVERYTHING, LakeTables, Period, lake_tables
from wanderbus.pipeline.analytics.report import page, write_page

__all__ = [
    "EVERYTHING",
    "Analysis",
    "GoldTables",
    "LakeTables",
    "Period",
    "Ranking",
    "Totals",
    "analyse",
    "lake_tables",
    "page",
    "write_page",
    "write_report",
]
