"""``./do lakekill``: a real job that is really killed; and a comparison that finds inserted differences."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from faults import lakekill
from faults.lake_differences import differences
from faults.lake_log import DECLARED, GrowingLog
from wanderbus.pipeline.lake import ingest, table
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.tables import named

pytestmark = pytest.mark.spark


def test_a_killed_job_has_the_lake_of_one_that_was_not(spark: SparkSession, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--cycles", "1", "--seed", "5", "--json", str(report), "--strict"]
    assert lakekill.main(options) == 0
    written = json.loads(report.read_text())
    assert [(goal["name"], goal["value"]) for goal in written["goals"]] == [
        ("restarts_differences", 0),
        ("reconcile_differences", 0),
        ("origin_differences", 0),
    ]
    assert written["results"][0]["records"] > 0
    assert sum(written["results"][0]["kills"].values()) >= 1


def test_the_comparison_finds_a_row_that_is_repeated_or_lacks(spark: SparkSession, tmp_path: Path) -> None:
    growing = GrowingLog(tmp_path / "log", Random(3))
    growing.grow(60)
    growing.close()
    lake, more = tmp_path / "lake", tmp_path / "more"
    ingest(spark, tmp_path / "log", lake, tmp_path / "checkpoint", declared=DECLARED)
    shutil.copytree(lake, more)
    assert set(differences(spark, lake, more).values()) == {0}

    events = LakeTable(more, named("events")).as_it_is()
    again = table(spark, more, "events").limit(1)
    events.commit(events.load(), events.write(again).files)
    for one, other in ((lake, more), (more, lake)):
        assert {name: count for name, count in differences(spark, one, other).items() if count} == {"events": 1}
