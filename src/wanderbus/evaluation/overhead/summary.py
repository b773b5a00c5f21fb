"""Summary of the runs, and a test of the paper's ranking."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Self

import msgspec

from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.overhead.experiment import Configuration

MOBILITY_MS_MAX: Final = 1.0
"""Largest latency that reliable UDP may add to an event, besides one sync of the disk. Our choice."""


class PlaceTimes(msgspec.Struct, frozen=True):
    """Times of disk and links during the runs: medians."""

    sync_p50_ms: float
    round_trip_p50_ms: dict[str, float]
    """Round trip by ``host-host``, including the delay of links that are programs."""


class Sample(msgspec.Struct, frozen=True):
    """One run of one configuration with one number of consumers."""

    run: int
    configuration: Configuration
    consumers: int
    sums_s: tuple[float, ...]
    """Mean per consumer: arrival less publication, over all events."""
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    rounds_ms: tuple[float, ...]
    """Mean of each round."""
    missing: int
    """Events that did not arrive, over all consumers."""
    unanswered: int
    """Events that the broker did not acknowledge as durable."""

    @classmethod
    def of(
        cls,
        run: int,
        configuration: Configuration,
        sums_s: Sequence[float],
        latencies_us: Sequence[int],
        rounds_ms: Sequence[float],
        *,
        missing: int,
        unanswered: int,
    ) -> Self:
        """Return the summary of the events of all consumers."""
        ordered_ms = sorted(each / 1_000 for each in latencies_us) or [math.inf]
        p50, p95, p99 = (ordered_ms[min(len(ordered_ms) * part // 100, len(ordered_ms) - 1)] for part in (50, 95, 99))
        mean = statistics.fmean(ordered_ms)
        worst = ordered_ms[-1]
        sums, rounds = tuple(sums_s), tuple(rounds_ms)
        return cls(run, configuration, len(sums), sums, mean, p50, p95, p99, worst, rounds, missing, unanswered)


class OverheadSummary(msgspec.Struct, frozen=True):
    """All runs of one configuration with one number of consumers; values are means unless stated otherwise."""

    configuration: Configuration
    consumers: int
    runs: int
    sum_s: float
    """Mean of the consumers' sums: the value of the paper's curves."""
    least_s: float
    most_s: float
    """Least and greatest of the consumers' sums."""
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    """Maximum of all runs."""
    missing: int
    """Total of all runs."""


class Slowdown(msgspec.Struct, frozen=True):
    """Slowdown of one configuration relative to another, per event, round by round."""

    consumers: int
    lower: Configuration
    upper: Configuration
    mean_ms: float
    error_ms: float
    """Its standard error; 0 with a single round."""


def summarize(samples: Iterable[Sample]) -> list[OverheadSummary]:
    """Return the summaries of ``samples``, by number of consumers and configuration."""
    by_place: dict[tuple[int, Configuration], list[Sample]] = {}
    for each in samples:
        by_place.setdefault((each.consumers, each.configuration), []).append(each)
    return [_summary(configuration, own) for (_, configuration), own in sorted(by_place.items())]


def _summary(configuration: Configuration, samples: Sequence[Sample]) -> OverheadSummary:
    sums_s = [sum_s for each in samples for sum_s in each.sums_s]
    return OverheadSummary(
        configuration=configuration,
        consumers=samples[0].consumers,
        runs=len(samples),
        sum_s=statistics.fmean(sums_s),
        least_s=min(sums_s),
        most_s=max(sums_s),
        mean_ms=statistics.fmean(each.mean_ms for each in samples),
        p50_ms=statistics.fmean(each.p50_ms for each in samples),
        p95_ms=statistics.fmean(each.p95_ms for each in samples),
        p99_ms=statistics.fmean(each.p99_ms for each in samples),
        max_ms=max(each.max_ms for each in samples),
        missing=sum(each.missing for each in samples),
    )


def steps(samples: Iterable[Sample]) -> list[Slowdown]:
    """Return the slowdown of each configuration relative to the one before it; rounds are compared one by one."""
    rounds_ms: dict[int, dict[Configuration, list[float]]] = {}
    for each in sorted(samples, key=lambda each: (each.consumers, each.configuration, each.run)):
        rounds_ms.setdefault(each.consumers, {}).setdefault(each.configuration, []).extend(each.rounds_ms)
    return [
        _step(consumers, (lower, own[lower]), (upper, own[upper]))
        for consumers, own in rounds_ms.items()
        for lower, upper in pairwise(own)
    ]


def _step(
    consumers: int, lower: tuple[Configuration, Sequence[float]], upper: tuple[Configuration, Sequence[float]]
) -> Slowdown:
    # A round without any arrival is left out; missing events have a goal of their own.
    differences = [more - less for less, more in zip(lower[1], upper[1], strict=False)]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return Slowdown(consumers, lower[0], upper[0], statistics.fmean(differences), error)


def ranking(summaries: Iterable[OverheadSummary]) -> dict[int, bool]:
    """Return, by number of consumers, if all configurations were run, whether each sum exceeds the one before it."""
    return {consumers: all(a < b for a, b in pairwise(sums)) for consumers, sums in _complete(summaries)}


def small_increase(summaries: Iterable[OverheadSummary]) -> dict[int, bool]:
    """Return, by number of consumers, whether mobility adds less to the sum than NAT and a remote relay add on top."""
    return {consumers: sums[1] - sums[0] < sums[3] - sums[1] for consumers, sums in _complete(summaries)}


def mobility_ms(summaries: Iterable[OverheadSummary]) -> dict[int, float]:
    """Return the slowdown of the median event with mobility over the original ECI, by number of consumers."""
    return {
        consumers: own[Configuration.MOBILE].p50_ms - own[Configuration.ECI].p50_ms
        for consumers, own in _by_consumers(summaries).items()
        if {Configuration.ECI, Configuration.MOBILE} <= own.keys()
    }


def _complete(summaries: Iterable[OverheadSummary]) -> Iterator[tuple[int, Sequence[float]]]:
    for consumers, own in _by_consumers(summaries).items():
        if len(own) == len(Configuration):
            yield consumers, [own[each].sum_s for each in Configuration]


def _by_consumers(summaries: Iterable[OverheadSummary]) -> Mapping[int, Mapping[Configuration, OverheadSummary]]:
    by_consumers: dict[int, dict[Configuration, OverheadSummary]] = {}
    for each in summaries:
        by_consumers.setdefault(each.consumers, {})[each.configuration] = each
    return by_consumers


def goals(summaries: Sequence[OverheadSummary], places: PlaceTimes) -> list[Goal]:
    """Return the goals of the runs; none for what was not run."""
    found = []
    if ranks := ranking(summaries):
        found.append(Goal.exactly("ranking_holds", float(all(ranks.values())), "", 1.0))
        small = small_increase(summaries)
        found.append(Goal.exactly("small_increase_holds", float(all(small.values())), "", 1.0))
    if added_ms := mobility_ms(summaries):
        bound_ms = places.sync_p50_ms + MOBILITY_MS_MAX
        found.append(Goal.at_most("mdeci_minus_eci_p50_ms", max(added_ms.values()), "ms", bound_ms))
    return [*found, Goal.exactly("missing_events", sum(each.missing for each in summaries), "events", 0)]
