"""Logs of several servers in one lake: each event once, exactly once through kills, and each log for itself (T-03)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from faults.lake_differences import differences
from tests.log_files import write_records
from tests.spark.domain_logs import CAROL, first_records, second_records, write_logs
from tests.spark.lake.killed_steps import Killed, KilledSteps, Step
from wanderbus.broker.history.piece import read_piece
from wanderbus.broker.messages import HistoryWanted
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import Ingestion, compact, reconcile, table
from wanderbus.pipeline.lake.logs import add_logs, logs_in
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG
from wanderbus.pipeline.operation.backfill import backfill
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.pipeline.replay.lake_history import LakeHistory
from wanderbus.pipeline.tables import RECORDS
from wanderbus.records import Started, encode_record
from wanderbus.segments import Frame
from wanderbus.subscription import Subscription

S2 = OFFSETS_A_LOG
"""Lake offset of the first record of the second log."""


KILLED = ("bronze/records", "silver/events", "silver/notifications", "silver/subscriptions")
"""Tables after whose commits a job is killed; other tests kill after every step of the job on one log."""


def is_wanted(step: Step) -> bool:
    """Return whether a job is killed at a step: after a commit, as soon as the lake has something of the first log."""
    return step.call == "create_write_transaction" and step.table in KILLED and step.batch > 0


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_logs(tmp_path_factory.mktemp("domain"))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, logs: list[Path]) -> Path:
    """The lake of both logs, made by one run."""
    lake = logs[0].parents[1] / "lake"
    PipelineRun(spark, logs, lake, rows_per_batch=6).run()
    return lake


@pytest.mark.spark
def test_an_event_is_the_record_of_its_acceptance_with_its_server(
    spark: SparkSession, logs: list[Path], lake: Path
) -> None:
    events = table(spark, lake, "events").orderBy("offset").select("offset", "server", "number", "subject").collect()
    assert [tuple(each) for each in events] == [
        *((number, "s1", number, "Departure") for number in (4, 5, 6)),
        *((S2 + number, "s2", number, "Price") for number in (7, 13)),
    ]
    arrival = table(spark, lake, "notifications").where(f"user = '{CAROL}'").collect()
    assert [(each.offset, each.event_offset) for each in arrival] == [(S2 + 6, 4)]


@pytest.mark.spark
def test_each_log_is_complete_and_registered_for_itself(spark: SparkSession, logs: list[Path], lake: Path) -> None:
    for log, identity, count in zip(logs, ("s1-7", "s2-9"), (9, 15), strict=True):
        segments = reconcile(spark, log, lake)
        assert (sum(each.log.records for each in segments), any(each.differs for each in segments)) == (count, False)
        status = lake_status(lake, count, identity)
        assert {each.lag for each in status.tables if each.name != "quarantine"} == {0}
        assert status.log == identity
    with pytest.raises(StorageError, match=r"lake has the logs of s1, s2, not the log s3-1"):
        lake_status(lake, 0, "s3-1")


@pytest.mark.spark
def test_jobs_that_are_killed_after_each_commit_lose_and_repeat_nothing_of_any_log(
    spark: SparkSession, logs: list[Path], lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    steps = KilledSteps(killed, monkeypatch, is_wanted)
    batches = [(logs[0], 0, 5), (logs[1], 0, 15), (logs[0], 5, 9)]
    while steps.batch < len(batches):
        log, first, end = batches[steps.batch]
        try:
            add_logs(killed, ["s1-7", "s2-9"])
            Ingestion(spark, log, killed).store(first, end)
        except Killed:
            continue
        steps.batch += 1
    assert [(each.table, each.batch) for each in steps.killed] == [
        *((name, 1) for name in KILLED),
        *((name, 2) for name in KILLED),
    ]
    assert set(differences(spark, killed, lake).values()) == {0}


@pytest.mark.spark
def test_tables_are_made_again_of_all_logs(spark: SparkSession, lake: Path) -> None:
    for name in ("events", "notifications", "subscriptions"):
        assert backfill(spark, lake, name).is_equal, name


@pytest.mark.spark
def test_history_of_one_server_is_served_of_its_own_records(spark: SparkSession, lake: Path) -> None:
    history = LakeHistory(lake)
    wanted = Subscription("", CAROL, "default", "Departure", "")
    for compacted in (False, True):
        if compacted:
            compact(spark, lake, RECORDS)
        for (server, incarnation), records in ((("s1", 7), first_records()), (("s2", 9), second_records())):
            frames = [Frame(at, each.at_us, encode_record(each), 0) for at, each in enumerate(records)]
            piece = HistoryWanted(1, wanted, server, incarnation, 2, len(frames), 100, 100_000, 100_000)
            assert history.read(piece) == read_piece(piece, iter(frames[2:])), (server, compacted)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["s3-1"], r"records has the log s1-7, s2-9, not s3-1; use another directory for this log, or name all data"),
        (["s3-1", "s4-1"], r"records has the log s1-7, s2-9, not s3-1, s4-1; use another"),
    ],
)
def test_a_lake_takes_no_log_without_one_that_it_has(tmp_path: Path, given: list[str], error: str) -> None:
    add_logs(tmp_path, ["s1-7"])
    add_logs(tmp_path, ["s2-9", "s1-7"])
    with pytest.raises(StorageError, match=error):
        add_logs(tmp_path, given)
    assert logs_in(tmp_path).identities == ("s1-7", "s2-9")


def test_a_server_whose_log_began_anew_has_two_logs(tmp_path: Path) -> None:
    add_logs(tmp_path, ["s1-7"])
    logs = add_logs(tmp_path, ["s1-7", "s2-9", "s2-10"])
    assert logs.servers == ["s1", "s2-9", "s2-10"]
    assert logs.shown(logs.base("s2-10") + 3) == "s2-10:3"
    assert logs.lake_offset("s2-10:3") == 2 * OFFSETS_A_LOG + 3


def test_a_lake_of_one_log_has_its_offsets(tmp_path: Path) -> None:
    logs = add_logs(tmp_path, ["wb-7"])
    assert (logs.shown(17), logs.lake_offset("17"), logs.lake_offset("wb:17")) == ("17", 17, 17)
    assert "wanderbus.logs" not in DeltaTable(tmp_path / RECORDS.directory).metadata().configuration


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("17", r"has the logs of s1, s2; give the offset with its server, as s1:17"),
        ("s3:17", r"has no log of the server 's3', but the logs of s1, s2"),
        ("s1:-1", r"invalid offset 's1:-1' \(expected a number, or SERVER:NUMBER\)"),
        (str(OFFSETS_A_LOG), r"invalid offset '8796093022208'"),
    ],
)
def test_an_offset_in_one_of_several_logs_needs_its_server(tmp_path: Path, text: str, error: str) -> None:
    add_logs(tmp_path, ["s1-7"])
    with pytest.raises(StorageError, match=error):
        add_logs(tmp_path, ["s1-7", "s2-9"]).lake_offset(text)


def test_each_log_of_a_lake_has_a_checkpoint_of_its_own_and_the_first_one_keeps_its(tmp_path: Path) -> None:
    logs, lake = write_logs(tmp_path), tmp_path / "lake"

    def names(*given: Path) -> list[tuple[str, Path]]:
        return PipelineRun(msgspec.UNSET, given, lake)._names()  # type: ignore[arg-type]

    assert names(logs[0]) == [("", lake / "_checkpoint")]
    add_logs(lake, ["s1-7"])
    assert names(logs[0]) == [("", lake / "_checkpoint")]
    both = [("s1", lake / "_checkpoint"), ("s2", lake / "_checkpoint-s2-9")]
    assert names(*reversed(logs)) == both[::-1]
    assert names(logs[1]) == both[1:]


def test_a_directory_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    log = write_records(tmp_path / "log", [Started(at_us=1, server="s1", incarnation=7)])
    run = PipelineRun(msgspec.UNSET, [log, log], tmp_path / "lake")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"log is the log s1-7 twice; name each data directory once"):
        run.run()
