"""Gold tables of a whole lake, stored in it: each is replaced in one commit (SPEC T-08)."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline.analytics.gold import GoldTables, lake_tables
from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed, log_of
from wanderbus.pipeline.lake.quality import TableCounts
from wanderbus.pipeline.lake.writing import Written, collected
from wanderbus.pipeline.tables import RECORDS, TABLES
from wanderbus.pipeline.tables.gold import GOLD_TABLES


def store_gold(spark: SparkSession, lake: Path) -> dict[str, TableCounts]:
    """Compute all gold tables of a lake and replace those that it has; return the counts of their rows.

    The job that fills the lake must not run meanwhile: hold its lock. Versions before stay readable. Raises
    ``StorageError`` if there is no lake.
    """
    log = log_of(LakeTable(lake, RECORDS).load())
    if log is None:
        raise StorageError(f"{lake / RECORDS.directory} does not name its log; it is not a table of a lake")
    silver = [each for each in TABLES if each.layer == "silver"]
    ends = [committed(LakeTable(lake, each).load(), application_of(log, each)) or 0 for each in silver]
    targets = [LakeTable(lake, each) for each in GOLD_TABLES]
    versions = [target.create(log) for target in targets]
    with GoldTables(lake_tables(spark, lake)) as gold:
        writing = [target.writing(gold.frames[target.table.name]) for target in targets]
        found = collected(reduce(DataFrame.union, writing))
    written = [found.get(target.table.name, Written()) for target in targets]
    for target, delta, each in zip(targets, versions, written, strict=True):
        application = application_of(log, target.table)
        target.commit(delta, each.files, replaces=True, application=application, end=min(ends))
    return {target.table.name: each.counts for target, each in zip(targets, written, strict=True)}
