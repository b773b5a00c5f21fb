"""Filters: parsed, compared and merged per second, and how the time to merge grows with their number.

The workload is that of :mod:`bench.filters_workload`. ``merge_1m_s`` is the clock's time to merge a million filters
from their normal forms, in which a server keeps them; ``merge_1m_from_filters_s`` has the making of the forms from the
parsed filters besides. ``merge_slope`` is the slope of the line through the logarithms of processor time and number,
of 10,000, 100,000 and a million filters. The naive versions do the same in pairs, on as many as end in time.
"""

from __future__ import annotations

import argparse
import gc
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench import filters_naive, filters_workload
from harness.reporting import Goal, finish, goal, progress
from wanderbus.filters import Filter, parse, xml
from wanderbus.filters.conjunctions import covers
from wanderbus.filters.merging import MergedSet, Mode, merge_conjunctions
from wanderbus.filters.normal import Conjunction, NormalForm
from wanderbus.filters.normalising import normal_form

PUBLISHED = "(Stock == PETR4) and (Price < 25)"
CESQL = "Stock = 'PETR4' AND Price < 25"
NAIVE_COUNT = 1_000
GROUP = 1_000
MEASURED_S = 1.0


class Merged(NamedTuple):
    """One merge: what came in and out, and what it took by the clock and of the processor."""

    workload: str
    mode: str
    filters: int
    merged: int
    normalising_s: float
    passed_s: float
    processor_s: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    rates = _rates(0.2 if options.quick else MEASURED_S)
    naive, naive_goals = _against_naive(NAIVE_COUNT // 5 if options.quick else NAIVE_COUNT)
    largest = min(options.filters, 10_000) if options.quick else options.filters
    merges = _merges(largest)
    changes = _changes_per_s(largest // 10)
    goals = [*rates, *naive_goals, *_goals(merges), *changes]
    return finish("bench filters", [*map(_row, merges), naive], goals, file=options.json, strict=options.strict)


def _rates(measured_s: float) -> list[Goal]:
    progress("parsing and covering")
    document = xml.write_filter(parse(PUBLISHED)).decode()
    texts = list(filters_workload.texts(1_000, 50))
    filters = [parse(text) for text in texts]
    forms = [normal_form(each) for each in filters]
    pairs = [(one[0], other[0]) for one, other in pairwise(sorted(forms, key=repr))]
    return [
        goal("parse_eci_per_s", per_s(parse, [PUBLISHED], measured_s), "1/s", least=20_000),
        goal("parse_eci_mixed_per_s", per_s(parse, texts, measured_s), "1/s"),
        goal("parse_cesql_per_s", per_s(lambda text: parse(text, "cesql"), [CESQL], measured_s), "1/s"),
        goal("parse_xml_per_s", per_s(lambda text: parse(text, "xml"), [document], measured_s), "1/s"),
        goal("normal_form_per_s", per_s(normal_form, filters, measured_s), "1/s"),
        goal("covering_checks_per_s", per_s(lambda pair: covers(*pair), pairs, measured_s), "1/s"),
    ]


def per_s(function: Callable[[Any], object], values: Sequence[Any], measured_s: float) -> float:
    """Return how many of ``values``, again and again, ``function`` takes per second of processor time."""
    many = list(islice(cycle(values), max(100, len(values))))
    done, started = 0, time.process_time()
    while (passed_s := time.process_time() - started) < measured_s:
        for value in many:
            function(value)
        done += len(many)
    return done / passed_s


def _against_naive(count: int) -> tuple[dict[str, object], list[Goal]]:
    """Compare with the naive version, on one structure, where no shortcut spares it most pairs."""
    progress(f"naive versions, {count} filters of one structure")
    conjunctions, _ = normalised(filters_workload.one_schema(count))
    own_s, own = _processor_s(lambda: merge_conjunctions(conjunctions))
    naive_s, naive = _processor_s(lambda: filters_naive.perfect(conjunctions))
    covering_s, _ = _processor_s(lambda: filters_naive.uncovered(conjunctions))
    row: dict[str, object] = {
        "workload": "one schema",
        "filters": count,
        "merged": len(own),
        "naive_merged": len(naive),
        "processor_s": own_s,
        "naive_processor_s": naive_s,
        "naive_covering_processor_s": covering_s,
    }
    return row, [
        goal("merge_vs_naive", naive_s / own_s, "times as fast"),
        goal("merge_vs_naive_covering_alone", covering_s / own_s, "times as fast"),
    ]


def _merges(largest: int) -> list[Merged]:
    published = "20 filters a schema"
    merges = [_merge(published, count, "perfect") for count in (largest // 100, largest // 10, largest)]
    fewer = min(largest, 100_000)
    merges += [_merge(workload, fewer, "perfect") for workload in ("1,000 filters a schema", "one schema")]
    merges.append(_merge(published, fewer, "imperfect"))
    merges.append(_merge(published, min(largest, 10_000), "adaptive"))
    if largest > fewer:
        merges.append(_merge("one schema", largest, "perfect"))
    return merges


def _merge(workload: str, count: int, mode: Mode) -> Merged:
    progress(f"{count:,} filters, {workload}, {mode}")
    per_schema = {"20 filters a schema": 20, "1,000 filters a schema": GROUP}.get(workload)
    texts = (
        filters_workload.one_schema(count)
        if per_schema is None
        else filters_workload.texts(count, max(1, count // per_schema))
    )
    conjunctions, normalising_s = normalised(texts)
    # The garbage collector skips existing objects, as in a server that runs.
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    processor_s, result = _processor_s(lambda: merge_conjunctions(conjunctions, mode))
    passed_s = time.perf_counter() - started
    gc.unfreeze()
    return Merged(workload, mode, count, len(result), normalising_s, passed_s, processor_s)


def normalised(texts: Iterable[str]) -> tuple[list[Conjunction], float]:
    """Return the conjunctions of ``texts``, and how long making them of the parsed filters took by the clock."""
    conjunctions: list[Conjunction] = []
    passed_s = 0.0
    ahead = iter(texts)
    while filters := [parse(text) for text in islice(ahead, 1_000)]:
        started = time.perf_counter()
        for each in filters:
            conjunctions.extend(normal_form(each))
        passed_s += time.perf_counter() - started
    return conjunctions, passed_s


def _changes_per_s(count: int) -> list[Goal]:
    """Measure single filters that come and go in a set that has ``count``."""
    progress(f"changes of a set of {count:,} filters")
    filters = [parse(text) for text in filters_workload.texts(count + 1_000, count // filters_workload.PER_SCHEMA)]
    forms: list[tuple[int, Filter | NormalForm]] = list(enumerate(map(normal_form, filters)))
    merged = MergedSet()
    merged.update(dict(forms[:count]))
    coming = forms[count:]

    def change() -> None:
        for number, form in coming:
            merged.add(number, form)
        for number, _ in coming:
            merged.remove(number)

    passed_s, _ = _processor_s(change)
    return [goal("merged_set_changes_per_s", 2 * len(coming) / passed_s, "1/s")]


def _goals(merges: Sequence[Merged]) -> list[Goal]:
    steps = [each for each in merges if each.mode == "perfect" and each.workload == "20 filters a schema"]
    whole = steps[-1] if steps[-1].filters == 1_000_000 else None
    alike = next((each for each in merges if each.workload == "one schema" and each.filters == 1_000_000), None)
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        goal("merge_1m_s", whole.passed_s if whole else math.nan, "s", most=60),
        goal("merge_1m_processor_s", whole.processor_s if whole else math.nan, "s"),
        goal("merge_1m_from_filters_s", whole.passed_s + whole.normalising_s if whole else math.nan, "s"),
        goal("merge_1m_one_schema_s", alike.passed_s if alike else math.nan, "s"),
        goal("merge_slope", slope(steps), "", most=1.2),
        goal("merge_memory_max", used_mb, "MB, with the filters"),
    ]


def slope(merges: Sequence[Merged]) -> float:
    """Return the slope of the least-squares line through the logarithms of time and number; NaN of fewer than two."""
    if len(merges) < 2:
        return math.nan
    x = [math.log(each.filters) for each in merges]
    y = [math.log(each.processor_s) for each in merges]
    return statistics.linear_regression(x, y).slope


def _processor_s(function: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = function()
    return time.process_time() - started, result


def _row(merged: Merged) -> dict[str, object]:
    print(
        f"{merged.filters:>9,} filters, {merged.workload}, {merged.mode}: {merged.merged:,} left,"
        f" {merged.passed_s:.2f} s, of the processor {merged.processor_s:.2f} s"
    )
    return merged._asdict()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench filters", description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument(
        "--filters", type=int, default=1_000_000, help="largest number of filters to merge (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="at most 10,000 filters, and short measurements")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)
