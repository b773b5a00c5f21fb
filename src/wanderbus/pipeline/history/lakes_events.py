"""Events of several lakes for Spark, each once (decision 0168)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

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


def lakes_events(
    spark: SparkSession, lakes: Sequence[DomainLake], selection: Selection, *, every_row: bool = False
) -> LakesEvents:
    """Return the selected events of several lakes.

    With ``every_row`` an event has all its rows: whoever asks for one row has chosen it.
    """
    tables = [table(spark, lake.path, "events") for lake in lakes]
    of_subject = Selection(selection.subject, children=selection.children)
    keys = [_keys(of_subject.of_rows(rows), lake) for rows, lake in zip(tables, lakes, strict=True)]
    repeated = None if every_row else _repeated(reduce(DataFrame.unionByName, keys)).persist()
    parts = []
    for rows, lake in zip(tables, lakes, strict=True):
        chosen = within(lake, selection).of_rows(rows)
        if repeated is not None:
            own = repeated.where(F.col("lake") == lake.base).select("offset")
            chosen = chosen.join(own, "offset", "left_anti")
        parts.append(LakeRows(chosen, lake.base))
    return LakesEvents(spark, tuple(parts))


def _keys(rows: DataFrame, lake: DomainLake) -> DataFrame:
    """Return the key of each row of a lake's events, its offset and ``is_foreign``; ``lake`` is the base."""
    ending = f"@domains.{lake.domain}"
    is_foreign = F.col("user").endswith(ending) if lake.domain else F.lit(False)
    name = F.substring_index(F.expr("substring(user, 5)"), "@", 1)
    foreign = (name, F.substring_index("device", "/", 1), F.col("device_epoch"), F.col("device_number"))
    own = (F.lit(lake.domain or lake.name), F.col("server"), F.col("incarnation"), F.col("number"))
    columns = [
        F.when(is_foreign, there).otherwise(here).alias(column)
        for column, there, here in zip(KEY, foreign, own, strict=True)
    ]
    found = rows.select(*KEY_SOURCES)
    return found.select(*columns, "offset", is_foreign.alias("is_foreign"), F.lit(lake.base).alias("lake"))


def _repeated(keys: DataFrame) -> DataFrame:
    """Return the rows that do not count: all but the first of each key."""
    place = F.row_number().over(Window.partitionBy(*KEY).orderBy("is_foreign", "lake", "offset"))
    return keys.withColumn("place", place).where("place > 1").select("lake", "offset")
