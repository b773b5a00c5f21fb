"""Summary of the replications, beside the published values, and their goals."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.merging.growth import Growth
from wanderbus.evaluation.merging.measuring import Counted, MergedOutcome, Weight
from wanderbus.evaluation.merging.methods import Method
from wanderbus.evaluation.merging.mixes import REFERENCE, Mix, Structures
from wanderbus.evaluation.merging.workload import SUBSCRIPTIONS

SOURCE: Final = "Event Dissemination Service for Pervasive Computing, section 3"

PUBLISHED: Final[Mapping[int, tuple[float, float]]] = {2: (99.5, 100.0), 3: (92.0, 99.0), 4: (60.0, 82.0)}
"""Precision in percent by tuples, for 200 subscriptions; "100%" is what rounds to it."""

SHOWN: Final = {2: "100", 3: "92-99", 4: "60-82"}
"""The same as published."""

RANDOM_REDUCTION_PERCENT_MAX: Final = 5.0
"""Bound in percent that counts as next to nothing."""

SLOPE_MAX: Final = 2.0
"""Largest slope of the time of merging: a polynomial of low degree."""


class Spread(msgspec.Struct, frozen=True):
    """Distribution over the replications."""

    least: float
    mean: float
    most: float


class MergingCell(msgspec.Struct, frozen=True, order=True):
    """Parameters of the replications."""

    mix: str
    tuples: int
    subscriptions: int
    method: Method


class MergingSummary(msgspec.Struct, frozen=True):
    """The replications of one cell; values that are not a spread are means."""

    cell: MergingCell
    runs: int
    structures: float
    filters: float
    predicates: float
    reduction_percent: float
    """Reduction: how many filters fewer there are than subscriptions."""
    precision_percent: Spread | None
    """Precision; None if no event got through in any replication."""
    schema_quartiles_percent: tuple[float, float] | None
    """Quartiles of the precision of all schemas of all replications."""
    recall_percent: float | None
    """Recall of all replications together; None if no event was wanted."""
    events: int
    """Events let through in all replications together, on which the precision is based."""
    updates: float
    propagated: float
    """Subscriptions that required updates to neighbours, and filters in these updates."""
    xml_each: Weight
    xml_stream: Weight
    merge_ms: float
    match_us: float

    @property
    def published(self) -> tuple[float, float] | None:
        """Return the published precision, None if there is none."""
        cell = self.cell
        is_the_papers = Mix.named(cell.mix).structures is not Structures.OWN and cell.subscriptions == SUBSCRIPTIONS
        return PUBLISHED.get(cell.tuples) if cell.method is Method.IMPERFECT and is_the_papers else None


def summarize(outcomes: Iterable[MergedOutcome]) -> list[MergingSummary]:
    """Return the cells that were run, in order of arrival."""
    by_cell: dict[MergingCell, list[MergedOutcome]] = {}
    for each in outcomes:
        by_cell.setdefault(MergingCell(each.mix, each.tuples, each.subscriptions, each.method), []).append(each)
    return [_summary(cell, own) for cell, own in by_cell.items()]


def _summary(cell: MergingCell, outcomes: Sequence[MergedOutcome]) -> MergingSummary:
    def mean(value: Callable[[MergedOutcome], float]) -> float:
        return statistics.fmean(map(value, outcomes))

    whole = sum((each.counted for each in outcomes), Counted())
    of_runs = _present(each.counted.precision_percent for each in outcomes)
    of_schemas = _present(schema.precision_percent for each in outcomes for schema in each.by_schema)
    quartiles = statistics.quantiles(of_schemas, method="inclusive") if len(of_schemas) > 1 else None
    filters = mean(lambda each: each.filters)
    return MergingSummary(
        cell,
        runs=len(outcomes),
        structures=mean(lambda each: each.structures),
        filters=filters,
        predicates=mean(lambda each: each.predicates),
        reduction_percent=100 * (1 - filters / cell.subscriptions),
        precision_percent=Spread(min(of_runs), statistics.fmean(of_runs), max(of_runs)) if of_runs else None,
        schema_quartiles_percent=(quartiles[0], quartiles[2]) if quartiles else None,
        recall_percent=whole.recall_percent,
        events=whole.wanted + whole.unwanted,
        updates=mean(lambda each: each.propagated.updates),
        propagated=mean(lambda each: each.propagated.filters),
        xml_each=_mean_weight([each.xml_each for each in outcomes]),
        xml_stream=_mean_weight([each.xml_stream for each in outcomes]),
        merge_ms=mean(lambda each: each.merge_ms),
        match_us=mean(lambda each: each.match_us),
    )


def _mean_weight(weights: Sequence[Weight]) -> Weight:
    plain_bytes, gzip_bytes = (map(operator.attrgetter(name), weights) for name in ("plain_bytes", "gzip_bytes"))
    return Weight(statistics.fmean(plain_bytes), statistics.fmean(gzip_bytes))


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def goals(summaries: Sequence[MergingSummary], growths: Iterable[Growth], precision_min: float) -> list[Goal]:
    """Return the goals of the cells that were run."""
    found = [
        Goal.within(f"precision_{each.cell.tuples}", each.precision_percent.mean, "%", each.published)
        for each in summaries
        if each.cell.mix == REFERENCE.name and each.published and each.precision_percent
    ]
    recalls = _present(each.recall_percent for each in summaries)
    found += [Goal.exactly("recall", min(recalls), "%", 100)] if recalls else []
    perfect = [each.precision_percent.least for each in _of_method(summaries, Method.PERFECT) if each.precision_percent]
    found += [Goal.exactly("perfect_precision", min(perfect), "%", 100)] if perfect else []
    adaptive = [
        each.precision_percent.mean for each in _of_method(summaries, Method.ADAPTIVE) if each.precision_percent
    ]
    if adaptive:
        found.append(Goal.within("adaptive_precision", min(adaptive), "%", (100 * precision_min, 100.0)))
    fused = sum(each.filters > each.structures for each in _of_method(summaries, Method.IMPERFECT))
    found.append(Goal.exactly("structures_not_fused", fused, "cells", 0))
    larger = sum(each.xml_stream.percent >= each.xml_each.percent for each in summaries)
    found.append(Goal.exactly("gzip_streams_no_better", larger, "cells", 0))
    random = [each.reduction_percent for each in summaries if Mix.named(each.cell.mix).structures is Structures.OWN]
    if random:
        nearly_none = (0.0, RANDOM_REDUCTION_PERCENT_MAX)
        found.append(Goal.within("random_structure_reduction", max(random), "%", nearly_none))
    found += [Goal.within(f"slope_{each.method}", each.slope, "", (0.0, SLOPE_MAX)) for each in growths]
    return found


def _of_method(summaries: Iterable[MergingSummary], method: Method) -> list[MergingSummary]:
    return [each for each in summaries if each.cell.method is method]
