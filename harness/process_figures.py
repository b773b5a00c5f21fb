"""Processor time, memory and open files of a process, from ``/proc``; 0 for a process that has ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path


def processor_s(pids: Sequence[int]) -> float:
    """Return the processor seconds that these processes and their living children have used so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
            ticks += round(processor_s([int(child) for child in children]) * os.sysconf("SC_CLK_TCK"))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """Return the number of descriptors of a process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
