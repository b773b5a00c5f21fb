"""Search for processes that outlive a run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from faults.process_tree import is_running

END_S_MAX = 30.0


def wait_for_end(pids: Sequence[int]) -> None:
    """Wait until the kernel has ended these processes, which are killed already; fail if one survives."""
    deadline = time.monotonic() + END_S_MAX
    while alive := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} outlived the run"
        time.sleep(0.02)
