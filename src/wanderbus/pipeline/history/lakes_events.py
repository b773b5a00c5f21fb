"""Events of several lakes for Spark, each once (decision 0168)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.pipeline.history.domain_lakes import KEY, KEY_SOURCES, DomainLake
from wanderbus.pipeline.history.event_files import Selection
from wanderbus.pipeline.history.lakes_batches import within
from wanderbus.pipeline.lake.reading import table


class LakeRows(NamedTuple):
    """The rows of one lake that count, whose offsets are below those of the others by ``base``."""

    rows: DataFrame
    base: int


class LakesEvents(NamedTuple):
    """Events of several lakes, whose columns may differ; offsets are above the bases of the lakes."""

    spark: SparkSession
    parts: tuple[LakeRows, ...]


PLACE: Final = "place"
"""Column with the place of a row among those of its event: the first one counts."""


def lakes_events(
    spark: SparkSession, lakes: Sequence[DomainLake], selection: Selection, *, every_row: bool = False
) -> LakesEvents:
    """Return the selected events of several lakes.

    With ``every_row`` an event has all its rows: whoever asks for one row has chosen it.
    """
    tables = [table(spark, lake.path, "events") for lake in lakes]
    of_subject = Selection(selection.subject, children=selection.children)
    repeated = None if every_row else repeated_rows([of_subject.of_rows(rows) for rows in tables], lakes).persist()
    parts = []
    for rows, lake in zip(tables, lakes, strict=True):
        chosen = within(lake, selection).of_rows(rows)
        if repeated is not None:
            chosen = counting(chosen, repeated, lake)
        parts.append(LakeRows(chosen, lake.base))
    return LakesEvents(spark, tuple(parts))


def repeated_rows(tables: Sequence[DataFrame], lakes: Sequence[DomainLake]) -> DataFrame:
    """Return the rows of the lakes' ``tables`` of events that do not count, by ``lake``, its base, and ``offset``."""
    keys = [keyed(rows.select(*KEY_SOURCES), lake) for rows, lake in zip(tables, lakes, strict=True)]
    return placed(reduce(DataFrame.unionByName, keys)).where(f"{PLACE} > 1").select("lake", "offset")


def counting(rows: DataFrame, repeated: DataFrame, lake: DomainLake) -> DataFrame:
    """Return the rows of one lake with an ``offset`` that are none of the ``repeated`` rows."""
    own = repeated.where(F.col("lake") == lake.base).select("offset")
    return rows.join(own, "offset", "left_anti")


def keyed(rows: DataFrame, lake: DomainLake) -> DataFrame:
    """Return rows of a lake's events with their keys instead of their own ids, ``is_foreign``, and the base ``lake``.

    ``server``, ``incarnation`` and ``number`` of a row of a foreign domain are then those of that domain.
    """
    ending = f"@domains.{lake.domain}"
    is_foreign = F.col("user").endswith(ending) if lake.domain else F.lit(False)
    name = F.substring_index(F.expr("substring(user, 5)"), "@", 1)
    foreign = (name, F.substring_index("device", "/", 1), F.col("device_epoch"), F.col("device_number"))
    own = (F.lit(lake.home), F.col("server"), F.col("incarnation"), F.col("number"))
    columns = {
        column: F.when(is_foreign, there).otherwise(here) for column, there, here in zip(KEY, foreign, own, strict=True)
    }
    return rows.withColumns({**columns, "is_foreign": is_foreign, "lake": F.lit(lake.base)})


def placed(keyed_rows: DataFrame, **first_of: str) -> DataFrame:
    """Return the rows of several lakes with :data:`PLACE`, in which 1 is that of the row that counts for its event.

    ``first_of`` are further columns, each with what the row that counts has in another one.
    """
    rows = Window.partitionBy(*KEY).orderBy("is_foreign", "lake", "offset")
    more = {name: F.first(column).over(rows) for name, column in first_of.items()}
    return keyed_rows.withColumns({PLACE: F.row_number().over(rows), **more})
