"""The job log → lake and a query of history on one core, on two cores and on two workers of a standalone cluster.

Each place is measured by a process of its own, which prints a line of JSON for each run: this file, run as a program.
A first run warms up. The lakes and the matches of all places are compared row for row.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from bench.process_times import tree_s
from bench.spark_lake import DECLARED
from harness.lakes import differences
from harness.reporting import Goal, goal, progress
from wanderbus.pipeline import history
from wanderbus.pipeline.class_archive import fast_start_options
from wanderbus.pipeline.cluster.environment import pack
from wanderbus.pipeline.lake import ingest
from wanderbus.pipeline.session import spark_session
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.subscription import Subscription
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process
from wanderbus.testbed.spark_cluster import HOST, SparkCluster

RUNS: Final = 2
RUN_S_MAX: Final = 600.0
MASTERS: Final = {"one core": "local[1]", "two cores": "local[2]"}
CLUSTER: Final = "two workers"
SUBSCRIPTIONS: Final = 1_000

_JVM: Final = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
"""Java's optimizing compiler on this machine too, as executors have it."""


class Measured(NamedTuple):
    """Rate of one run of a job, by the clock and by processor time."""

    step: str
    where: str
    records_per_s: float
    records_per_cpu_s: float


class Results(NamedTuple):
    """Rates of all runs, the number of rows and matches in which a place differs from the first one, and sizes."""

    rates: list[Measured]
    differences: int
    log_bytes_per_record: float
    lake_bytes_per_record: float


def measure(log: Path, work: Path, count: int) -> Results:
    """Measure all places."""
    rates: list[Measured] = []
    matches: dict[str, str] = {}
    for where, master in MASTERS.items():
        progress(f"measuring on {where}")
        matches[where] = _measure_place(where, [master, "", str(log), str(work / where)], count, rates, [])
    progress("packing the environment")
    environment = work / "environment.tar.gz"
    pack(environment, has_kernel=True)
    with SparkCluster(work, java_options=fast_start_options()) as cluster:
        progress(f"measuring on {CLUSTER}")
        arguments = [cluster.master, str(environment), str(log), str(work / CLUSTER)]
        daemons = [each.pid for each in cluster.workers]
        matches[CLUSTER] = _measure_place(CLUSTER, arguments, count, rates, daemons)
    first, *others = [*MASTERS, CLUSTER]
    found = sum(sum(differences(work / first, work / each).values()) for each in others)
    sizes = [_bytes_below(each) / count for each in (log, work / first)]
    return Results(rates, found + len(set(matches.values())) - 1, *sizes)


def goals(results: Results) -> list[Goal]:
    """Return the goals of the cluster."""
    best = {
        key: max(each.records_per_s for each in results.rates if (each.step, each.where) == key)
        for key in {(each.step, each.where) for each in results.rates}
    }
    one, two, workers = (best["lake", where] for where in (*MASTERS, CLUSTER))
    history_one, history_two, history_workers = (best["history", where] for where in (*MASTERS, CLUSTER))
    return [
        goal("cluster_differences", results.differences, "rows", most=0),
        goal("cluster_rows_per_s", workers, "1/s"),
        goal("cluster_vs_two_cores", workers / two, "ratio"),
        goal("lake_two_cores_vs_one", two / one, "ratio"),
        goal("cluster_history_events_per_s", history_workers, "1/s"),
        goal("cluster_history_vs_two_cores", history_workers / history_two, "ratio"),
        goal("history_two_cores_vs_one", history_two / history_one, "ratio"),
        goal("log_bytes_per_record", results.log_bytes_per_record, "bytes"),
        goal("lake_bytes_per_record", results.lake_bytes_per_record, "bytes"),
    ]


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _measure_place(where: str, arguments: list[str], count: int, rates: list[Measured], daemons: list[int]) -> str:
    """Add the rates of one place; return the digest of its matches."""
    lake = Path(arguments[-1])
    with Process(where, python("bench.spark_cluster", *arguments), lake.with_suffix(".log"), read=True) as driver:
        while True:
            before_s = sum(map(tree_s, [driver.pid, *daemons]))
            line = json.loads(driver.line(RUN_S_MAX))
            cpu_s = sum(map(tree_s, [driver.pid, *daemons])) - before_s
            if "matches" in line:
                return str(line["matches"])
            if line["run"]:
                rate = Measured(line["step"], where, count / line["taken_s"], count / max(cpu_s, 0.01))
                rates.append(rate)
                print(f"{rate.step:8} on {where:12} {rate.records_per_s:>10,.0f} records/s", flush=True)


def _run(master: str, environment: str, log: Path, lake: Path) -> None:
    """Run the jobs in this process."""
    settings = {"spark.driver.host": HOST, "spark.executor.memory": "768m", **_JVM}
    spark = spark_session("wanderbus-bench", master=master, environment=environment or None, settings=settings)
    try:
        for run in range(RUNS + 1):
            target = lake if run == RUNS else lake.with_name(f"{lake.name} {run}")
            began_s = time.monotonic()
            ingest(spark, log, target, target.with_name(f"{target.name} checkpoint"), declared=DECLARED)
            _print(step="lake", run=run, taken_s=time.monotonic() - began_s)
        for run in range(RUNS + 1):
            began_s = time.monotonic()
            found = _matches(spark, log)
            _print(step="history", run=run, taken_s=time.monotonic() - began_s)
        _print(matches=found)
    finally:
        spark.stop()


def _matches(spark: SparkSession, log: Path) -> str:
    """Return a digest of all matches of the events of the log."""
    wanted = [
        Subscription(
            str(number), "sip:u@d", "s", "Departure", f"Flight < {number} and Dest == 'IAH' and Distance > 1000"
        )
        for number in range(SUBSCRIPTIONS)
    ]
    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    events = spark.read.format(FORMAT).schema(columns).load(str(log)).where("kind = 'published'")
    rows = sorted((row.offset, sorted(row.subscriptions)) for row in history.match(events, wanted).collect())
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _print(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
