"""``wanderbus pipeline run`` is killed, or interrupted twice: nothing is lost, repeated, or left behind (SPEC T-03)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from faults.lake_differences import differences
from faults.lake_log import GrowingLog
from faults.lakekill import descendants
from tests.cli.pipeline_jobs import offset, wait_for, wait_until_gone
from tests.cli.shell import Shell
from wanderbus.pipeline.lake import ingest
from wanderbus.pipeline.operation.lake_lock import is_locked
from wanderbus.pipeline.operation.status import lake_status
from wanderbus.pipeline.session import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RECORDS = 300
STEP = 5
PROGRESS = 150
"""Records that a job has to bring into the lake before it is killed: more than one batch."""

ENDED_S_MAX = 60.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[GrowingLog]:
    (tmp_path / "data").mkdir()
    log = GrowingLog(tmp_path / "data" / "log", Random(11))
    log.grow(RECORDS)
    yield log
    log.close()


def reached(log: GrowingLog, lake: Path, end: int) -> bool:
    """Let the log grow; return whether the lake has its records up to ``end``."""
    log.grow(STEP)
    return offset(lake) >= end


def test_a_run_killed_while_it_follows_the_log_is_continued_by_the_next(shell: Shell, log: GrowingLog) -> None:
    lake, whole = shell.directory / "lake", shell.directory / "whole"
    command = ("pipeline", "run", "data", "--lake", "lake")
    left: set[int] = set()
    for place, delay_s in enumerate((0.0, 0.15, 0.4)):
        job = shell.start(*command, "--every", "0.1", "--rows-per-batch", "100")
        end = max(offset(lake), 0) + PROGRESS
        wait_for(lambda end=end: reached(log, lake, end), job)  # type: ignore[misc]
        assert is_locked(lake)
        time.sleep(delay_s)  # into the next batch
        left |= descendants(job.pid)
        assert left
        job.kill()
        assert job.wait() == -signal.SIGKILL
        assert not is_locked(lake)
        if place:  # else the next job begins while Java of this one may still run
            wait_until_gone(left)
    status, out, err = shell.run(*command, "--once", "--json")
    assert (status, "Traceback" in err) == (0, False), err
    assert json.loads(out)["added"]["records"]["rows"] > 0
    wait_until_gone(left)
    status, out, err = shell.run("pipeline", "reconcile", "data", "--lake", "lake")
    assert (status, out.endswith(f", {log.records} records, 0 segments differ\n")) == (0, True), (out, err)

    spark = spark_session("wanderbus-tests")
    try:
        ingest(spark, shell.directory / "data" / "log", whole, shell.directory / "checkpoint")
        assert set(differences(spark, lake, whole).values()) == {0}
    finally:
        spark.stop()
    found, wanted = (lake_status(each, log.records) for each in (lake, whole))
    assert found.last_run is not None
    assert (found.is_changing, found.last_run.state) == (False, "COMPLETE")
    assert [each.misfits for each in found.tables] == [each.misfits for each in wanted.tables]
    assert sum(each.misfits for each in found.tables) > 0


@pytest.mark.parametrize("pause_s", [0.0, 0.1, 0.5])
def test_a_second_ctrl_c_ends_a_run_at_once(shell: Shell, log: GrowingLog, pause_s: float) -> None:
    lake = shell.directory / "lake"
    job = shell.start("pipeline", "run", "data", "--lake", "lake", "--every", "0.1", "--rows-per-batch", "20")
    wait_for(lambda: reached(log, lake, RECORDS), job)
    left = descendants(job.pid)
    job.send_signal(signal.SIGINT)
    if pause_s:
        time.sleep(pause_s)
        job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=ENDED_S_MAX)
    assert job.returncode in ((0, 130) if pause_s else (0,)), err
    assert "SIGINT: ending after the present batch" in err
    assert "Traceback" not in err
    assert "Exception" not in err
    assert not is_locked(lake)
    wait_until_gone(left)
