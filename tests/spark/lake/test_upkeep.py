"""Files stay few, versions readable, and nothing is left of killed attempts (SPEC T-03)."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import departure
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import Ingestion, compact, compaction, reconcile, table, vacuum
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.reconciliation import RecordSums
from wanderbus.pipeline.lake.writing import WrittenFiles, run
from wanderbus.pipeline.tables import RECORDS, named
from wanderbus.records import Record

WriteLog = Callable[..., Path]
EVENTS = named("events")
START_US = 1_700_000_000_000_000
pytestmark = pytest.mark.spark


@pytest.fixture
def ingested(spark: SparkSession, write_log: WriteLog, tmp_path: Path) -> tuple[Path, Path]:
    """Return a log of six events, and its lake, made in three batches."""
    records: list[Record] = [departure(number, START_US + number, Note=f"n{number}") for number in range(6)]
    log, lake = write_log(records, per_segment=4), tmp_path / "lake"
    job = Ingestion(spark, log, lake, declared={"Departure": {"Row": "Integer"}})
    for first in (0, 2, 4):
        job.store(first, first + 2)
    return log, lake


def notes(spark: SparkSession, lake: Path, **version: int) -> list[tuple[int, str]]:
    found = table(spark, lake, "events", **version).selectExpr("Row", "variant_get(attributes, '$.Note', 'string')")  # type: ignore[arg-type]
    return sorted(tuple(row) for row in found.collect())


def test_compaction_keeps_the_rows_and_earlier_versions_until_vacuum(
    spark: SparkSession, ingested: tuple[Path, Path]
) -> None:
    log, lake = ingested
    target = LakeTable(lake, EVENTS)
    before, expected = target.load().version(), [(number, f"n{number}") for number in range(6)]
    assert len(target.files(target.load())) >= 3
    compacted = compact(spark, lake, EVENTS)
    assert (compacted.removed, compacted.added) == (len(target.files(target.load())) + compacted.removed - 1, 1)
    assert notes(spark, lake) == notes(spark, lake, version=before) == expected
    assert compact(spark, lake, EVENTS) == (0, 0)
    assert vacuum(lake, EVENTS) == 0
    assert vacuum(lake, EVENTS, retention_hours=0) >= compacted.removed
    assert notes(spark, lake) == expected
    assert len(list(target.directory.rglob("*.parquet"))) == 1
    assert not any(each.differs for each in reconcile(spark, log, lake))


def test_orphans_of_killed_attempts_are_vacuumed(spark: SparkSession, ingested: tuple[Path, Path]) -> None:
    _, lake = ingested
    target = LakeTable(lake, RECORDS)
    count = table(spark, lake, "records").count()
    orphans = [target.directory / file.path for file in target.write(table(spark, lake, "records")).files]
    half = target.directory / "files-killed" / "half.parquet"
    half.parent.mkdir()
    half.write_bytes(b"half")
    assert table(spark, lake, "records").count() == count
    assert vacuum(lake, RECORDS) == 0
    old_s = datetime.now().timestamp() - 8 * 24 * 3_600
    for path in (half, *orphans):
        os.utime(path, (old_s, old_s))
    assert vacuum(lake, RECORDS) == 1 + len(orphans)
    assert not any(path.exists() for path in (half, *orphans))
    os.utime(half.parent, (old_s, old_s))
    vacuum(lake, RECORDS)
    assert not half.parent.exists()
    assert table(spark, lake, "records").count() == count


def test_a_job_bounds_the_small_files(spark: SparkSession, write_log: WriteLog, tmp_path: Path) -> None:
    log, lake = write_log([departure(number, START_US + number) for number in range(5)]), tmp_path / "lake"
    job = Ingestion(spark, log, lake, has_silver=False, small_files_max=2)
    target = LakeTable(lake, RECORDS)
    for offset in range(5):
        job.store(offset, offset + 1)
        assert len(target.files(target.load())) <= 2
    assert table(spark, lake, "records").count() == 5


def test_a_table_is_read_as_of_an_instant(spark: SparkSession, ingested: tuple[Path, Path]) -> None:
    _, lake = ingested
    assert table(spark, lake, "events", as_of=datetime.now(UTC) + timedelta(minutes=1)).count() == 6
    with pytest.raises(StorageError, match="has no table 'events'; run the pipeline first"):
        table(spark, lake / "nowhere", "events")


def test_only_files_with_wanted_rows_are_read(spark: SparkSession, ingested: tuple[Path, Path]) -> None:
    _, lake = ingested
    assert table(spark, lake, "events", conditions=[("subject", "=", "Departure")]).count() == 6
    assert table(spark, lake, "events", conditions=[("subject", "=", "Arrival")]).count() == 0
    assert table(spark, lake, "records", conditions=[("offset", ">=", 4)]).count() == 2


def test_reconciliation_finds_what_differs_by_segment(
    spark: SparkSession, ingested: tuple[Path, Path], write_log: WriteLog
) -> None:
    log, lake = ingested
    records = [departure(number, START_US + number, Note=f"n{number}") for number in range(6)]
    records[4] = departure(4, START_US + 4, Note="another")  # with another last record, it would be another log
    write_log(records, per_segment=4)
    first, second = reconcile(spark, log, lake)
    assert (first.differs, second.differs) == (False, True)
    assert first.log == first.lake != RecordSums()
    assert (second.log.records, second.lake.records) == (2, 2)


def test_a_compaction_that_would_lose_a_row_changes_nothing(
    spark: SparkSession, ingested: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lake = ingested
    target = LakeTable(lake, EVENTS)
    before = target.load().version()

    def run_and_lose(*arguments: Any) -> dict[str, WrittenFiles]:
        written = run(*arguments)
        file, *others = written["events"].files
        return {"events": WrittenFiles([msgspec.structs.replace(file, rows=file.rows - 1), *others])}

    monkeypatch.setattr(compaction, "run", run_and_lose)
    with pytest.raises(StorageError, match=r"events has \d+ rows to compact, but \d+ were written; nothing changes"):
        compact(spark, lake, EVENTS)
    assert target.load().version() == before
    assert len(notes(spark, lake)) == 6
