"""``wanderbus pipeline run`` is killed, or interrupted twice: nothing is lost, repeated, or left behind (SPEC T-03)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from faults.lake_differences import differences
from faults.lake_log import GrowingLog
from faults.process_tree import descendants
from tests.cli.pipeline_jobs import offset, wait_for, wait_until_gone
from tests.cli.shell import Shell
from wanderbus.pipeline.lake import ingest, reconcile
from wanderbus.pipeline.operation.lake_lock import is_locked
from wanderbus.pipeline.operation.status import lake_status

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RECORDS = 300
PROGRESS = 100
"""Records that a job has to bring into the lake before it is ended: at least one batch."""

ENDED_S_MAX = 180.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[GrowingLog]:
    (tmp_path / "data").mkdir()
    log = GrowingLog(tmp_path / "data" / "log", Random(11))
    log.grow(RECORDS)
    yield log
    log.close()


def reached(log: GrowingLog, lake: Path, end: int) -> bool:
    """Let the log grow; return whether the lake has its records up to ``end``."""
    log.grow(1)
    return offset(lake) >= end


def test_a_run_killed_while_it_follows_the_log_is_continued_by_the_next(
    shell: Shell, log: GrowingLog, spark: SparkSession
) -> None:
    lake, whole = shell.directory / "lake", shell.directory / "whole"
    command = ("pipeline", "run", "data", "--lake", "lake", "--every", "0.1", "--rows-per-batch", "200")
    job = shell.start(*command)
    wait_for(lambda: reached(log, lake, PROGRESS), job)
    assert is_locked(lake)
    time.sleep(0.2)  # into the next batch
    left = descendants(job.pid)
    assert left
    job.kill()
    assert job.wait() == -signal.SIGKILL
    assert not is_locked(lake)  # the next job begins while Java of this one may still run
    job = shell.start(*command, "--json")
    wait_for(lambda: offset(lake) == log.records, job)
    job.terminate()
    out, err = job.communicate(timeout=ENDED_S_MAX)
    # The log has records that break the checks of its tables.
    assert (job.returncode, "Traceback" in err) == (3, False), err
    assert json.loads(out)["added"]["records"]["rows"] > 0
    assert not is_locked(lake)
    wait_until_gone(left)
    compare_with_whole(spark, log, lake, whole)


def compare_with_whole(spark: SparkSession, log: GrowingLog, lake: Path, whole: Path) -> None:
    """Compare a lake with the log, and with one that is made in one go."""
    directory = lake.parent / "data" / "log"
    segments = reconcile(spark, directory, lake)
    assert sum(each.log.records for each in segments) == log.records
    assert not any(each.differs for each in segments)
    ingest(spark, directory, whole, whole.with_name("checkpoint"))
    assert set(differences(spark, lake, whole).values()) == {0}
    found, wanted = (lake_status(each, log.records) for each in (lake, whole))
    assert found.last_run is not None
    assert (found.is_changing, found.last_run.state) == (False, "COMPLETE")
    assert [each.misfits for each in found.tables] == [each.misfits for each in wanted.tables]
    assert sum(each.misfits for each in found.tables) > 0


def test_a_second_ctrl_c_ends_a_run_at_once(shell: Shell, log: GrowingLog) -> None:
    lake = shell.directory / "lake"
    job = shell.start("pipeline", "run", "data", "--lake", "lake", "--every", "0.1", "--rows-per-batch", "200")
    wait_for(lambda: reached(log, lake, PROGRESS), job)
    left = descendants(job.pid)
    job.send_signal(signal.SIGINT)
    time.sleep(0.1)
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=ENDED_S_MAX)
    assert job.returncode in (0, 130), err  # 0 if the first one has ended it by then
    assert "SIGINT: ending after the present batch" in err
    assert "Traceback" not in err
    assert "Exception" not in err
    assert not is_locked(lake)
    wait_until_gone(left)
