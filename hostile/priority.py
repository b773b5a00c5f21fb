"""Priority of the measured processes, and the time that one of them waited for a processor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

NICE: Final = -15
"""Priority of the server and of the good agents: everything else on the machine, attackers included, yields to them, so
that their latency is that of the server.
"""


def come_first() -> None:
    """Give this process, which must lead a session or no group, the priority :data:`NICE`, in a session of its own.

    Linux divides processors among sessions before it looks at the priority within one (sched(7), autogroup).
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with contextlib.suppress(OSError):  # a kernel without autogroups has only the priority
        Path("/proc/self/autogroup").write_text(str(NICE), encoding="ascii")


def waited_s(pid: int) -> float:
    """Return how long the main thread of a process was ready without a processor; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
