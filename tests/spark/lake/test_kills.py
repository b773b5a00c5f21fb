"""A job that is killed after any step goes on where it was, and loses and repeats nothing (SPEC T-03)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from faults.lake_differences import differences
from tests.spark.lake.conftest import departure
from tests.spark.lake.killed_steps import FILES, Killed, KilledSteps, Step
from wanderbus.errors import StorageError
from wanderbus.event import DeclaredAttribute
from wanderbus.pipeline.lake import Ingestion, reconcile
from wanderbus.pipeline.lake.delta import LakeTable, misfits_in
from wanderbus.pipeline.tables import RECORDS, TABLES, named
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.records import Record, SchemaDeclared, encode_record
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.segment_files import durable_end
from wanderbus.segments import LogPlace

MakeRecords = Callable[[int], list[Record]]
pytestmark = pytest.mark.spark

DECLARED: Declared = {
    "Departure": {"Row": "Integer", "Dest": "String", "Delay": "Double"},
    "Arrival / É 100%": {"Delay": "Double"},
}
START_US = 1_700_000_000_000_000
FIRST_BATCH = 9
LIVES_MAX = 300
COMMITS = ("create_write_transaction", "compaction")


@pytest.fixture
def log(tmp_path: Path, every_record: MakeRecords) -> Path:
    """Return a log with records of every kind, among them some that cannot be decoded, in several segments."""
    gate = SchemaDeclared(
        at_us=0, subject="Arrival", version=1, attributes=(DeclaredAttribute("Gate", "String"),), by="sip:a@localhost"
    )
    good = [encode_record(record) for record in (*every_record(12), gate)]
    bad = [
        msgspec.msgpack.encode({"kind": "invented", "at_us": 2}),
        encode_record(departure(12, START_US, subject="")),
        b"\xc1",
    ]
    written = EventLog.open(tmp_path / "log", segment_bytes_max=2_000)
    for offset, payload in enumerate([*good[:5], good[12], *bad, *good[5:12], *bad]):
        written.append([(offset, START_US + offset, payload)])
    written.sync()
    written.close()
    return tmp_path / "log"


def store(spark: SparkSession, log: Path, lake: Path, end: int = 1_000_000) -> None:
    Ingestion(spark, log, lake, declared=DECLARED, small_files_max=1).store(0, min(end, durable_end(log)))


def is_wanted(step: Step) -> bool:
    """Return whether a job is killed at a step: all steps of some tables, and every write and commit of the others."""
    if step.batch:
        return step.call in ("create_write_transaction", "compaction")
    every_step = step.table in ("bronze/records", "bronze/quarantine")
    return every_step or step.call in ("collected", "create_write_transaction")


def test_a_job_killed_after_every_step_has_the_lake_of_one_that_was_not(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, whole = tmp_path / "lake", tmp_path / "whole"
    steps = KilledSteps(lake, monkeypatch, is_wanted)
    ends = [FIRST_BATCH, 1_000_000]
    for _ in range(LIVES_MAX):
        try:
            store(spark, log, lake, ends[steps.batch])
        except Killed:
            continue
        steps.batch += 1
        if steps.batch == len(ends):
            break
    print(*steps.killed, sep="\n")
    tables = {each.table for each in steps.killed if not each.table.startswith(FILES)}
    assert tables == {each.directory for each in TABLES}
    assert {each.call for each in steps.killed} == {
        *("create", "collected", "fsync", "create_write_transaction", "compaction")
    }
    store(spark, log, whole)
    assert set(differences(spark, lake, whole).values()) == {0}
    assert [misfits_in(LakeTable(each, named("events")).load()) for each in (lake, whole)] == [1, 1]
    assert not any(segment.differs for segment in reconcile(spark, log, lake))


def test_files_are_durable_before_their_commit_and_commits_before_the_end(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    steps = KilledSteps(lake, monkeypatch)
    store(spark, log, lake, FIRST_BATCH)
    store(spark, log, lake)
    commits = [place for place, call in enumerate(steps.calls) if call.name in COMMITS]
    assert {steps.calls[place].path for place in commits} == {each.directory for each in TABLES}
    for place in commits:
        commit = steps.calls[place]
        synced = {call.path for call in steps.calls[:place] if call.name == "fsync"}
        for path in commit.added:
            attempt = Path(commit.path, path).parent  # the worker has synced the file itself
            assert {str(attempt), commit.path} <= synced, path
        later = [call.path for call in steps.calls[place + 1 :] if call.name == "fsync"]
        of_log = [path for path in later if path.startswith(f"{commit.path}/_delta_log")]
        assert of_log[0].endswith(".json"), commit
        assert of_log[1] == f"{commit.path}/_delta_log", commit


def test_the_quarantine_has_a_row_before_the_table_goes_on_without_it(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    steps = KilledSteps(lake, monkeypatch, lambda step: step.call == "create_write_transaction")
    for _ in range(3):
        with pytest.raises(Killed):
            store(spark, log, lake)
    assert [each.table for each in steps.killed] == ["silver/schemas", "bronze/quarantine", "bronze/records"]


def test_a_second_job_on_the_same_version_is_refused(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    store(spark, log, lake, FIRST_BATCH)
    target = LakeTable(lake, RECORDS)
    delta, again = target.load(), target.load()
    application = "wb-7/records"
    target.commit(delta, [], ends={application: LogPlace(20)})
    with pytest.raises(StorageError, match=r"was changed by another job meanwhile: .*; run only one pipeline on it"):
        target.commit(again, [], ends={application: LogPlace(20)})


def test_a_table_that_lacks_records_before_the_batch_is_not_continued(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    store(spark, log, lake, FIRST_BATCH)
    shutil.rmtree(lake / "silver" / "events")
    with pytest.raises(
        StorageError, match=rf"events has the log up to record 0, but the checkpoint is at {FIRST_BATCH}"
    ):
        Ingestion(spark, log, lake, declared=DECLARED).store(FIRST_BATCH, durable_end(log))


def test_registered_records_are_durable_after_a_kill_between_commit_and_sync(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    store(spark, log, lake, FIRST_BATCH)
    steps = KilledSteps(lake, monkeypatch, lambda step: step.call == "create_write_transaction")
    with pytest.raises(Killed):
        store(spark, log, lake)
    killed = steps.calls[-1].path
    steps.calls.clear()
    Ingestion(spark, log, lake, declared=DECLARED).register()
    synced = {call.path for call in steps.calls if call.name == "fsync"}
    newest = DeltaTable(lake / RECORDS.directory).version()
    assert f"{RECORDS.directory}/_delta_log/{newest:020d}.json" in synced
    assert {f"{each.directory}/_delta_log" for each in TABLES if each.layer == "silver"} <= synced
    assert killed in {each.directory for each in TABLES}
