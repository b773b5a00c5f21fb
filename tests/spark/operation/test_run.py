"""A run follows the log, stops cleanly, excludes others, and fails in one line (SPEC T-03)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import departure
from wanderbus.errors import StorageError
from wanderbus.event import DeclaredAttribute
from wanderbus.pipeline.lake import Ingestion, reconcile
from wanderbus.pipeline.lineage import LINEAGE_FILE, runs
from wanderbus.pipeline.operation.lake_lock import is_locked, lake_lock
from wanderbus.pipeline.operation.run import PipelineFailed, PipelineRun, RunProgress
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.records import Record, SchemaDeclared

WriteLog = Callable[..., Path]
START_US = 1_700_000_000_000_000
pytestmark = pytest.mark.spark


def records(count: int = 8) -> list[Record]:
    delay = SchemaDeclared(
        at_us=START_US,
        subject="Departure",
        version=1,
        attributes=(DeclaredAttribute("Delay", "Integer"),),
        by="sip:a@b",
    )
    return [delay, *(departure(number, START_US + number, Delay=number) for number in range(1, count))]


def test_a_run_stops_between_batches_and_the_next_one_continues(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    log, lake = write_log(records(), per_segment=4, durable=6), tmp_path / "lake"
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
    write_log(records(), per_segment=4)
    second = PipelineRun(spark, log, lake).run()
    assert (second["records"].rows, second["events"].rows) == (2, 2)
    assert not any(each.differs for each in reconcile(spark, log, lake))
    assert [(each.job, each.state) for each in runs(lake)] == [("run", "COMPLETE"), ("run", "COMPLETE")]
    status = lake_status(lake, durable=8)
    assert {each.name: (each.offset, each.lag) for each in status.tables if each.name != "quarantine"} == dict.fromkeys(
        ("records", "events", "notifications", "deliveries", "sessions", "subscriptions", "schemas"), (8, 0)
    )


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


def test_lineage_meets_the_requirements_of_the_specification(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    log, lake = write_log([*records(4), departure(4, START_US, Delay="late")]), tmp_path / "lake"
    PipelineRun(spark, log, lake, lineage_copy=tmp_path / "copy.jsonl").run()
    text = (lake / LINEAGE_FILE).read_text()
    assert (tmp_path / "copy.jsonl").read_text() == text
    start, complete = map(json.loads, text.splitlines())
    for event in (start, complete):
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
        assert event["run"]["runId"] == start["run"]["runId"]
        assert event["job"] == {"namespace": "wanderbus", "name": "run"}
        for dataset in (*event["inputs"], *event["outputs"]):
            assert {"namespace", "name"} <= dataset.keys()
            for kind in ("facets", "inputFacets", "outputFacets"):
                for facet in dataset.get(kind, {}).values():
                    assert {"_producer", "_schemaURL"} <= facet.keys()
    assert (start["eventType"], start["outputs"], complete["eventType"]) == ("START", [], "COMPLETE")
    (source,) = complete["inputs"]
    assert (source["name"], source["inputFacets"]["wanderbus_offsets"]["end"]) == (str(log), 5)
    events = next(each for each in complete["outputs"] if each["name"].endswith("silver/events"))
    assert events["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert events["outputFacets"]["outputStatistics"]["size"] > 0
    assert events["facets"]["version"]["datasetVersion"] == str(lake_status(lake, 5).tables[1].version)
    assert {"name": "Delay", "type": "bigint"} in [
        {name: each[name] for name in ("name", "type")} for each in events["facets"]["schema"]["fields"]
    ]
    assert all(
        {"assertion", "success"} <= each.keys() for each in events["facets"]["dataQualityAssertions"]["assertions"]
    )
    assert lake_status(lake, 5).tables[1].misfits == 1


def test_a_batch_after_a_stop_is_refused(tmp_path: Path) -> None:
    job = Ingestion(Mock(), tmp_path / "log", tmp_path / "lake")
    query = Mock()
    job.stop(query, batch_s_max=1)
    query.stop.assert_called_once_with()
    with pytest.raises(StorageError, match="stopped before this batch"):  # Spark records a batch that returns
        job._on_batch(Mock(), 1)
