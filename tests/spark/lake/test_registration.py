"""Retention never removes what a lake has not read (SPEC T-01)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import Ingestion, ingest, reconcile, table
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.registration import reader_name
from wanderbus.pipeline.tables import SUBSCRIPTIONS
from wanderbus.records import Record
from wanderbus.runtime.log_readers import load_reader, reader_files
from wanderbus.segments import segment_name

WriteLog = Callable[..., Path]
MakeRecords = Callable[[int], list[Record]]
pytestmark = pytest.mark.spark


def registered(log: Path) -> int:
    """Return the offset of the one registered reader."""
    (path,) = reader_files(log)
    reader = load_reader(path)
    assert reader is not None
    return reader.offset


def test_each_batch_registers_what_was_committed_before(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = write_log(every_record(12), per_segment=4), tmp_path / "lake"
    seen: list[int] = []
    store = Ingestion.store

    def storing(self: Ingestion, first: int, end: int) -> None:
        seen.append(registered(log))
        store(self, first, end)

    monkeypatch.setattr(Ingestion, "store", storing)
    ingest(spark, log, lake, tmp_path / "checkpoint", rows_per_batch=5)
    assert (seen, registered(log)) == ([0, 5, 10], 12)
    assert [path.stem for path in reader_files(log)] == [reader_name(lake)]


def test_the_table_that_is_behind_holds_the_log(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = write_log(every_record(12), per_segment=4), tmp_path / "lake"
    job = Ingestion(spark, log, lake)
    job.store(0, 4)
    commit = LakeTable.commit

    def killed(self: LakeTable, *arguments: object, **named: object) -> None:
        if self.table.name == "sessions":
            raise KeyboardInterrupt
        commit(self, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            job.store(4, 12)
    job.register()
    assert registered(log) == 4, "and not 12, up to which the other tables have the log"
    (log / segment_name(0)).unlink()
    job.store(4, 12)
    job.register()
    assert registered(log) == 12
    assert not any(each.differs for each in reconcile(spark, log, lake))


def test_a_table_that_no_batch_has_reached_holds_the_whole_log(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lake = write_log(every_record(12), per_segment=4), tmp_path / "lake"
    job = Ingestion(spark, log, lake)
    commit = LakeTable.commit

    def killed(self: LakeTable, *arguments: object, **named: object) -> None:
        if self.table.name == "subscriptions":
            raise KeyboardInterrupt
        commit(self, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            job.store(0, 8)
    assert LakeTable(lake, SUBSCRIPTIONS).exists
    job.register()
    assert registered(log) == 0


def test_a_job_registers_before_its_query_begins(
    write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log = write_log(every_record(12))
    Ingestion(Mock(), log, tmp_path / "lake").start(tmp_path / "checkpoint")
    assert registered(log) == 0


def test_a_lake_whose_records_were_removed_is_refused(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log, lake = write_log(every_record(12), per_segment=4, durable=3), tmp_path / "lake"
    ingest(spark, log, lake, tmp_path / "checkpoint")
    write_log(every_record(12), per_segment=4)
    (log / segment_name(0)).unlink()
    with pytest.raises(StorageError, match=r"log begins at record 4, but \S+lake has it only up to 3: records between"):
        ingest(spark, log, lake, tmp_path / "checkpoint")
    assert table(spark, lake, "records").count() == 3


def test_a_lake_that_does_not_register_leaves_the_log_alone(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log = write_log(every_record(12))
    Ingestion(spark, log, tmp_path / "lake", reader_expires_s=None).register()
    assert reader_files(log) == []
