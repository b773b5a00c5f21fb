"""Logs of three servers with the same offsets in one lake: rows, quarantine, registration, progress of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from faults.lake_log import DECLARED, UNREADABLE
from faults.lake_logs import Differences, GrowingLogs
from wanderbus.pipeline.lake import reconcile, table
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.lineage import LINEAGE_FILE
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.log_readers import load_reader, reader_files
from wanderbus.runtime.segment_files import durable_end

pytestmark = pytest.mark.spark
GROWN = 5
"""Records of each log between two runs."""


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrowingLogs]:
    """The logs; each server has written another number of records."""
    logs = GrowingLogs(tmp_path_factory.mktemp("servers"), Random(4), 3)
    for _ in range(6):
        logs.grow(100)
    for place, each in enumerate(logs.logs.values()):
        each.grow(10 * place)
    yield logs
    logs.close()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, growing: GrowingLogs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the three logs, made by two runs."""
    lake = tmp_path_factory.mktemp("lake") / "lake"
    PipelineRun(spark, list(growing.logs), lake, declared=DECLARED).run()
    growing.grow(GROWN)
    PipelineRun(spark, list(growing.logs), lake, declared=DECLARED).run()
    return lake


def test_each_event_is_that_of_its_server_and_each_arrival_names_it(
    spark: SparkSession, growing: GrowingLogs, lake: Path
) -> None:
    assert all(each.accepted and each.arrivals for each in growing.logs.values())
    assert growing.differences(spark, lake) == Differences(0, 0)


def test_the_truth_notices_an_event_of_another_server_and_a_lost_arrival(
    spark: SparkSession, growing: GrowingLogs, lake: Path
) -> None:
    first, second, _ = growing.logs.values()
    accepted, arrivals = first.accepted, second.arrivals
    try:
        first.accepted, second.arrivals = second.accepted[:1] + accepted[1:], arrivals[1:]
        assert growing.differences(spark, lake) == Differences(2, 1)
    finally:
        first.accepted, second.arrivals = accepted, arrivals


def test_unreadable_records_are_rejected_once_at_their_offsets_in_their_log(
    spark: SparkSession, growing: GrowingLogs, lake: Path
) -> None:
    bases = logs_in(lake).bases
    expected = [
        bases[each.identity] + frame.offset
        for log, each in growing.logs.items()
        for frame in read_log(log, 0, durable_end(log))
        if frame.payload in UNREADABLE
    ]
    assert len({offset // bases["s2-7"] for offset in expected}) == 3, "each log has some"
    rejected = table(spark, lake, "quarantine").where("table = 'records'").select("offset").collect()
    assert sorted(each.offset for each in rejected) == sorted(expected)


def test_retention_of_each_log_waits_for_its_own_records(growing: GrowingLogs, lake: Path) -> None:
    ends = [durable_end(log) for log in growing.logs]
    assert len(set(ends)) == 3
    readers = [[load_reader(each) for each in reader_files(log)] for log in growing.logs]
    assert [[each.offset for each in own if each is not None] for own in readers] == [[end] for end in ends]


def test_progress_and_sums_of_each_log_are_its_own(spark: SparkSession, growing: GrowingLogs, lake: Path) -> None:
    for log, each in growing.logs.items():
        segments = reconcile(spark, log, lake)
        found = sum(one.log.records for one in segments), any(one.differs for one in segments)
        assert found == (each.records, False)
        silver = [one for one in lake_status(lake, each.records, each.identity).tables if one.name != "quarantine"]
        assert {one.offset for one in silver} == {each.records}


def test_lineage_names_the_records_of_each_log(growing: GrowingLogs, lake: Path) -> None:
    last = json.loads((lake / LINEAGE_FILE).read_text().splitlines()[-1])
    spans = [(each["name"], each["inputFacets"]["wanderbus_offsets"]) for each in last["inputs"]]
    ends = {str(log): each.records for log, each in growing.logs.items()}
    assert [(name, span["first"], span["end"]) for name, span in spans] == [
        (name, end - GROWN, end) for name, end in ends.items()
    ]
