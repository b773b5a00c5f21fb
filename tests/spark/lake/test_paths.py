"""T-03: a lake is written and read wherever it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline.analytics.gold_lake import store_gold
from wanderbus.pipeline.history import Selection, lake_events, match
from wanderbus.pipeline.lake import compact, ingest
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.reading import existing_tables, table
from wanderbus.pipeline.lake.reconciliation import reconcile
from wanderbus.pipeline.operation.lake_lock import lake_lock
from wanderbus.pipeline.source.options import LogOptions
from wanderbus.pipeline.tables import RECORDS
from wanderbus.records import Published
from wanderbus.subscription import Subscription

USERS = ["sip:bob@localhost"]
NAMES = ["_a b#c?d{e,f}[g]*ü 50% o\"'$`|<>;&"]
MISREAD = ["a%20b", "a\\b", "a\nb"]


@pytest.mark.parametrize("name", NAMES)
def test_t03_a_lake_is_read_wherever_it_is_written(
    spark: SparkSession,
    write_log: Callable[..., Path],
    make_published: Callable[..., Published],
    tmp_path: Path,
    name: str,
) -> None:
    log = write_log([make_published(row, USERS) for row in range(10)], name=f"{name}/log")
    lake = tmp_path / name / "lake"
    for rows in (4, 3):
        ingest(spark, log, lake, lake / "_checkpoint", rows_per_batch=rows)
    assert table(spark, lake, "events").count() == 10
    assert table(spark, lake, "events", conditions=[("offset", ">=", 8)]).count() == 2
    wanted = Subscription("s", USERS[0], "default", "Departure", "Row < 5")
    found = match(lake_events(spark, lake, Selection(from_offset=2)), [wanted])
    assert sorted(row.offset for row in found.collect()) == [2, 3, 4]
    assert not any(each.differs for each in reconcile(spark, log, lake))
    assert compact(spark, lake, RECORDS).added == 1
    assert table(spark, lake, "records").count() == 10
    store_gold(spark, lake)
    assert table(spark, lake, "subject_counts").count() == 1
    assert sorted(os.listdir(tmp_path)) == [name]


@pytest.mark.parametrize("name", MISREAD)
def test_t03_a_path_that_delta_would_misread_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    lake = tmp_path / name / "lake"
    lake.parent.mkdir()
    for each in (lambda: existing_tables(lake), lambda: LakeTable(lake, RECORDS), lambda: lake_lock(lake).__enter__()):
        with pytest.raises(StorageError, match="cannot be the path of a lake"):
            each()
    (tmp_path / "link").symlink_to(lake.parent)
    with pytest.raises(StorageError, match="cannot be the path of a lake"):
        LakeTable(tmp_path / "link" / "lake", RECORDS)
    assert not lake.exists()


@pytest.mark.parametrize("name", [*NAMES, *MISREAD])
def test_t02_a_log_is_found_by_its_path_and_by_its_address(write_log: Callable[..., Path], name: str) -> None:
    log = write_log([], name=f"{name}/log")
    for given in (str(log), log.as_uri()):
        assert LogOptions.parse({"path": given}, "wanderbus").path == log
