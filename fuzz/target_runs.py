"""Runner of a target over many inputs, on all processors, with measurements of each.

Input ``index`` of a target depends only on seed, target and index. Time is CPU time of the process; a slow input is
measured twice more before it counts. Memory is the peak of tracemalloc, for one input in ``SAMPLED_EACH`` and for the
slowest and the largest of every chunk: tracing all inputs would make the run several times as long.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

CPU_S_MAX: Final = 0.050
MEMORY_BYTES_MAX: Final = 16 * 2**20
SAMPLED_EACH: Final = 64
CHUNK_INPUTS: Final = 250
PROGRESS_EACH_S: Final = 1.5
FAILURES_MAX: Final = 100
"""Failures after which a target is abandoned."""


class Broken(Exception):
    """An input was accepted, but a required property does not hold."""


@dataclass(frozen=True)
class Target:
    """Fuzzing target: ``make`` returns an input, ``handle`` reads it and is measured, ``examine`` is not.

    ``handle`` returns whether the input was accepted; both raise for forbidden results. For a target that compares
    pairs, each input has at least ``pairs``. An input that takes more than ``cpu_s_max`` seconds is too slow.
    """

    name: str
    make: Callable[[Random], bytes]
    handle: Callable[[bytes], bool]
    examine: Callable[[bytes], None]
    pairs: int = 0
    cpu_s_max: float = CPU_S_MAX


@dataclass
class Failure:
    """One input that broke a promise."""

    target: str
    kind: str
    detail: str
    data: bytes


@dataclass
class Tally:
    """Results of some inputs."""

    inputs: int = 0
    accepted: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    memory_measured: int = 0
    peak_bytes: int = 0
    largest_input_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the figures of ``other``."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.cpu_s += other.cpu_s
        self.memory_measured += other.memory_measured
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        self.largest_input_bytes = max(self.largest_input_bytes, other.largest_input_bytes)
        self.failures += other.failures


def input_of(target: Target, seed: int, index: int) -> bytes:
    """Return one input; the same for the same arguments."""
    return target.make(Random(f"{seed} {target.name} {index}"))


def judge(target: Target, data: bytes, cpu_s_max: float = CPU_S_MAX) -> tuple[bool, float, Failure | None]:
    """Handle one input; return whether it was accepted, its CPU seconds, and its failure."""
    try:
        accepted, cpu_s = _timed(target, data)
        if cpu_s > cpu_s_max:
            cpu_s = min(cpu_s, _timed(target, data)[1], _timed(target, data)[1])
        target.examine(data)
    except Broken as broken:
        return True, 0.0, Failure(target.name, "broken", str(broken), data)
    except Exception as error:
        return False, 0.0, Failure(target.name, "undeclared", f"{type(error).__name__}: {error}", data)
    if cpu_s > cpu_s_max:
        return accepted, cpu_s, Failure(target.name, "slow", f"{cpu_s * 1000:.1f} ms", data)
    return accepted, cpu_s, None


def peak_of(target: Target, data: bytes) -> int:
    """Return the peak memory, in bytes, of handling an input."""
    tracemalloc.start()
    try:
        target.handle(data)
    except Exception:
        return 0  # it has been counted as a failure already
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def run_chunk(target: Target, seed: int, indexes: range, cpu_s_max: float = CPU_S_MAX) -> Tally:
    """Handle the inputs of ``indexes`` in this process."""
    tally = Tally()
    slowest, largest = b"", b""
    measured: list[bytes] = []
    for index in indexes:
        data = input_of(target, seed, index)
        accepted, cpu_s, failure = judge(target, data, cpu_s_max)
        tally.inputs += 1
        tally.accepted += accepted
        tally.cpu_s += cpu_s
        if cpu_s > tally.slowest_s:
            tally.slowest_s, slowest = cpu_s, data
        if len(data) > len(largest):
            largest = data
        if failure is not None:
            tally.failures.append(failure)
        if index % SAMPLED_EACH == 0:
            measured.append(data)
    tally.largest_input_bytes = len(largest)
    for data in (*measured, slowest, largest):
        peak = peak_of(target, data)
        tally.memory_measured += 1
        tally.peak_bytes = max(tally.peak_bytes, peak)
        if peak > MEMORY_BYTES_MAX:
            tally.failures.append(Failure(target.name, "memory", f"{peak / 2**20:.1f} MB", data))
    return tally


def run(
    target: Target,
    inputs: int,
    seed: int,
    *,
    until: float,
    jobs: int | None = None,
    cpu_s_max: float = CPU_S_MAX,
) -> Tally:
    """Handle ``inputs`` inputs, or fewer if monotonic second ``until`` or too many failures come first.

    An input is too slow above ``cpu_s_max`` seconds. Reports progress on standard error, at least every other second.
    """
    chunks = (range(start, min(start + CHUNK_INPUTS, inputs)) for start in range(0, inputs, CHUNK_INPUTS))
    jobs = jobs or os.cpu_count() or 1
    tally = Tally()
    shown_at = time.monotonic()
    judged = partial(run_chunk, target, seed, cpu_s_max=cpu_s_max)
    for finished in map(judged, chunks) if jobs == 1 else _in_parallel(judged, chunks, jobs):
        if finished is not None:
            tally.add(finished)
        if time.monotonic() - shown_at >= PROGRESS_EACH_S:
            shown_at = time.monotonic()
            _show(target, tally, inputs)
        if time.monotonic() >= until or len(tally.failures) >= FAILURES_MAX:
            break
    return tally


def save(failures: Sequence[Failure], directory: Path) -> list[Path]:
    """Write the input of each failure to a file of its own; return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for failure in failures:
        path = directory / f"{failure.target}-{failure.kind}-{hashlib.sha256(failure.data).hexdigest()[:12]}.bin"
        path.write_bytes(failure.data)
        paths.append(path)
    return paths


def _timed(target: Target, data: bytes) -> tuple[bool, float]:
    began = time.process_time()
    accepted = target.handle(data)
    return accepted, time.process_time() - began


def _in_parallel(judged: Callable[[range], Tally], chunks: Iterator[range], jobs: int) -> Iterator[Tally | None]:
    """Yield the tally of each chunk, and None if none arrived for a second."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Tally]] = set()
        try:
            while True:
                while len(running) < 2 * jobs and (chunk := next(chunks, None)) is not None:
                    running.add(pool.submit(judged, chunk))
                if not running:
                    return
                finished, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
                if not finished:
                    yield None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _show(target: Target, tally: Tally, inputs: int) -> None:
    found = f", {len(tally.failures)} failures" if tally.failures else ""
    slowest = f"slowest {tally.slowest_s * 1000:.1f} ms"
    print(f"{target.name}: {tally.inputs:,} of {inputs:,} inputs, {slowest}{found}", file=sys.stderr, flush=True)
