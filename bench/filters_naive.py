"""Naive merging: every pair compared, again after every change, with the same meaning and rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wanderbus.filters import clauses
from wanderbus.filters.conjunctions import covers
from wanderbus.filters.merging_perfect import structure_of
from wanderbus.filters.normal import AttributeFilter, Conjunction


def uncovered(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Return those of ``conjunctions`` that no other of their structure covers."""
    kept: list[Conjunction] = []
    for each in dict.fromkeys(conjunctions):
        if not any(structure_of(other) == structure_of(each) and covers(other, each) for other in kept):
            kept = [other for other in kept if structure_of(other) != structure_of(each) or not covers(each, other)]
            kept.append(each)
    return kept


def perfect(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Return ``conjunctions`` merged perfectly."""
    kept = uncovered(conjunctions)
    while pair := _mergeable(kept):
        one, other, merged = pair
        kept = [each for each in kept if each not in (one, other)]
        kept.append(merged)
    return uncovered(kept)


def _mergeable(kept: Sequence[Conjunction]) -> tuple[Conjunction, Conjunction, Conjunction] | None:
    for number, one in enumerate(kept):
        for other in kept[:number]:
            if structure_of(one) == structure_of(other) and (merged := _merged(one, other)):
                return one, other, merged
    return None


def _merged(one: Conjunction, other: Conjunction) -> Conjunction | None:
    different = [place for place, mine in enumerate(one.filters) if mine != other.filters[place]]
    if len(different) != 1 or one.filters[different[0]].quantifier != "any":
        return None
    filters = list(one.filters)
    mine, its = filters[different[0]], other.filters[different[0]]
    filters[different[0]] = AttributeFilter(mine.attribute, "any", clauses.union((mine.terms, its.terms)))
    return Conjunction(tuple(filters), one.residuals)
