"""Processor time of processes."""

from __future__ import annotations

import os
from pathlib import Path


def tree_s(pid: int) -> float:
    """Return the processor time of a process and all its descendants, those that have ended included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        threads = [each.read_text().split() for each in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return 0.0  # it has ended meanwhile
    own_s = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own_s + sum(tree_s(int(child)) for children in threads for child in children)


def threads_s(pid: int) -> float:
    """Return the processor time of the living threads of a process, to the nanosecond."""
    fields = (each.read_text(encoding="ascii").split() for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(spent) for spent, *_ in fields) / 1e9
