"""Search for the dearest permitted input of each computation whose input somebody else chooses, by climbing.

The measure is counted: function calls, in Python and out of it, which are the same in every run. An input that takes
more of them, in all or for a unit of the computation's own count of work, is kept and changed further. Then the dearest
ones are timed. A computation fails if a permitted input is beyond its bound, or if its time is out of proportion to its
counted work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from fuzz.cost_targets import COMPUTATIONS, Computation
from fuzz.mutation import mutated
from fuzz.target_runs import Failure, save
from harness.calls import calls_of
from harness.reporting import Goal, goal, write_report
from wanderbus.filters import parse
from wanderbus.filters.compiled import compile_node

INPUTS: Final = 800
SEARCH_S: Final = 15.0
"""Longest search for one computation."""

KEPT: Final = 12
"""Inputs that are changed further, for each of the two measures."""

TIMED: Final = 6
LEAST_S: Final = 0.000_5
"""CPU time from which on a computation is judged; shorter ones are noise."""

OUT_OF_PROPORTION: Final = 5.0
"""Times the nanoseconds of a unit from which on counted work and time are out of proportion; machines differ less."""

_REFERENCE_S: Final = 0.040
"""CPU time of :func:`slowness` on the reference machine."""


class Found(NamedTuple):
    """An input, the work that it takes, and the function calls."""

    data: bytes
    units: float
    calls: int


class Dearest(NamedTuple):
    """Result of one computation."""

    computation: Computation
    inputs: int
    accepted: int
    found: Found
    cpu_s: float
    unit_ns: float
    """Most nanoseconds of a unit, on this machine."""

    failures: list[Failure]


def climb(computation: Computation, inputs: int, random: Random, until: float) -> tuple[list[Found], int, list[Found]]:
    """Return the dearest inputs, how many were tried, and those beyond the bound."""
    kept: dict[bytes, Found] = {}
    beyond: list[Found] = []
    tried = 0
    while tried < inputs and time.monotonic() < until:
        tried += 1
        data = _next(computation, list(kept), random)
        if data in kept or (prepared := computation.prepare(data)) is None:
            continue
        found = Found(data, prepared.units, calls_of(prepared.run))
        if found.units > computation.bound:
            beyond.append(found)
        kept[data] = found
        if len(kept) > 2 * KEPT:
            kept = {each.data: each for each in _best(list(kept.values()))}
    return _best(list(kept.values())), tried, beyond


def _best(found: Sequence[Found]) -> list[Found]:
    by_calls = sorted(found, key=lambda each: -each.calls)[:KEPT]
    large = [each for each in found if each.units >= by_calls[0].units / 10] if by_calls else []
    by_share = sorted(large, key=lambda each: -each.calls / max(1.0, each.units))[:KEPT]
    return list(dict.fromkeys((*by_calls, *by_share)))


def _next(computation: Computation, kept: Sequence[bytes], random: Random) -> bytes:
    drawn = random.random()
    if not kept or drawn < 0.15:
        return computation.make(random)
    one, other = random.choice(kept), random.choice(kept)
    return computation.grow(random, one, other) if drawn < 0.7 else mutated(random, one, [one, other])


def timed(computation: Computation, data: bytes) -> float:
    """Return the CPU seconds of a computation: the least of some runs."""
    prepared = computation.prepare(data)
    assert prepared is not None
    best = 1e9
    for _ in range(4):
        run = prepared.run if prepared.fresh is None else prepared.fresh()
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def search(computation: Computation, inputs: int, seed: int, until: float, slow: float) -> Dearest:
    """Return the dearest input of a computation; this machine takes ``slow`` times as long as the reference."""
    random = Random(f"{seed} {computation.name}")
    best, tried, beyond = climb(computation, inputs, random, until)
    failures = [Failure(computation.name, "beyond", f"{each.units:,.0f} units", each.data) for each in beyond[:1]]
    chosen = list(dict.fromkeys((*best[: TIMED // 2], *best[-(TIMED // 2) :])))
    most_ns, cpu_s = 0.0, 0.0
    for each in chosen:
        took_s = timed(computation, each.data)
        cpu_s = max(cpu_s, took_s)
        if took_s < LEAST_S:
            continue
        unit_ns = took_s / max(1.0, each.units) * 1e9
        most_ns = max(most_ns, unit_ns)
        if unit_ns > OUT_OF_PROPORTION * slow * computation.unit_ns:
            detail = f"{each.units:,.0f} units took {took_s * 1000:.1f} ms: {unit_ns:.0f} ns each"
            failures.append(Failure(computation.name, "disproportion", detail, each.data))
    return Dearest(computation, tried, len(best), best[0] if best else Found(b"", 0, 0), cpu_s, most_ns, failures)


def slowness() -> float:
    """Return how many times as long as the reference machine this one takes, at least 1."""
    test = compile_node(parse(" or ".join(f"a == {n}" for n in range(500))).root)
    best = 1e9
    for _ in range(5):
        began = time.process_time()
        for _ in range(1_000):
            test({"a": -1})
        best = min(best, time.process_time() - began)
    return max(1.0, best / _REFERENCE_S)


def main(options: Any) -> int:
    """Search the computations of the command line; return the exit status."""
    wanted = [each for each in COMPUTATIONS if options.target in ("", each.name)]
    if not wanted:
        names = ", ".join(each.name for each in COMPUTATIONS)
        print(f"cost has no target {options.target!r}; use one of: {names}", file=sys.stderr)
        return 2
    until = time.monotonic() + options.seconds
    slow = slowness()
    results = []
    for computation in wanted:
        own = min(until, time.monotonic() + SEARCH_S)
        results.append(search(computation, options.inputs or INPUTS, options.seed, own, slow))
        _say(results[-1], options.failures)
    goals = goals_of(results)
    if options.json:
        write_report(options.json, "fuzz cost", [_result(each) for each in results], goals)
    return 1 if any(each.failures for each in results) else 0


def goals_of(results: Sequence[Dearest]) -> list[Goal]:
    """Return the goals of a search."""
    kinds = [failure.kind for each in results for failure in each.failures]
    return [
        goal("cost_beyond_bounds", kinds.count("beyond"), "computations", most=0),
        goal("cost_out_of_proportion", kinds.count("disproportion"), "inputs", most=0),
    ]


def _result(each: Dearest) -> dict[str, Any]:
    return {
        "target": each.computation.name,
        "inputs": each.inputs,
        "units": each.found.units,
        "bound": each.computation.bound,
        "calls": each.found.calls,
        "cpu_ms": round(each.cpu_s * 1000, 3),
        "unit_ns": round(each.unit_ns, 1),
        "failures": [failure.kind for failure in each.failures],
    }


def _say(each: Dearest, directory: Path) -> None:
    found, bound = each.found, each.computation.bound
    print(
        f"{each.computation.name:18} {found.units:9,.0f} of {bound:9,.0f} units, "
        f"{found.calls:9,} calls, {each.cpu_s * 1000:6.1f} ms, {each.unit_ns:7.1f} ns a unit, {len(found.data)} bytes",
        flush=True,
    )
    for failure, path in zip(each.failures, save(each.failures, directory) if each.failures else (), strict=True):
        print(f"{failure.target}: {failure.kind}: {failure.detail}; see {path}", file=sys.stderr)
