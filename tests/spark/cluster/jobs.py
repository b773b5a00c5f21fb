"""Jobs that run on this machine and on a cluster, and the program that runs them there.

The program prints a line of JSON when a job has done some of its tasks, and another one when the job has ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import SparkStageInfo
from pyspark.sql import SparkSession

from wanderbus.cli.pipeline.task_progress import watched_stages
from wanderbus.evaluation.grid import Cell, Experiment, Outage
from wanderbus.evaluation.points import MOBILITY, run_point
from wanderbus.pipeline import history
from wanderbus.pipeline.class_archive import fast_start_options
from wanderbus.pipeline.grids import run_points
from wanderbus.pipeline.lake import ingest
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.subscription import EVERY_SUBJECT, Subscription

JOBS: Final = ("killed-ingest", "killed-history")
DECLARED: Final[Declared] = {"Departure": {"Row": "Integer", "Dest": "String", "Delay": "Double"}}
JAVA_OPTIONS: Final = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
ROWS_PER_BATCH: Final = 3_000
ROWS_PER_PARTITION: Final = 250
SUBSCRIPTIONS: Final = (
    ("Departure", "Dest == 'IAH' and Delay > 100"),
    ("Departure", "Delay > 250"),
    ("Arrival", "Dest != 'IAH' or Row < 100"),
    (EVERY_SUBJECT, "Row > 900"),
)

POINTS: Final = [MOBILITY.encode((Cell(100, 20), Experiment(Outage.RANDOM, events=200), seed)) for seed in range(6)]

Matches = list[list[Any]]


def fill(spark: SparkSession, log: Path, lake: Path, rows_per_batch: int | None = None) -> None:
    """Make the lake of the log."""
    checkpoint = lake.with_name(f"{lake.name}-checkpoint")
    ingest(spark, log, lake, checkpoint, rows_per_batch=rows_per_batch, declared=DECLARED)


def matches(spark: SparkSession, log: Path) -> Matches:
    """Return the matches of all events of the log, in many tasks."""
    wanted = [Subscription(f"s{n}", "sip:u@d", "s", *each) for n, each in enumerate(SUBSCRIPTIONS)]
    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    source = spark.read.format(FORMAT).schema(columns).option("rowsPerPartition", str(ROWS_PER_PARTITION))
    found = history.match(source.load(str(log)).where("kind = 'published'"), wanted)
    return sorted([row.offset, sorted(row.subscriptions)] for row in found.collect())


def outcomes(spark: SparkSession) -> list[list[str]]:
    """Return the outcomes of the points of a grid."""
    return [each.parts for wave in run_points(spark, partial(run_point, MOBILITY.name), POINTS) for each in wave]


def main(master: str, environment: str, log: Path, work: Path) -> None:
    """Run all jobs in one application on the cluster."""
    settings = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    settings |= dict.fromkeys(JAVA_OPTIONS, fast_start_options())
    spark = spark_session("wanderbus-cluster-test", master=master, environment=environment, settings=settings)
    try:
        _print(job="begin", packages=_packages(spark), path=_path_in(spark), grid=outcomes(spark))
        for job in JOBS:
            with watched_stages(spark, 0.01, _report_of(job)):
                if job == "killed-ingest":
                    fill(spark, log, work / job, ROWS_PER_BATCH)
                found = matches(spark, log) if job == "killed-history" else None
            _print(job=job, ended=True, matches=found, executors=_executors(spark))
    finally:
        spark.stop()


def _report_of(job: str) -> Callable[[Sequence[SparkStageInfo]], None]:
    """Return a function that prints a line once a stage of several tasks is in the middle."""
    is_reported = False

    def report(stages: Sequence[SparkStageInfo]) -> None:
        nonlocal is_reported
        is_middle = any(each.numTasks > 1 and 0 < each.numCompletedTasks < each.numTasks for each in stages)
        if is_middle and not is_reported:
            is_reported = True
            _print(job=job, ended=False)

    return report


def _packages(spark: SparkSession) -> list[str]:
    """Return the files from which the workers import wanderbus."""

    def imported(numbers: Iterable[int]) -> Iterator[str]:
        import wanderbus

        yield wanderbus.__file__

    return sorted(set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(imported).collect()))


def _path_in(spark: SparkSession) -> list[str]:
    """Return the paths from which the workers import other packages."""

    def paths(numbers: Iterable[int]) -> Iterator[str]:
        import sys

        yield from sys.path

    return sorted(set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(paths).collect()))


def _executors(spark: SparkSession) -> list[dict[str, Any]]:
    """Return the executors that there were so far."""
    found: Any = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    every = [found.apply(place) for place in range(found.size())]
    return [
        {"id": each.id(), "active": each.isActive(), "done": each.completedTasks(), "failed": each.failedTasks()}
        for each in every
        if each.id() != "driver"
    ]


def _print(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
