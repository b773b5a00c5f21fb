"""Priority of the processes that are measured, and how long one of them had to wait for a processor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

NICE: Final = -15
"""Priority of the server and of the good agents: what else the machine does, attackers included, gives way to them, so
that their latency is that of the server."""


def come_first() -> None:
    """Give this process, which must lead no group, the priority :data:`NICE`, in a session of its own.

    Linux divides processors among sessions before it looks at the priority within one (sched(7), autogroup).
    """
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with contextlib.suppress(OSError):  # a kernel without autogroups has only the priority
        Path("/proc/self/autogroup").write_text(str(NICE), encoding="ascii")


def waited_s(pid: int) -> float:
    """Return how long the main thread of a process was ready to run without a processor; 0 where nobody knows."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
