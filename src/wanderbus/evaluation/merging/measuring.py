"""One replication: its subscriptions merged by every method, and the results (SPEC B-08, R-04, R-05, R-06)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, ParamSpec, TypeVar

import msgspec

from wanderbus.evaluation.merging.methods import Method, Propagated, merged, propagations
from wanderbus.evaluation.merging.mixes import Mix
from wanderbus.evaluation.merging.workload import SUBJECT, Trial, Workload, workload
from wanderbus.filters import Filter, parse
from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.xml import compress, compressed, write, write_stream
from wanderbus.matching import ScanIndex

EVENTS: Final = 1_000
"""Events for the precision of the largest set of subscriptions; smaller sets use a quarter of them, since the paper
publishes no precision of those.
"""

P = ParamSpec("P")
Returned = TypeVar("Returned")


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of events that a merged set let through, by kind (SPEC B-08)."""

    wanted: int = 0
    """Events that matched an original and the merged set."""
    unwanted: int = 0
    """Events that matched only the merged set: false positives."""
    missed: int = 0
    """Events that matched only an original: false negatives, which no merging may have."""

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.wanted + other.wanted, self.unwanted + other.unwanted, self.missed + other.missed)

    @property
    def precision_percent(self) -> float | None:
        """Return the share of the events let through that was wanted; None if none was let through."""
        return _percent(self.wanted, self.unwanted)

    @property
    def recall_percent(self) -> float | None:
        """Return the share of the wanted events that was let through; None if none was wanted."""
        return _percent(self.wanted, self.missed)


class Weight(msgspec.Struct, frozen=True):
    """Bytes of XML, before and after gzip (SPEC O-02)."""

    plain_bytes: float
    gzip_bytes: float

    @property
    def percent(self) -> float:
        """Return the size after gzip in percent."""
        return 100 * self.gzip_bytes / self.plain_bytes


class Job(msgspec.Struct, frozen=True):
    """A replication."""

    mix: Mix
    tuples: int
    seed: int
    subscriptions: tuple[int, ...]
    """Sizes of its sets of subscriptions: each set is a prefix of the largest."""
    precision_min: float
    events: int = EVENTS


class MergedOutcome(msgspec.Struct, frozen=True):
    """One set of subscriptions, merged by one method. Only times, which are processor times, differ between runs."""

    mix: str
    tuples: int
    subscriptions: int
    method: Method
    seed: int
    structures: int
    """Schemas that have subscriptions."""
    filters: int
    predicates: int
    """Comparisons in all filters: with ``filters`` the size of a routing table."""
    by_schema: tuple[Counted, ...]
    propagated: Propagated
    xml_each: Weight
    """Size with each filter as a document of its own, compressed alone."""
    xml_stream: Weight
    """Size with all filters in one document, compressed as a stream from which each filter can be read on arrival."""
    merge_ms: float
    match_us: float
    """Time to find all matches of an event, with the filters in :class:`wanderbus.matching.ScanIndex`."""

    @property
    def counted(self) -> Counted:
        """Return the counts of events of all schemas."""
        return sum(self.by_schema, Counted())


def run_one(job: Job) -> list[MergedOutcome]:
    """Return the results of one replication; the same every time, except times."""
    made = workload(job.mix, job.tuples, job.seed, max(job.subscriptions))
    filters = [parse(each.text) for each in made.subscriptions]
    history = {method: propagations(method, filters, job.precision_min) for method in Method}
    return [
        each
        for count in job.subscriptions
        for each in _of_set(
            job, made.first(count), filters[:count], {method: so_far[count - 1] for method, so_far in history.items()}
        )
    ]


def _of_set(
    job: Job, made: Workload, filters: Sequence[Filter], propagated_so_far: Mapping[Method, Propagated]
) -> Iterator[MergedOutcome]:
    """Yield the results of one set of subscriptions, merged by every method."""
    events = job.events if len(filters) == max(job.subscriptions) else job.events // 4
    trials = made.trials(events, Random(f"events/{job.seed}/{len(filters)}"))
    originals, match_s = match(filters, trials)
    for method in Method:
        kept, merge_s = timed(merged, method, filters, job.precision_min)
        matched = originals
        if method is not Method.UNMERGED:
            matched, match_s = match(kept, trials)
        yield MergedOutcome(
            job.mix.name,
            job.tuples,
            len(filters),
            method,
            job.seed,
            structures=len({each.schema for each in made.subscriptions}),
            filters=len(kept),
            predicates=sum(predicates(each.root) for each in kept),
            by_schema=count_matches(trials, originals, matched),
            propagated=propagated_so_far[method],
            xml_each=weigh_each(kept),
            xml_stream=weigh_stream(kept),
            merge_ms=1e3 * merge_s,
            match_us=1e6 * match_s / len(trials),
        )


def match(filters: Sequence[Filter], trials: Sequence[Trial]) -> tuple[list[bool], float]:
    """Return which of ``trials`` match some of ``filters``, and the seconds it took to find all matches."""
    index = ScanIndex()
    for number, each in enumerate(filters):
        index.add(str(number), SUBJECT, each)
    events = [trial.event for trial in trials]
    matched, seconds = timed(index.match, events)
    return [bool(ids) for ids in matched], seconds


def count_matches(trials: Sequence[Trial], originals: Sequence[bool], matched: Sequence[bool]) -> tuple[Counted, ...]:
    """Return the counts by schema: ``matched`` by a merged set, beside the matches of the ``originals``."""
    counts: dict[int, Counted] = {}
    for trial, is_wanted, is_matched in zip(trials, originals, matched, strict=True):
        one = Counted(is_wanted and is_matched, is_matched and not is_wanted, is_wanted and not is_matched)
        counts[trial.schema] = counts.get(trial.schema, Counted()) + one
    return tuple(counts[schema] for schema in sorted(counts))


def weigh_each(filters: Sequence[Filter]) -> Weight:
    """Return the size of ``filters``, each as its own document."""
    return Weight(
        sum(len(write(each.root).encode()) for each in filters), sum(len(compressed(each)) for each in filters)
    )


def weigh_stream(filters: Sequence[Filter]) -> Weight:
    """Return the size of ``filters`` in one stream."""
    pieces = list(write_stream(each.root for each in filters))
    return Weight(sum(map(len, pieces)), sum(map(len, compress(pieces))))


def predicates(node: Node | Clause) -> int:
    """Return the number of comparisons, and of questions of existence, in ``node``."""
    match node:
        case Predicate(operand=operand):
            return len(operand) if isinstance(operand, tuple) else 1
        case Quantified(clause=clause):
            return predicates(clause)
        case Exists() | Residual():
            return 1
        case Not(operand=operand):
            return predicates(operand)
        case And(operands=operands) | Or(operands=operands):
            return sum(map(predicates, operands))


def timed(work: Callable[P, Returned], *args: P.args, **kwargs: P.kwargs) -> tuple[Returned, float]:
    """Return the result of ``work``, and the processor seconds that it took."""
    began_s = time.process_time()
    done = work(*args, **kwargs)
    return done, time.process_time() - began_s


def _percent(part: int, rest: int) -> float | None:
    return 100 * part / (part + rest) if part + rest else None
