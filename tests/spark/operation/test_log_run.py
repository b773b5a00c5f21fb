"""The run of a query on one log: started again if its reader was late, and no other failure is repeated (SPEC T-03)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from wanderbus.pipeline.operation.log_run import STARTS_MAX, LogRun, PipelineFailed

LATE = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."


class Job:
    """A job whose queries end with these errors, one after the other, and then without one."""

    error = None

    def __init__(self, errors: list[str]) -> None:
        self.starts: list[dict[str, Any]] = []
        self._errors = errors

    def end(self) -> int:
        return 7

    def start(self, checkpoint: Path, **options: Any) -> Job:
        self.starts.append({"checkpoint": checkpoint, **options})
        return self

    def awaitTermination(self, timeout_s: float) -> bool:  # noqa: N802
        if self._errors:
            raise StreamingQueryException(self._errors.pop(0))
        return True


def started(tmp_path: Path, *errors: str) -> tuple[LogRun, Job]:
    job = Job(list(errors))
    run = LogRun(job, tmp_path / "log", "", tmp_path / "checkpoint")  # type: ignore[arg-type]
    run.start(100, 0.5)
    return run, job


def wait_to_the_end(run: LogRun) -> None:
    while not run.wait(0.1):
        pass


def test_a_query_whose_reader_was_late_is_started_again_as_before(tmp_path: Path) -> None:
    run, job = started(tmp_path, *[LATE] * (STARTS_MAX - 1))
    assert [run.wait(0.1) for _ in range(STARTS_MAX)] == [False] * (STARTS_MAX - 1) + [True]
    assert job.starts == [{"checkpoint": tmp_path / "checkpoint", "rows_per_batch": 100, "every_s": 0.5}] * STARTS_MAX


@pytest.mark.parametrize(("errors", "starts"), [([LATE] * STARTS_MAX, STARTS_MAX), (["Something else."], 1)])
def test_another_failure_and_the_last_start_end_the_run(tmp_path: Path, errors: list[str], starts: int) -> None:
    run, job = started(tmp_path, *errors)
    with pytest.raises(PipelineFailed, match=r"the batch begins at record 7 of .*log"):
        wait_to_the_end(run)
    assert len(job.starts) == starts
