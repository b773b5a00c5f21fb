"""A silver table is made again of the bronze records, compared and swapped (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import START_US, departure
from wanderbus.errors import ConfigurationError
from wanderbus.event import DeclaredAttribute
from wanderbus.pipeline.lake import Ingestion, compact, reconcile, table
from wanderbus.pipeline.lake.delta import LakeTable, misfits_in
from wanderbus.pipeline.lake.reading import opened
from wanderbus.pipeline.operation.backfill import backfill
from wanderbus.pipeline.tables import named
from wanderbus.records import Record, SchemaDeclared

WriteLog = Callable[..., Path]
MakeRecords = Callable[[int], list[Record]]
pytestmark = pytest.mark.spark


def ingested(spark: SparkSession, log: Path, lake: Path, *ends: int) -> None:
    first = 0
    for end in ends:
        Ingestion(spark, log, lake).store(first, end)
        first = end


def test_each_silver_table_is_made_again_as_it_was(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log, lake = write_log(every_record(12)), tmp_path / "lake"
    ingested(spark, log, lake, 5, 12)
    for name in ("events", "notifications", "deliveries", "sessions", "subscriptions", "schemas"):
        before = LakeTable(lake, named(name)).load().version()
        found = backfill(spark, lake, name)
        assert (found.is_equal, found.is_swapped) == (True, False), name
        assert LakeTable(lake, named(name)).load().version() == before
    with pytest.raises(ConfigurationError, match="records is a bronze table; only silver tables"):
        backfill(spark, lake, "records")


def test_events_of_the_past_get_the_columns_of_later_declarations(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    attributes = (DeclaredAttribute("Dest", "String"), DeclaredAttribute("Delay", "Double"))
    declared = SchemaDeclared(at_us=START_US, subject="Departure", version=1, attributes=attributes, by="sip:a@b")
    log = write_log([departure(0, START_US, Delay="late"), declared, departure(2, START_US)])
    lake = tmp_path / "lake"
    ingested(spark, log, lake, 1, 3)
    target = LakeTable(lake, named("events"))
    before = target.load().version()
    found = backfill(spark, lake, "events")
    assert (found.is_equal, found.is_equal_in_fixed, found.is_swapped) == (False, True, True)
    assert misfits_in(opened(lake, target.table, version=before)) == 0
    rows = table(spark, lake, "events").orderBy("offset").select("offset", "Dest").collect()
    assert [tuple(row) for row in rows] == [(0, "IAH"), (2, "IAH")]
    old = table(spark, lake, "events", version=before).orderBy("offset").select("offset", "Dest").collect()
    assert [tuple(row) for row in old] == [(0, None), (2, "IAH")]
    assert backfill(spark, lake, "events").is_equal
    assert misfits_in(target.load()) == 1, "of the older event too"
    ingested_more = Ingestion(spark, log, lake)
    ingested_more.store(0, 3)
    assert table(spark, lake, "events").count() == 2


def test_rows_that_differ_are_swapped_only_by_force(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log, lake = write_log(every_record(12)), tmp_path / "lake"
    ingested(spark, log, lake, 12)
    target = LakeTable(lake, named("deliveries"))
    delta = target.load()
    target.commit(delta, [], removed=target.files(delta)[:1])
    left = table(spark, lake, "deliveries").count()
    found = backfill(spark, lake, "deliveries")
    assert (found.is_equal, found.is_equal_in_fixed, found.is_swapped) == (False, False, False)
    assert (found.present.rows, found.rebuilt.rows) == (left, 2)
    assert table(spark, lake, "deliveries").count() == left
    assert backfill(spark, lake, "deliveries", is_forced=True).is_swapped
    assert table(spark, lake, "deliveries").count() == 2
    compact(spark, lake, named("deliveries"))
    assert not any(each.differs for each in reconcile(spark, log, lake))
