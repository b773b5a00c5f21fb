"""Matching: events per second, from Event objects and while 1 % of the subscriptions are replaced every second.

The workloads are those of :mod:`bench.matching_workload`; seconds are of the processor, on one core. ``vs_static_100k``
and ``vs_static_1m`` are the index's events per second, 1,024 at once, over those of the study's kernel in the same run
(:mod:`bench.matching_static`: events encoded before, subscriptions that stay). ``range_only_vs_static`` and
``dnf_vs_static`` are the same of their workloads at 100,000, over the kernel's on the study's workload, since it can do
conjunctions alone. ``single_event_100k_us`` is the median of one event at a time; ``updates_per_s`` counts filters
that replace another at 100,000. ``fresh_index_vs_static_100k`` is the ratio of an index that has just been filled by
``add_many``, both taking the same events in turns. ``differences`` are pairs of an event and a subscription on which
index and filter disagree, of a sample after everything else.
"""

from __future__ import annotations

import argparse
import gc
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import harmonic_mean
from typing import Final, NamedTuple

from bench.matching_churn import Churned, Rate, timed
from bench.matching_memory import Grown, bytes_per_subscription
from bench.matching_peers import Peer, peers
from bench.matching_static import Static
from bench.matching_workload import SHAPES, Workload, workload
from harness.reporting import Goal, finish, goal, median, percentile, progress
from wanderbus.matching import Index, load_kernel

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
BATCHES: Final = (1, 64, 1_024)
EVENTS: Final = 4_096
JUDGED: Final = 32
SPARE_LEAST: Final = 10_000
STUDIED: Final = ("study", "ranges")
"""Workload that the study's kernel supports."""
MEASURED_S: Final = 3.0
FRESH_TURNS: Final = 7
AT_REST_A_S: Final = 40_000
"""Subscriptions of an index per second of rest, and single events, before it is measured."""

Row = dict[str, object]


