"""Search for processes that outlive a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

END_S_MAX = 10.0


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pids: Sequence[int]) -> None:
    """Wait until the kernel has ended these processes, which are killed already; fail if one survives."""
    deadline = time.monotonic() + END_S_MAX
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} outlived the run"
        time.sleep(0.02)
