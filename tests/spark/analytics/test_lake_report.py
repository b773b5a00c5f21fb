"""Report and gold tables of a small lake take few jobs of Spark, and the report is one file (SPEC T-08)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.analytics.random_records import RandomLog
from tests.spark.analytics.test_gold import lake_of
from wanderbus.pipeline.analytics import coverings, write_report
from wanderbus.pipeline.analytics.gold_lake import store_gold

pytestmark = pytest.mark.spark

REPORT_TASKS_MAX = 80
GOLD_JOBS_MAX = 15
"""The gold tables are written by one job; the others compute what they share, and what Spark sends to all tasks."""


def jobs_and_tasks(spark: SparkSession, name: str, work: Callable[[], object]) -> tuple[int, int]:
    """Do the work, and return the numbers of the jobs and tasks of Spark that it took."""
    spark.sparkContext.setJobGroup(name, name)
    work()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(name)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = [tracker.getStageInfo(each) for each in stages]
    return len(jobs), sum(each.numCompletedTasks for each in found if each is not None)


def test_t08_a_small_lake_takes_few_jobs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverings, "FILTERS_MAX", 1)
    log = RandomLog(8).grow(200)
    lake, path = lake_of(spark, log, tmp_path), tmp_path / "report.html"
    found = []
    _, tasks = jobs_and_tasks(spark, "report", lambda: found.append(write_report(spark, lake, path)))
    assert 0 < tasks <= REPORT_TASKS_MAX
    assert path.read_text().startswith("<!doctype html>")
    live = {(each.subject, each.expression) for each in (row.subscription for row in log.state.subscriptions.values())}
    assert found[0].totals.uncompared == len(live) - len({subject for subject, _ in live}) > 0
    jobs, _ = jobs_and_tasks(spark, "gold", lambda: store_gold(spark, lake))
    assert 0 < jobs <= GOLD_JOBS_MAX