class Measured(NamedTuple):
    """Figures of an index with a number of subscriptions of one workload."""

    workload: str
    subscriptions: int
    build_s: float
    rates: dict[int, Rate]
    updates_per_s: float
    differences: int
    static_per_s: float
    fresh_vs_static: float = math.nan
    """Rate of an index that has just been filled by ``add_many``, over that of the study's kernel."""

    def rows(self) -> Iterator[Row]:
        """Give the rows of the report, and print them."""
        for rate in self.rates.values():
            row = rate.row(self.workload, self.subscriptions)
            print(
                f"{self.workload}, {self.subscriptions:,} subscriptions, {rate.batch:,} at once:"
                f" {rate.events_per_s:,.0f} events/s, {row['matches_per_event']} matches each, a call"
                f" {row['call_p50_us']} us, p99 {row['call_p99_us']}, longest {row['call_longest_ms']} ms;"
                f" longest update {row['update_longest_ms']} ms",
                flush=True,
            )
            yield {**row, "build_s": round(self.build_s, 3), "updates_per_s": round(self.updates_per_s, 1)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    seconds = min(0.3, options.seconds) if options.quick else options.seconds
    sizes = [size for size in options.sizes if size <= (10_000 if options.quick else size)]
    load_kernel()
    measured: dict[tuple[str, int], Measured] = {}
    rows: list[Row] = []
    for size in sizes:
        for name in options.workloads:
            one, compared = _measure(name, size, seconds)
            measured[name, size] = one
            rows += [*one.rows(), *compared]
    memory = {} if options.no_memory else _memory(options.workloads, sizes)
    rows += [
        {"workload": name, "subscriptions": size, "bytes_per": each.at_rest, "bytes_per_at_most": each.most}
        for (name, size), each in memory.items()
    ]
    return finish("bench matching", rows, _goals(measured, memory), file=options.json, strict=options.strict)


def _measure(name: str, size: int, seconds: float) -> tuple[Measured, list[Row]]:
    progress(f"{name}, {size:,} subscriptions")
    drawn = workload(name, size + max(SPARE_LEAST, size // 10), EVENTS)
    static = Static(drawn, size) if name in STUDIED else None
    before_per_s = _static_per_s(static, drawn, seconds / 2)
    fresh_vs_static = _fresh_vs_static(static, drawn, size) if name == "study" and static else math.nan
    churned = Churned(drawn, size, Index)
    build_s = churned.build()
    gc.collect()
    # Steady state first: by then an index has finished the work that it deferred when it was filled.
    warm = churned.run(1, max(seconds / 2, size / AT_REST_A_S))
    expected_s = percentile(warm.calls_s, 0.5) if warm else 0.0
    rates: dict[int, Rate] = {}
    for batch in BATCHES:
        rate = churned.run(batch, seconds, expected_s * batch)
        if rate is not None:
            rates[batch] = rate
    # The machine may be slower now than before: both measurements count alike.
    static_per_s = harmonic_mean([before_per_s, _static_per_s(static, drawn, seconds / 2)])
    updates_per_s = churned.updates_per_s(seconds)
    one = Measured(
        name, size, build_s, rates, updates_per_s, churned.differences(JUDGED), static_per_s, fresh_vs_static
    )
    return one, [] if static is None else _compared(drawn, size, static, static_per_s, seconds)


def _fresh_vs_static(static: Static, drawn: Workload, size: int) -> float:
    """Return the rate of freshly filled indexes over that of the study's kernel, in turns.

    Each index is filled again after a few batches: matching continues deferred work, so an index does not stay fresh.
    """
    events = drawn.events()[:1_024]
    several = [(str(number), drawn.subject_of(number), drawn.filter(number)) for number in range(size)]
    ratios = []
    for _ in range(FRESH_TURNS):
        index = Index()
        index.add_many(several)
        for _ in range(2):
            of_static_s, _ = timed(lambda: [static.count(drawn.encoded[:1_024]) for _ in range(2)])
            of_index_s, _ = timed(lambda index=index: [index.match(events) for _ in range(2)])  # type: ignore[misc]
            ratios.append(of_static_s / of_index_s)
    return median(ratios)


def _static_per_s(static: Static | None, drawn: Workload, seconds: float) -> float:
    """Return the events per second of the study's kernel, events and subscriptions as it likes them."""
    if static is None:
        return math.nan
    static.count(drawn.encoded[:1])
    passed_s, done = 0.0, 0
    while passed_s < seconds:
        passed_s += timed(lambda: static.count(drawn.encoded[:1_024]))[0]
        done += 1_024
    return done / passed_s


def _compared(drawn: Workload, size: int, static: Static, static_per_s: float, seconds: float) -> list[Row]:
    """Return the rows of the study's kernel and of the peers, and print them."""
    figures = {"static kernel": static_per_s}
    if drawn.name == "study":
        figures |= {name: _events_per_s(drawn, match, seconds) for name, match in peers(drawn, size, static)}
    rows: list[Row] = []
    for name, per_s in figures.items():
        print(f"{drawn.name}, {size:,} subscriptions, {name}: {per_s:,.1f} events/s", flush=True)
        rows.append({"workload": drawn.name, "subscriptions": size, "peer": name, "events_per_s": round(per_s, 2)})
    return rows


def _events_per_s(drawn: Workload, match: Peer, seconds: float) -> float:
    """Match batches of growing size with a peer: twice as many each time, until they take long enough."""
    rows, count = drawn.encoded, 1
    match(rows[:1])
    while True:
        passed_s, _ = timed(lambda count=count: match(rows[:count]))  # type: ignore[misc]
        if passed_s >= seconds / 4 or 2 * count > len(rows):
            return count / passed_s
        count *= 2


def _memory(names: list[str], sizes: list[int]) -> dict[tuple[str, int], Grown]:
    """Measure the study's workload at the two largest sizes, the others at the largest but one."""
    found = {}
    for size in sorted(sizes)[-2:]:
        for name in names:
            if name == "study" or size < max(sizes):
                progress(f"memory: {name}, {size:,} subscriptions")
                found[name, size] = bytes_per_subscription(name, size)
    return found


def _goals(measured: dict[tuple[str, int], Measured], memory: dict[tuple[str, int], Grown]) -> list[Goal]:
    static = {size: one.static_per_s for (name, size), one in measured.items() if name == "study"}
    ratio = {key: _ratio(one, static.get(key[1], math.nan)) for key, one in measured.items()}
    own = {size: _ratio(one, one.static_per_s) for (name, size), one in measured.items() if name == "ranges"}
    study = measured.get(("study", 100_000))
    calls = [rate.calls_s for one in measured.values() for rate in islice(one.rates.values(), 1)]
    singles = study.rates[1].calls_s if study and 1 in study.rates else []
    updates = [rate.update_longest_s for one in measured.values() for rate in one.rates.values()]
    used = [each for (name, _), each in memory.items() if name == "study"]
    return [
        goal("vs_static_100k", ratio.get(("study", 100_000), math.nan), "", least=0.6),
        goal("vs_static_1m", ratio.get(("study", 1_000_000), math.nan), "", least=0.6),
        goal("range_only_vs_static", ratio.get(("ranges", 100_000), math.nan), "", least=0.3),
        goal("range_only_vs_static_of_ranges", own.get(100_000, math.nan), ""),
        goal("dnf_vs_static", ratio.get(("dnf", 100_000), math.nan), "", least=0.3),
        goal("single_event_100k_us", percentile(singles, 0.5) * 1e6, "us", most=100),
        goal("single_event_100k_p99_us", percentile(singles, 0.99) * 1e6, "us"),
        goal("updates_per_s", study.updates_per_s if study else math.nan, "1/s", least=50_000),
        goal("single_event_longest_ms", max((max(each) for each in calls), default=math.nan) * 1e3, "ms", most=5),
        goal("update_longest_ms", max(updates, default=math.nan) * 1e3, "ms"),
        goal("bytes_per_subscription", max((each.at_rest for each in used), default=math.nan), "bytes", most=400),
        goal("bytes_per_subscription_at_most", max((each.most for each in used), default=math.nan), "bytes"),
        goal("fresh_index_vs_static_100k", study.fresh_vs_static if study else math.nan, "", least=0.7),
        goal("differences", sum(one.differences for one in measured.values()), "pairs", most=0),
    ]


def _ratio(one: Measured, static_per_s: float) -> float:
    return one.rates[1_024].events_per_s / static_per_s if 1_024 in one.rates else math.nan


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench matching", description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="subscriptions (default %(default)s)")
    parser.add_argument("--workloads", nargs="+", choices=tuple(SHAPES), default=list(SHAPES), help="default: all")
    parser.add_argument(
        "--seconds", type=float, default=MEASURED_S, help="seconds of each measurement (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="at most 10,000 subscriptions, and short measurements")
    parser.add_argument(
        "--no-memory", action="store_true", help="do not measure memory, which needs a process for each figure"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)
