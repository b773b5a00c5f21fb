"""The processes below a process: which they are, which still run, and their end.

A process may end between any two steps, so each function takes one that is gone for one that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from faults.victim import Died

GONE_S_MAX: Final = 120.0


def descendants(pid: int) -> set[int]:
    """Return the process ids of all descendants of a process."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            for child in map(int, path.read_text().split()):
                found |= {child} | descendants(child)
    return found


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def named(pids: Iterable[int], name: str) -> list[int]:
    """Return the processes whose program has a name that begins so, in ascending order."""
    found = []
    for pid in sorted(pids):
        with contextlib.suppress(OSError):
            if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith(name):
                found.append(pid)
    return found


def kill(pids: Iterable[int]) -> None:
    """Kill the processes that are left."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait for the end of what a killed process left; raise :class:`Died` if something stays."""
    deadline = time.monotonic() + GONE_S_MAX
    while left := sorted(pid for pid in pids if is_running(pid)):
        if time.monotonic() > deadline:
            raise Died(f"processes {left} outlived the process that started them")
        await asyncio.sleep(0.05)
