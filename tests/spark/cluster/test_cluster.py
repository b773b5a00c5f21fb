"""Jobs on a cluster have the same output as on this machine, also if a worker is killed meanwhile.

SPEC T-06, T-09, T-11.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import wanderbus
from harness.lakes import differences, rows_of
from tests.published import published
from tests.spark.cluster import jobs
from tests.spark.cluster.engine_matches import expected, matches_of, write_data
from tests.spark.engine.running import running_engine
from wanderbus.evaluation.points import MOBILITY, run_point
from wanderbus.event import DeclaredAttribute, Event
from wanderbus.pipeline.class_archive import fast_start_options
from wanderbus.pipeline.cluster import environment
from wanderbus.pipeline.cluster.distributions import needed
from wanderbus.pipeline.tables import TABLES
from wanderbus.records import (
    Acknowledged,
    Attached,
    Dropped,
    Notified,
    SchemaDeclared,
    Started,
    Subscribed,
    Unsubscribed,
    encode_record,
)
from wanderbus.runtime.services.engine import EventMatches
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Subscription
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process
from wanderbus.testbed.spark_cluster import HOST, SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RECORDS = 6_000
PER_SEGMENT = 2_000
START_US = 1_700_000_000_000_000
STEP_US = 20_000_000
SCHEMA_AT = 5
USER = "sip:bob@localhost"
JOB_S_MAX = 500.0


class Run(NamedTuple):
    """The jobs of a cluster: the log, the directory with their lakes, and the lines that they printed.

    ``matches`` are those of the matching engine.
    """

    log: Path
    work: Path
    cluster: Path
    lines: list[dict[str, Any]]
    matches: list[EventMatches]

    def end_of(self, job: str) -> dict[str, Any]:
        """Return the line that a job printed at its end."""
        [line] = [each for each in self.lines if each["job"] == job and each["ended"]]
        return line


def payload(offset: int) -> bytes:
    """Return one of the records: of every kind that a silver table has, and some that cannot be decoded."""
    at_us, kind = START_US + offset * STEP_US, offset % 12
    name = f"s{offset // 12}"
    if offset == 0:
        return encode_record(Started(at_us=at_us, server="wb", incarnation=7))
    if offset == SCHEMA_AT:
        attributes = tuple(DeclaredAttribute(*each) for each in jobs.DECLARED["Departure"].items())
        return encode_record(
            SchemaDeclared(at_us=at_us, subject="Departure", version=1, attributes=attributes, by=USER)
        )
    if offset % 1_001 == 0:
        return b"\xc1 is no msgpack"
    if kind == 0:
        return encode_record(Attached(at_us=at_us, user=USER, session="default", device="d", epoch=offset))
    if kind == 1:
        subscription = Subscription(name, USER, "default", "Departure", f"Row == {offset}")
        return encode_record(Subscribed(at_us=at_us, subscription=subscription, number=offset))
    if kind == 2:
        return encode_record(Acknowledged(at_us=at_us, user=USER, session="default", device="d", number=offset))
    if kind == 3:
        return encode_record(Dropped(at_us=at_us, user=USER, session="default", first=1, last=offset, reason="full"))
    if kind == 4 and offset % 24 == 4:
        return encode_record(Unsubscribed(at_us=at_us, user=USER, subscription=name, reason="asked"))
    values = {"Row": offset % 1_000, "Dest": ("IAH", "SFO", "JFK")[offset % 3], "Delay": offset % 300 + 0.5}
    event = Event(("Departure", "Arrival")[offset % 2], {**values, "Note": f"n{offset}"}, published_us=at_us - 500)
    notified = (Notified(USER, "default", offset, (name,)),)
    return encode_record(published(event, at_us=at_us, user="sip:airline@localhost", number=offset, notified=notified))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("log")
    for first in range(0, RECORDS, PER_SEGMENT):
        offsets = range(first, min(first + PER_SEGMENT, RECORDS))
        frames = (pack_frame(offset, START_US + offset * STEP_US, payload(offset)) for offset in offsets)
        (directory / segment_name(first)).write_bytes(HEADER + b"".join(frames))
    (directory / HIGH_WATER).write_bytes(pack_mark(RECORDS))
    return directory


@pytest.fixture(scope="module")
def run(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run all jobs; kill the first worker in the middle of one, and the second in the middle of another."""
    work = tmp_path_factory.mktemp("cluster")
    archive = work / "environment.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        # Each worker would compile numba's kernel for ten seconds; numpy's is the other one.
        patch.setattr(environment, "needed", lambda included: needed(included) - {"numba", "llvmlite"})
        patch.setattr(environment, "COMPRESSION", 0)  # it is unpacked at once, for each executor
        environment.pack(archive)
    lines: list[dict[str, Any]] = []
    with SparkCluster(work, java_options=fast_start_options()) as cluster:
        argv = python("tests.spark.cluster.jobs", cluster.master, str(archive), str(log), str(work))
        with Process("driver", argv, work / "driver.log", read=True) as driver:
            while not lines or lines[-1].get("job") != jobs.JOBS[-1] or not lines[-1]["ended"]:
                lines.append(json.loads(driver.line(JOB_S_MAX)))
                if lines[-1].get("ended") is False:
                    cluster.workers[jobs.JOBS.index(lines[-1]["job"])].kill()
                    cluster.add_worker()
        _run_command(log, work, cluster, archive)
        yield Run(log, work, work, lines, _run_engine(work, cluster, archive))


