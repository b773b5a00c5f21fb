"""Attributes survive as variants: every type of SPEC A-13, infinite numbers and NaN too."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from tests.published import published
from tests.spark.source.record_strategies import attributes
from wanderbus.event import Event
from wanderbus.pipeline.source import log_schema
from wanderbus.pipeline.source.variants import variant_of
from wanderbus.records import Record

VALUES: dict[str, Any] = {
    "text": "IAH",
    "empty": "",
    "long": "ü" * 100,
    "small": -7,
    "sixteen": 300,
    "thirty-two": -70_000,
    "sixty-four": 2**63 - 1,
    "double": 2.5,
    "minus zero": -0.0,
    "infinite": math.inf,
    "minus infinite": -math.inf,
    "truth": True,
    "lie": False,
    "date": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "list": ["a", 1, 2.5, False, math.inf, []],
}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (left == right and math.copysign(1, left) == math.copysign(1, right)) or (
            left != left and right != right
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def assert_survives(values: dict[str, Any]) -> None:
    value, metadata = variant_of(values)
    read = VariantVal(value, metadata).toPython()
    assert read.keys() == values.keys()
    assert all(same(read[name], values[name]) for name in values), (read, values)


@example(VALUES)
@example({})
@example({f"name {number}": number for number in range(300)})
@example({"many": list(range(300))})
@example({"large": "x" * 70_000, "larger": "y" * 20_000_000})
@given(attributes)
def test_attributes_survive(values: dict[str, Any]) -> None:
    """Read by PySpark's own decoder."""
    assert_survives(values)


@pytest.mark.parametrize("value", [None, {"a": 1}, 2**63, b"x"])
def test_a_value_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        variant_of({"a": value})


def test_names_are_in_the_order_of_java() -> None:
    """By units of UTF-16; Spark finds a name among many by bisection."""
    names = ["b", "a", "aa", "\uffee", "\U0001f600", "Z"]
    value, metadata = variant_of(dict.fromkeys(names, 1))
    assert list(VariantVal(value, metadata).toPython()) == ["Z", "a", "aa", "b", "\U0001f600", "\uffee"]


@pytest.mark.spark
def test_spark_reads_each_attribute_as_its_type(spark: SparkSession, write_log: Callable[..., Path]) -> None:
    """Java's decoder: names are found, also among many, and no double is lost."""
    many = {f"n{number}": number for number in range(40)} | {"\uffee": "before", "\U0001f600": "after"}
    records: list[Record] = [
        published(Event("E", values), number=1) for values in (VALUES, many, {"nan": math.nan, "infinite": -math.inf})
    ]
    log = write_log(records)
    table = spark.read.format("wanderbus").schema(log_schema("offset", "attributes")).load(str(log)).orderBy("offset")
    first, second, third = (row["attributes"].toPython() for row in table.collect())
    assert all(same(first[name], VALUES[name]) for name in VALUES)
    assert second == many
    assert math.isnan(third["nan"])
    assert third["infinite"] == -math.inf

    def get(name: str, kind: str) -> list[Any]:
        return [row[0] for row in table.selectExpr(f"try_variant_get(attributes, '$[\"{name}\"]', '{kind}')").collect()]

    assert get("infinite", "double") == [math.inf, None, -math.inf]
    assert get("n39", "int") == [None, 39, None]
    assert get("\uffee", "string") == [None, "before", None]
    assert get("\U0001f600", "string") == [None, "after", None]
    assert get("sixty-four", "bigint")[0] == 2**63 - 1
    [date, *_] = table.selectExpr("unix_micros(try_variant_get(attributes, '$.date', 'timestamp'))").collect()
    assert date[0] == (VALUES["date"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
