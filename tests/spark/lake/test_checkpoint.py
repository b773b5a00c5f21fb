"""A job starts again whatever a kill left in its checkpoint (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from wanderbus.pipeline.checkpoint import checkpoint_location
from wanderbus.pipeline.lake.jobs import ingest
from wanderbus.records import Record

WriteLog = Callable[..., Path]
MakeRecords = Callable[[int], list[Record]]

LEFT = (".0.14648f78-8a71-4f9b-bdb3-5abdc4540dfa.tmp", "..0.14648f78-8a71-4f9b-bdb3-5abdc4540dfa.tmp.crc")
"""Names of what Spark leaves when it is killed while it writes the first batch."""


def leave(checkpoint: Path) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        for name in LEFT:
            (checkpoint / log / name).write_text("v1\n")


def test_a_job_that_was_killed_in_its_first_batch_starts_again(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "a checkpoint"
    leave(checkpoint)
    log = write_log(every_record(12))
    assert ingest(spark, log, tmp_path / "lake", checkpoint)["records"].rows == 12
    assert ingest(spark, log, tmp_path / "lake", checkpoint) == {}


@pytest.mark.parametrize("batches", [[], ["0"], ["7", "8"]])
def test_only_a_checkpoint_without_a_batch_is_cleaned(tmp_path: Path, batches: list[str]) -> None:
    leave(tmp_path)
    for each in batches:
        (tmp_path / "offsets" / each).write_text("v1\n")
    assert checkpoint_location(tmp_path) == str(tmp_path)
    left = [*LEFT, *batches] if batches else []
    assert sorted(each.name for each in (tmp_path / "offsets").iterdir()) == sorted(left)


def test_a_checkpoint_that_does_not_exist_yet_is_left_alone(tmp_path: Path) -> None:
    assert checkpoint_location(tmp_path / "none") == str(tmp_path / "none")
    assert not (tmp_path / "none").exists()
