"""A lake never mixes the records of a log with those of the same log after it was restored from a copy (SPEC T-03)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import Transaction
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import START_US, departure
from wanderbus.pipeline.lake import Ingestion, delta, reconcile
from wanderbus.pipeline.lake.decoding import decode_log
from wanderbus.pipeline.lake.delta import LakeTable, application_of, place_of
from wanderbus.pipeline.lake.log_places import require_same_log
from wanderbus.pipeline.operation.log_run import PipelineFailed
from wanderbus.pipeline.operation.run import CHECKPOINT, PipelineRun
from wanderbus.pipeline.tables import RECORDS, named
from wanderbus.records import Record, Started
from wanderbus.runtime.log_place import LogReplaced, place_at
from wanderbus.runtime.log_readers import load_reader, reader_files
from wanderbus.segments import LogPlace

WriteLog = Callable[..., Path]
pytestmark = pytest.mark.spark

LINE = (
    r"log is not the log that the lake \S+lake has read: {}; it was restored from a copy or replaced; "
    "begin a new lake in another directory, or restore the lake from a copy of the same time"
)


def records(numbers: Sequence[int]) -> list[Record]:
    return [
        Started(at_us=START_US, server="wb", incarnation=7),
        *(departure(number, START_US + number) for number in numbers),
    ]


BEFORE = records(range(1, 10))
SHORTER = records(range(1, 4))
GROWN = records([*range(1, 4), *range(110, 120)])
"""The log as it was, as it was restored, and as it has grown since past the place of the lake."""


def place(lake: Path, table: str = "records") -> LogPlace | None:
    target = LakeTable(lake, named(table))
    return place_of(target.load(), application_of("wb-7", target.table))


def test_a_log_that_was_restored_is_refused_and_the_lake_stays(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    log, lake = write_log(BEFORE, per_segment=4), tmp_path / "lake"
    PipelineRun(spark, log, lake).run()
    read = place_at(log, 10)
    assert {place(lake, name) for name in ("records", "events", "sessions", "schemas")} == {read}
    [reader] = [load_reader(path) for path in reader_files(log)]
    assert reader is not None
    assert reader.place == read
    version = LakeTable(lake, RECORDS).load().version()
    for now, reason in (
        (SHORTER, "it ends before record 4, and was read up to 10"),
        (GROWN, "record 9 is another one"),
    ):
        shutil.rmtree(log)
        write_log(now, per_segment=4)
        line = LINE.format(reason)
        with pytest.raises(PipelineFailed, match=line):
            PipelineRun(spark, log, lake).run()
        for refused in (lambda: reconcile(spark, log, lake), lambda: require_same_log(lake, log)):
            with pytest.raises(LogReplaced, match=line):
                refused()
    shutil.rmtree(lake / CHECKPOINT)
    with pytest.raises(PipelineFailed, match=LINE.format("record 9 is another one")):
        PipelineRun(spark, log, lake).run()
    assert LakeTable(lake, RECORDS).load().version() == version
    shutil.rmtree(log)
    write_log(records(range(1, 13)), per_segment=4)
    PipelineRun(spark, log, lake).run()
    assert place(lake) == place_at(log, 13), "the log that it has read is continued"


def test_a_table_that_is_ahead_is_compared_too(spark: SparkSession, write_log: WriteLog, tmp_path: Path) -> None:
    log, lake = write_log(BEFORE), tmp_path / "lake"
    job = Ingestion(spark, log, lake)
    job.store(0, 4)
    target = LakeTable(lake, RECORDS)
    target.commit(target.load(), [], ends={application_of("wb-7", RECORDS): place_at(log, 10)})
    write_log(GROWN)
    with pytest.raises(LogReplaced, match="record 9 is another one"):
        Ingestion(spark, log, lake).register()


def test_a_log_that_is_replaced_while_a_batch_is_read_adds_nothing(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = write_log(BEFORE), tmp_path / "lake"

    def replaced(*given: object) -> object:
        found = decode_log(*given)  # type: ignore[arg-type]
        write_log(GROWN)
        return found

    monkeypatch.setattr("wanderbus.pipeline.lake.jobs.decode_log", replaced)
    with pytest.raises(LogReplaced, match="record 9 is another one"):
        Ingestion(spark, log, lake).store(0, 10)
    assert place(lake, "schemas") is None
    assert not list((lake / "silver" / "schemas").glob("files-*"))


def test_a_lake_of_an_earlier_version_gets_checksums(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offsets(application: str, place: LogPlace) -> Iterator[Transaction]:
        yield Transaction(application, place.offset)

    log, lake = write_log(BEFORE), tmp_path / "lake"
    Ingestion(spark, log, lake).store(0, 6)
    with monkeypatch.context() as patched:
        patched.setattr(delta, "_transactions", offsets)
        Ingestion(spark, log, lake).store(6, 10)
    assert place(lake) == LogPlace(10), "the checksum is that of record 5"
    require_same_log(lake, log)
    Ingestion(spark, log, lake).register()
    assert place(lake) == place(lake, "deliveries") == place_at(log, 10)
    version = LakeTable(lake, RECORDS).load().version()
    Ingestion(spark, log, lake).register()
    assert LakeTable(lake, RECORDS).load().version() == version
    write_log(GROWN)
    with pytest.raises(LogReplaced, match="record 9 is another one"):
        Ingestion(spark, log, lake).register()
