"""Gold tables of a whole lake, stored in it: each is replaced in one commit (SPEC T-08)."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from wanderbus.pipeline.analytics.gold import GoldTables
from wanderbus.pipeline.analytics.lake_tables import lake_tables
from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.lake.quality import TableCounts
from wanderbus.pipeline.lake.writing import WrittenFiles, collected
from wanderbus.pipeline.tables import TABLES
from wanderbus.pipeline.tables.gold import GOLD_TABLES
from wanderbus.segments import LogPlace


def store_gold(spark: SparkSession, lake: Path) -> dict[str, TableCounts]:
    """Compute all gold tables of a lake and replace those that it has; return the counts of their rows.

    The job that fills the lake must not run meanwhile: hold its lock. Versions before stay readable. Raises
    ``StorageError`` if there is no lake.
    """
    logs = logs_in(lake)
    silver = [(each, LakeTable(lake, each).load()) for each in TABLES if each.layer == "silver"]
    ends = {
        log: min(committed(version, application_of(log, each)) or 0 for each, version in silver)
        for log in logs.identities
    }
    targets = [LakeTable(lake, each) for each in GOLD_TABLES]
    versions = [target.create(logs.first) for target in targets]
    with GoldTables(lake_tables(spark, lake)) as gold:
        writing = [target.writing(gold.frames[target.table.name]) for target in targets]
        found = collected(reduce(DataFrame.union, writing))
    written = [found.get(target.table.name, WrittenFiles()) for target in targets]
    for target, delta, each in zip(targets, versions, written, strict=True):
        own = {application_of(log, target.table): LogPlace(end) for log, end in ends.items()}
        target.commit(delta, each.files, replaces=True, ends=own)
    return {target.table.name: each.counts for target, each in zip(targets, written, strict=True)}
