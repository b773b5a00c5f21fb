"""Jobs of ``wanderbus pipeline run`` as processes: how far they are, and the processes that they start."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from faults.process_tree import is_running
from wanderbus.errors import WanderbusError

WAIT_S = 300.0
POLL_S = 0.2
"""Pause between two looks: one reads all tables of a lake, or a log, beside the job that is to get there."""

GONE_S_MAX = 90.0
"""Longest time until the processes of a killed job are gone: Java ends with the pipe to its driver."""


def offset(lake: Path) -> int:
    """Return the offset up to which all tables of a lake have the log; -1 while one of them does not exist."""
    from wanderbus.pipeline.operation.status import lake_status

    try:
        offsets = [each.offset for each in lake_status(lake, 0).tables if each.offset is not None]
    except WanderbusError:
        return -1
    return min(offsets) if len(offsets) == 7 else -1


def wait_for(condition: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    """Wait until something is so; the job must not end before."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(POLL_S)


def wait_until_gone(pids: set[int]) -> None:
    """Wait until processes have ended by themselves; a zombie has ended."""
    deadline_s = time.monotonic() + GONE_S_MAX
    while left := {pid for pid in pids if is_running(pid)}:
        assert time.monotonic() < deadline_s, f"processes {sorted(left)} outlived their job"
        time.sleep(0.05)
