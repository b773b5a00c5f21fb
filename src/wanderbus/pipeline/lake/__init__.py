"""The lake: Delta tables made of the event log, which any engine reads (SPEC T-03)."""

from __future__ import annotations

from wanderbus.pipeline.lake.compaction import compact, vacuum
from wanderbus.pipeline.lake.jobs import Ingestion, LakeCounts, ingest
from wanderbus.pipeline.lake.quality import CheckFailed, TableCounts
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.lake.reconciliation import reconcile

__all__ = ["CheckFailed", "Ingestion", "LakeCounts", "TableCounts", "compact", "ingest", "reconcile", "table", "vacuum"]
