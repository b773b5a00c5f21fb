"""A run follows the log, stops cleanly, excludes others, and fails in one line (SPEC T-03)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import START_US, departure
from tests.spark.lake.killed_steps import Killed, KilledSteps, Step
from tests.spark.operation.conftest import records
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import Ingestion, compact, reconcile
from wanderbus.pipeline.lake.lake_domain import domain_in
from wanderbus.pipeline.lineage import runs
from wanderbus.pipeline.operation.lake_lock import is_locked, lake_lock
from wanderbus.pipeline.operation.log_run import PipelineFailed
from wanderbus.pipeline.operation.query_progress import RunProgress
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.pipeline.tables import named
from wanderbus.runtime.segment_files import LOG_DOMAIN

WriteLog = Callable[..., Path]
pytestmark = pytest.mark.spark


def test_a_run_stops_between_batches_and_the_next_one_continues(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    log, lake = write_log(records(), per_segment=4, durable=6), tmp_path / "lake"
    (log / LOG_DOMAIN).write_text("a.example")
    seen: list[RunProgress] = []
    first = PipelineRun(spark, log, lake, every_s=0.1, rows_per_batch=3, on_progress=seen.append)

    def stop_after_the_second(progress: RunProgress) -> None:
        seen.append(progress)
        if progress.offset == 6:
            assert is_locked(lake)
            first.stop.set()

    first._on_progress = stop_after_the_second
    counts = first.run()
    assert counts["records"].rows == 6
    assert [(each.offset, each.records) for each in seen] == [(3, 3), (6, 3)]
    assert not is_locked(lake)
    assert domain_in(lake) == "a.example"
    write_log(records(), per_segment=4)
    second = PipelineRun(spark, log, lake).run()
    assert (second["records"].rows, second["events"].rows) == (2, 2)
    assert not any(each.differs for each in reconcile(spark, log, lake))
    assert [(each.job, each.state) for each in runs(lake)] == [("run", "COMPLETE"), ("run", "COMPLETE")]
    status = lake_status(lake, durable=8)
    assert {each.name: (each.offset, each.lag) for each in status.tables if each.name != "quarantine"} == dict.fromkeys(
        ("records", "events", "notifications", "deliveries", "sessions", "subscriptions", "schemas"), (8, 0)
    )


def test_misfits_of_a_run_that_was_killed_before_its_lineage_are_counted(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log([*records(4), *(departure(number, START_US, Delay="late") for number in range(4, 7))], durable=6)
    lake = tmp_path / "lake"

    def is_commit_of_events(step: Step) -> bool:
        return (step.call, step.table) == ("create_write_transaction", "silver/events")

    with monkeypatch.context() as patch:
        KilledSteps(lake, patch, is_commit_of_events)
        with pytest.raises(Killed):
            Ingestion(spark, log, lake).store(0, 6)
    assert (lake_status(lake, 6).tables[1].misfits, runs(lake)) == (2, [])
    write_log([*records(4), *(departure(number, START_US, Delay="late") for number in range(4, 7))])
    PipelineRun(spark, log, lake).run()
    assert lake_status(lake, 7).tables[1].misfits == 3
    compact(spark, lake, named("events"))
    assert lake_status(lake, 7).tables[1].misfits == 3


def test_a_batch_that_a_stop_overtakes_is_not_recorded_as_done(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = write_log(records()), tmp_path / "lake"
    job = Ingestion(spark, log, lake)
    begun, go = threading.Event(), threading.Event()
    store = Ingestion.store

    def storing(self: Ingestion, first: int, end: int) -> None:
        begun.set()
        go.wait(30)
        store(self, first, end)

    with monkeypatch.context() as patched:
        patched.setattr(Ingestion, "store", storing)
        query = job.start(tmp_path / "checkpoint", rows_per_batch=4)
        assert begun.wait(60)
        threading.Timer(0.5, go.set).start()
        job.stop(query, batch_s_max=60)
    again = Ingestion(spark, log, lake)
    again.start(tmp_path / "checkpoint").awaitTermination()
    assert not any(each.differs for each in reconcile(spark, log, lake))
    assert lake_status(lake, 8).tables[0].offset == 8


def test_a_second_job_on_a_lake_is_refused(spark: SparkSession, write_log: WriteLog, tmp_path: Path) -> None:
    log, lake = write_log(records()), tmp_path / "lake"
    with (
        lake_lock(lake),
        pytest.raises(StorageError, match=r"another job \(process \d+\) changes \S+lake; end it first"),
    ):
        PipelineRun(spark, log, lake).run()
    with lake_lock(lake):
        assert is_locked(lake)
    assert not is_locked(lake)


def test_a_failure_is_one_line_with_its_place(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = write_log(records(), per_segment=3), tmp_path / "lake"

    def fail(self: Ingestion, first: int, end: int) -> None:
        spark.sql("select raise_error('no room\\nat line two')").collect()

    PipelineRun(spark, write_log(records(), per_segment=3, durable=4), lake).run()
    write_log(records(), per_segment=3)
    monkeypatch.setattr(Ingestion, "store", fail)
    with pytest.raises(PipelineFailed) as failure:
        PipelineRun(spark, log, lake).run()
    text = str(failure.value)
    assert "\n" not in text
    assert "no room" in text
    assert "\tat " not in text
    assert f"{log}/00000000000000000003.seg (record 4)" in text
    last = runs(lake)[-1]
    assert (last.state, last.error) == ("FAIL", text)


def test_a_batch_after_a_stop_is_refused(tmp_path: Path) -> None:
    job = Ingestion(Mock(), tmp_path / "log", tmp_path / "lake")
    query = Mock()
    job.stop(query, batch_s_max=1)
    query.stop.assert_called_once_with()
    with pytest.raises(StorageError, match="stopped before this batch"):  # Spark records a batch that returns
        job._on_batch(Mock(), 1)
