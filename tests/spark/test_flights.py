"""A tenth of the flights of a year: Spark, pandas and DuckDB have the same figures; ``./do bench flights`` has all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench import flights

pytestmark = pytest.mark.spark


def test_every_figure_of_the_flights_is_that_of_pandas_and_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert flights.main(["--rows", "33677", "--json", str(report), "--strict"]) == 0
    (result,) = json.loads(report.read_text())["results"]
    assert (result["events"], result["figures"]) == (33_677, 11)
    assert result["turnarounds"] > 10


def test_a_figure_that_differs_is_named() -> None:
    assert flights.differing({"a": [(1,)], "b": [(2,)], "c": []}, {"a": [(1,)], "b": [(3,)]}) == ["b"]
