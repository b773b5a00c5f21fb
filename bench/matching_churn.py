"""An index whose subscriptions are replaced while it matches, measured in processor time.

Only the index is timed: events and filters are made before. New subscriptions are the spare ones of the workload,
numbered from ``count`` on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count as numbers
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple, Protocol, TypeVar

from bench.matching_workload import Workload
from harness.reporting import percentile
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.compiled import compile_node

REPLACED_PER_S: Final = 0.01
CALL_S_MAX: Final = 10.0
"""Longest expected duration of one call; a longer one is not measured."""
SEEN_EACH: Final = 1_000
"""Updates for each event, when updates are measured: none may be deferred for ever."""
SAMPLED: Final = 300

Subscription = tuple[str, str, Filter]
T = TypeVar("T")


class Matches(Protocol):
    """Measured index: :class:`wanderbus.matching.Index`, or another with its interface."""

    def add(self, id: str, subject: str, filter: Filter) -> None:
        """Add a filter."""

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        """Return the ids that each event matches."""


class Rate(NamedTuple):
    """One measurement under replacement: the batch size, and the figures."""

    batch: int
    events: int
    matches: int
    updates: int
    match_s: float
    update_s: float
    calls_s: list[float]
    update_longest_s: float

    @property
    def events_per_s(self) -> float:
        """Events per second of processor time, that of the updates included."""
        return self.events / (self.match_s + self.update_s)

    def row(self, workload: str, subscriptions: int) -> dict[str, object]:
        """Return it as the report has it."""
        return {
            "workload": workload,
            "subscriptions": subscriptions,
            "batch": self.batch,
            "events_per_s": round(self.events_per_s, 1),
            "matches_per_event": round(self.matches / self.events, 2),
            "call_p50_us": round(percentile(self.calls_s, 0.5) * 1e6, 1),
            "call_p99_us": round(percentile(self.calls_s, 0.99) * 1e6, 1),
            "call_longest_ms": round(max(self.calls_s) * 1e3, 3),
            "update_longest_ms": round(self.update_longest_s * 1e3, 3),
            "updates": self.updates,
            "of_it_updating": round(self.update_s / (self.match_s + self.update_s), 4),
        }


class Churned:
    """An index of the first ``count`` subscriptions of a workload, some of which are replaced by the spare ones."""

    def __init__(self, workload: Workload, count: int, make: Callable[[], Matches]) -> None:
        self._workload, self._count, self._make = workload, count, make
        self._random = Random(count)
        self._spare: Iterator[int] = (count + each % (len(workload) - count) for each in numbers())
        self._replaced: dict[int, int] = {}
        self._events = workload.events()
        self._at = 0

    def build(self) -> float:
        """Add the subscriptions; return the seconds until the first batch is matched."""
        self._index = self._make()
        passed_s = 0.0
        for begin in range(0, self._count, 1_000):
            some = [self._of(number, number) for number in range(begin, min(begin + 1_000, self._count))]
            seen = self._events[:1] if begin + 1_000 >= self._count else []
            passed_s += timed(lambda some=some, seen=seen: self._put_all(some, seen))[0]  # type: ignore[misc]
        return passed_s

    def run(self, batch: int, least_s: float, expected_s: float = 0.0) -> Rate | None:
        """Match batches while :data:`REPLACED_PER_S` of all are replaced; None if one call would last too long."""
        if expected_s > CALL_S_MAX:
            return None
        calls_s: list[float] = []
        matches = updates = 0
        match_s = update_s = longest_s = 0.0
        while match_s + update_s < least_s or not calls_s:
            events = self._next(batch)
            passed_s, found = timed(lambda events=events: self._index.match(events))  # type: ignore[misc]
            calls_s.append(passed_s)
            match_s += passed_s
            matches += sum(map(len, found))
            due = int((match_s + update_s) * REPLACED_PER_S * self._count) - updates
            passed_s, slowest_s = self._put(self._replacements(due))
            updates += due
            update_s += passed_s
            longest_s = max(longest_s, slowest_s)
        return Rate(batch, batch * len(calls_s), matches, updates, match_s, update_s, calls_s, longest_s)

    def updates_per_s(self, least_s: float) -> float:
        """Replace subscriptions as fast as possible, with an event for every thousand; return how many a second."""
        passed_s, done = 0.0, 0
        while passed_s < least_s:
            some, event = self._replacements(SEEN_EACH), self._next(1)
            passed_s += timed(lambda some=some, event=event: self._put_all(some, event))[0]  # type: ignore[misc]
            done += SEEN_EACH
        return done / passed_s

    def differences(self, events: int) -> int:
        """Return the number of pairs of an event and a subscription on which the index and the filter disagree.

        It checks a random sample, and some of the ids that were found.
        """
        different = 0
        for event in self._next(events):
            found = self._index.match([event])[0]
            different += len(found) - len(set(found))
            sample = set(self._random.sample(range(self._count), min(SAMPLED, self._count)))
            sample |= {int(id) for id in found[:: len(found) // SAMPLED + 1]}
            for number in sample:
                _, subject, filter = self._of(number, self._replaced.get(number, number))
                holds = subject == event.subject and compile_node(filter.root)(event.attributes) is True
                different += holds != (str(number) in set(found))
        return different

    def _of(self, slot: int, number: int) -> Subscription:
        return str(slot), self._workload.subject_of(number), self._workload.filter(number)

    def _replacements(self, count: int) -> list[Subscription]:
        some = []
        for number, _ in zip(self._spare, range(count), strict=False):
            slot = self._random.randrange(self._count)
            self._replaced[slot] = number
            some.append(self._of(slot, number))
        return some

    def _put_all(self, some: Sequence[Subscription], events: Sequence[Event]) -> None:
        for each in some:
            self._index.add(*each)
        if events:
            self._index.match(events)

    def _put(self, some: Sequence[Subscription]) -> tuple[float, float]:
        """Add subscriptions; return how long that took, and the longest single one."""
        times = [time.process_time()]
        for each in some:
            self._index.add(*each)
            times.append(time.process_time())
        longest_s = max((after - before for before, after in pairwise(times)), default=0.0)
        return times[-1] - times[0], longest_s

    def _next(self, count: int) -> list[Event]:
        places = [(self._at + each) % len(self._events) for each in range(count)]
        self._at += count
        return [self._events[place] for place in places]


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds of processor time that ``function`` took, and what it returned."""
    started = time.process_time()
    result = function()
    return time.process_time() - started, result
