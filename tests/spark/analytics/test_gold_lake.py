"""Gold tables in a lake are those that are computed, are replaced in one commit, and any engine reads them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.analytics.random_records import RandomLog
from tests.spark.analytics.test_gold import gold_of, lake_of
from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.pipeline.analytics.gold_lake import store_gold
from wanderbus.pipeline.lake import table
from wanderbus.pipeline.operation.backfill import backfill
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.pipeline.tables.gold import GOLD_TABLES

pytestmark = pytest.mark.spark


def test_t08_gold_tables_have_their_specified_columns_and_are_replaced_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = lake_of(spark, RandomLog(8).grow(200), tmp_path)
    expected = gold_of(spark, lake)
    for commits in (1, 2):
        counts = store_gold(spark, lake)
        assert {name: (each.rows, each.rejected) for name, each in counts.items()} == {
            name: (len(frame), 0) for name, frame in expected.items()
        }
        assert not any(count for each in counts.values() for count in each.unmet.values())
        for each in GOLD_TABLES:
            delta = DeltaTable(lake / each.directory)
            assert (each.name, delta.version()) == (each.name, commits)
            assert sorted(expected[each.name].columns) == sorted(column.name for column in each.columns)
            files = delta.file_uris()
            rows = duckdb.read_parquet(files).count("*").fetchall()[0][0] if files else 0
            assert (each.name, rows) == (each.name, len(expected[each.name]))
    assert table(spark, lake, "session_counts").count() == len(expected["session_counts"])
    gold = {each.name for each in GOLD_TABLES}
    assert {each.offset for each in lake_status(lake, 201).tables if each.name in gold} == {201}


def test_t08_a_gold_table_is_no_silver_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="matches is a gold table; only silver tables"):
        backfill(spark, tmp_path, "matches")
    with pytest.raises(StorageError, match="run the pipeline first"):
        store_gold(spark, tmp_path)
