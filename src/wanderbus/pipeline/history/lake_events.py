"""Events of a lake, as files that the workers of Spark read themselves."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from wanderbus.pipeline.history.event_files import EVERY_EVENT, EventFiles, Selection
from wanderbus.pipeline.lake.reading import opened, paths_in
from wanderbus.pipeline.tables import named


def lake_events(
    spark: SparkSession,
    lake: Path,
    selection: Selection = EVERY_EVENT,
    *,
    version: int | None = None,
    as_of: datetime | None = None,
) -> EventFiles:
    """Return the selected events of a lake: of its newest version, that with a number, or that of an instant.

    Files without any of them are left out. Raises ``StorageError`` if there is no such table or version.
    """
    delta = opened(lake, named("events"), version=version, as_of=as_of)
    paths = paths_in(delta, selection.bounds())
    return EventFiles(spark, sorted(paths), selection)
