"""Events of a lake, as files: for the workers of Spark, or for a process without Spark."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from wanderbus.pipeline.history.event_files import EVERY_EVENT, EventFiles, Selection
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.reading import opened
from wanderbus.pipeline.tables import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lake_events(
    spark: SparkSession,
    lake: Path | str,
    selection: Selection = EVERY_EVENT,
    *,
    version: int | None = None,
    as_of: datetime | None = None,
) -> EventFiles:
    """Return the selected events of a lake: of its newest version, that with a number, or that of an instant.

    Files without any of them are left out. Raises ``StorageError`` if there is no such table or version.
    """
    return EventFiles(spark, event_paths(lake, selection, version=version, as_of=as_of), selection)


def event_paths(
    lake: Path | str, selection: Selection = EVERY_EVENT, *, version: int | None = None, as_of: datetime | None = None
) -> list[str]:
    """Return the files of :func:`lake_events`."""
    lake, table = Path(lake), named("events")
    delta = opened(lake, table, version=version, as_of=as_of)
    return sorted(map(str, LakeTable(lake, table).paths(delta, selection.bounds())))
