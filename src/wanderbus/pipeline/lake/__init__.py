"""The lake: Delta tables made of the event log, which any engine reads (SPEC T-03).

Names are loaded on first use: readers of the tables do not need Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus.pipeline.names_on_demand import names_on_demand

if TYPE_CHECKING:
    from wanderbus.pipeline.lake.compaction import compact, vacuum
    from wanderbus.pipeline.lake.jobs import Ingestion, LakeCounts, ingest
    from wanderbus.pipeline.lake.quality import CheckFailed, TableCounts
    from wanderbus.pipeline.lake.reading import table
    from wanderbus.pipeline.lake.reconciliation import reconcile

_HOMES: Final = {
    "CheckFailed": "quality",
    "Ingestion": "jobs",
    "LakeCounts": "jobs",
    "TableCounts": "quality",
    "compact": "compaction",
    "ingest": "jobs",
    "reconcile": "reconciliation",
    "table": "reading",
    "vacuum": "compaction",
}

__all__ = ["CheckFailed", "Ingestion", "LakeCounts", "TableCounts", "compact", "ingest", "reconcile", "table", "vacuum"]


if not TYPE_CHECKING:
    __getattr__ = names_on_demand(__name__, _HOMES)