def _run_command(log: Path, work: Path, cluster: SparkCluster, archive: Path) -> None:
    """Make a lake by ``wanderbus pipeline run`` on the cluster, with its end in ``command.log``."""
    options = ["--once", "--json", "--master", cluster.master, "--environment", str(archive)]
    argv = python("wanderbus", "pipeline", "run", str(log), "--lake", str(work / "command"), *options)
    with Process("command", argv, work / "command.log", more_environment={"SPARK_LOCAL_IP": HOST}) as command:
        command.wait(JOB_S_MAX)
        assert command.status == 0, command


def _run_engine(work: Path, cluster: SparkCluster, archive: Path) -> list[EventMatches]:
    """Return the matches of ``wanderbus pipeline engine`` on the cluster; kill a worker in the middle."""
    last = cluster.work_of(len(cluster.workers) - 1)
    before = set(last.glob("app-*"))

    def kill_worker() -> None:
        assert set(last.glob("app-*")) - before, "the worker runs a part of the engine"
        cluster.workers[-1].kill()
        cluster.add_worker()

    data = write_data(work / "data")
    argv = python(
        "wanderbus", "pipeline", "engine", str(data), "--master", cluster.master, "--environment", str(archive)
    )
    with Process("engine", argv, work / "engine.log", read=True, more_environment={"SPARK_LOCAL_IP": HOST}) as engine:
        assert engine.line(JOB_S_MAX).startswith("ready")
        found = matches_of(data, kill_worker)
        assert engine.end(JOB_S_MAX) == 0, engine
    return found


@pytest.fixture(scope="module")
def local(log: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lake that this machine makes of the log."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    jobs.fill(spark, log, lake)
    return lake


def test_a_worker_killed_while_the_lake_is_made_changes_nothing(run: Run, local: Path) -> None:
    assert differences(run.work / "killed-ingest", local) == {}
    executors = run.end_of("killed-ingest")["executors"]
    assert [each["active"] for each in executors].count(False) == 1


def test_history_of_a_cluster_is_that_of_this_machine_also_if_a_worker_is_killed(run: Run, spark: SparkSession) -> None:
    here = jobs.matches(spark, run.log)
    assert len(here) > 1_000
    assert run.end_of("killed-history")["matches"] == here
    lost = [each for each in run.end_of("killed-history")["executors"] if not each["active"]]
    assert len(lost) == 2
    assert all(each["done"] for each in lost), "both had done tasks"


def test_the_command_makes_the_same_lake_on_a_cluster(run: Run, local: Path) -> None:
    assert all(rows_of(local, table) for table in TABLES), "every table has rows to compare"
    assert len(differences(local, run.work / "none")) == len(TABLES), "differences are found"
    assert differences(run.work / "command", local) == {}
    added = json.loads((run.work / "command.log").read_text().splitlines()[-1])["added"]
    assert added["records"]["rows"] == rows_of(local, TABLES[0]).total()
    applications = {path.name for path in run.cluster.glob("work-*/app-*")}
    assert len(applications) == 3, "the workers ran the jobs, the command and the engine"


def test_t06_matches_on_a_cluster_are_those_of_this_machine_also_if_a_worker_is_killed(
    run: Run, spark: SparkSession
) -> None:
    with running_engine(spark, run.work / "data"):
        here = matches_of(run.work / "data")
    assert run.matches == here == expected()


def test_points_of_a_grid_on_a_cluster_equal_direct_runs(run: Run) -> None:
    assert run.lines[0]["grid"] == [run_point(MOBILITY.name, point) for point in jobs.POINTS]


def test_workers_import_from_the_environment_of_the_job_alone(run: Run) -> None:
    began = run.lines[0]
    assert began["packages"]
    assert all(path.startswith(str(run.cluster / "work-")) for path in began["packages"])
    assert str(Path(wanderbus.__file__).parents[1]) not in began["path"]
