"""Bytes per subscription of an index, ids included: how much a process grows by it; ``-m bench.matching_memory``.

A process of its own, since what others left behind would be filled first. Filters are made one by one and kept by
nobody else; the kernels are compiled before, on a small index. Then some are replaced, and events are matched until
what the index puts off is done.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench.matching_workload import Workload, workload
from wanderbus.matching import Index

EVENTS = 1_024
AT_REST = 6_000
"""Events after which an index has finished its deferred work."""


class Grown(NamedTuple):
    """Bytes per subscription: at rest, and the maximum before."""

    at_rest: float
    most: float


def bytes_per_subscription(name: str, count: int) -> Grown:
    """Measure in a process of its own."""
    line = [sys.executable, "-m", "bench.matching_memory", name, str(count)]
    return Grown(*json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout))


def grown(name: str, count: int) -> Grown:
    """Return by how much this process grows with an index of ``count`` subscriptions, a tenth of them replaced."""
    drawn = workload(name, count + max(1, count // 10), EVENTS)
    events = drawn.events()
    warm = _filled(drawn, min(count, 2_000))
    warm.match(events)
    del warm
    before = _resident_bytes()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the maximum from now on
    index = _filled(drawn, count)
    index.match(events)
    for number in range(count, len(drawn)):
        index.add(str((number - count) * 10), drawn.subject_of(number), drawn.filter(number))
    for at in range(AT_REST):
        index.match(events[at % EVENTS :][:1])
    most = _status("VmHWM")
    return Grown((_resident_bytes() - before) / count, (most - before) / count)


def _filled(drawn: Workload, count: int) -> Index:
    index = Index()
    for number in range(count):
        index.add(str(number), drawn.subject_of(number), drawn.filter(number))
    return index


def _resident_bytes() -> int:
    """Return the memory of the process, after free memory has been returned to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


if __name__ == "__main__":
    print(json.dumps(grown(sys.argv[1], int(sys.argv[2]))))
