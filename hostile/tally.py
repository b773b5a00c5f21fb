"""Counts of what good agents published and received, and the figures for the goals."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from harness.reporting import percentile

BASELINE = "baseline"
ATTACK = "attack"


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """One delivery to a good agent; times are of the monotonic clock, seconds."""

    publisher: str
    consumer: str
    number: int
    published_s: float
    arrived_s: float


class Phase(msgspec.Struct, frozen=True):
    """A stretch of the run."""

    name: str
    began_s: float
    ended_s: float

    def holds(self, at_s: float) -> bool:
        """Return whether an instant is within."""
        return self.began_s <= at_s < self.ended_s


class Newcomer(msgspec.Struct, frozen=True):
    """A user who came for the first time: when, and how long it took until the first event."""

    came_s: float
    took_s: float


class Observed(msgspec.Struct):
    """Everything that the good agents saw in a run."""

    phases: list[Phase] = []
    called: dict[str, int] = {}
    """Numbers of events that each publisher published, from 1; every other good agent must receive each of them."""

    arrivals: list[Arrival] = []
    newcomers: list[Newcomer] = []
    refused: list[str] = []
    """Errors that publishing raised, in words."""


@dataclass(slots=True)
class Delivery:
    """Broken promises to the good agents, counted in notifications."""

    lost: int = 0
    repeated: int = 0
    out_of_order: int = 0


def delivery(observed: Observed) -> Delivery:
    """Compare deliveries with publishes: each consumer must receive each number of each other, once, in order."""
    found = Delivery()
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in observed.arrivals:
        numbers[each.publisher, each.consumer].append(each.number)
    for publisher, consumer in itertools.permutations(observed.called, 2):
        came = numbers[publisher, consumer]
        once = list(dict.fromkeys(came))
        found.lost += observed.called[publisher] - len(once)
        found.repeated += len(came) - len(once)
        found.out_of_order += sum(late < early for early, late in itertools.pairwise(once))
    return found


def latencies_s(observed: Observed, phase: str, *, without: str = "") -> list[float]:
    """Return the latencies of all events published in a phase, except those from and to ``without``."""
    times = [each for each in observed.phases if each.name == phase]
    return [
        each.arrived_s - each.published_s
        for each in observed.arrivals
        if without not in (each.publisher, each.consumer) and any(time.holds(each.published_s) for time in times)
    ]


def longest_stall_s(observed: Observed, phase: str, interval_s: float, *, without: str = "") -> float:
    """Return the longest time that a good agent but ``without`` received nothing in a phase, less ``interval_s``.

    The time from the last delivery to the end of the phase counts too, and all of the phase for one who received
    nothing at all.
    """
    longest = 0.0
    for time in (each for each in observed.phases if each.name == phase):
        for consumer in observed.called.keys() - {without}:
            inside = sorted(
                each.arrived_s for each in observed.arrivals if each.consumer == consumer and time.holds(each.arrived_s)
            )
            moments = [time.began_s, *inside, time.ended_s]
            longest = max(longest, *(late - early for early, late in itertools.pairwise(moments)))
    return max(0.0, longest - interval_s)


def slowest_newcomer_s(observed: Observed, phase: str) -> float:
    """Return the longest time of a newcomer of the phase; not a number if there was none."""
    times = [each for each in observed.phases if each.name == phase]
    took = [each.took_s for each in observed.newcomers if any(time.holds(each.came_s) for time in times)]
    return max(took, default=math.nan)


def p99_ratio(observed: Observed, *, without: str) -> tuple[float, float, float]:
    """Return the 99th percentile of latency before and under attack, milliseconds, and the second over the first."""
    before, under = (
        percentile(latencies_s(observed, phase, without=without), 0.99) * 1000 for phase in (BASELINE, ATTACK)
    )
    return before, under, ratio(under, before)


def ratio(above: float, below: float) -> float:
    """Return the ratio; infinite if the denominator is zero, and not a number if neither was measured."""
    if math.isnan(above) and not math.isnan(below):
        return math.inf  # nothing that was published under attack arrived
    return above / below if below else math.inf if above else 0.0


@dataclass(slots=True)
class Figures:
    """Figures of one attack, as the goals need them; not a number means not measured."""

    good_lost: float = math.nan
    good_repeated: float = math.nan
    good_out_of_order: float = math.nan
    good_p99_ratio: float = math.nan
    newcomer_s: float = math.nan
    longest_stall_s: float = math.nan
    server_ended: float = math.nan
    rss_growth_mib: float = math.nan
    amplification: float = math.nan
    ready_after_costly_user_s: float = math.nan
    guesses_admitted: float = math.nan
    sessions_moved: float = math.nan
    pulls_admitted: float = math.nan
    forged_admitted: float = math.nan
    secrets_sent: float = math.nan
    beside: dict[str, float] = field(default_factory=dict)
    """Figures that no goal is held to."""


def merged(runs: Sequence[Figures]) -> Figures:
    """Return the figures of one attack from its repetitions: the median ratio, and the worst of all others."""
    names = [name for name in Figures.__slots__ if name != "beside"]
    worst = {name: max_known(getattr(run, name) for run in runs) for name in names}
    ratios = sorted(run.good_p99_ratio for run in runs)
    return Figures(**worst | {"good_p99_ratio": ratios[len(ratios) // 2]}, beside=runs[-1].beside)


def max_known(values: Iterable[float]) -> float:
    """Return the greatest of the measured values."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)
