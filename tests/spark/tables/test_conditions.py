"""A check's condition means the same in Spark's SQL, which people read, and on Arrow columns (SPEC T-03)."""

from __future__ import annotations

import datetime
import random
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from wanderbus.pipeline.lake.table_files import arrow_schema
from wanderbus.pipeline.tables import ALL_TABLES, TableSpecification
from wanderbus.pipeline.tables.conditions import column
from wanderbus.pipeline.tables.schemas import spark_schema

ROWS: Final = 200
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "string": ("", "acknowledged", "dropped", "CONNECTED", "DISCONNECTED", "other", "moved", None),
    "bigint": (-1, 0, 1, 2, 60_000_001, 60_000_002, None),
    "double": (0.5, None),
    "boolean": (True, False, None),
    "date": (datetime.date(2026, 11, 23), None),
    "binary": (b"x", None),
    "array<string>": ([], ["s1"], None),
    "variant": (None,),
}


@pytest.mark.spark
@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_the_text_and_the_evaluation_agree(spark: SparkSession, table: TableSpecification) -> None:
    chance = random.Random(18)
    rows = [{each.name: chance.choice(VALUES[each.type]) for each in table.columns} for _ in range(ROWS)]
    own = pa.RecordBatch.from_pylist(rows, arrow_schema(table))
    in_spark = spark.createDataFrame([tuple(row.values()) for row in rows], spark_schema(table))
    texts = [f"coalesce({check.condition}, false)" for check in table.all_checks]
    found = in_spark.selectExpr(*texts).collect()
    for place, check in enumerate(table.all_checks):
        met = check.condition.met(own).to_pylist()
        assert met == [row[place] for row in found], check.name
        assert len(set(met)) == 2, f"{check.name} is not tried both ways"


def test_parentheses_show_what_belongs_together() -> None:
    assert str((column("a") == 1) == column("b").is_null()) == "(a = 1) = (b is null)"
    assert str((column("a") + 1 > 2) | column("b").is_in("x", "y")) == "a + 1 > 2 or b in ('x', 'y')"
    assert str(((column("a") > 1) | (column("b") > 1)) == True) == "(a > 1 or b > 1) = True"  # noqa: E712
