"""Simple reference merging on subscriptions of the workload: its meaning is known without evaluation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from wanderbus.evaluation.merging.workload import Constraint, Workload, WorkloadSubscription
from wanderbus.event import Event
from wanderbus.filters import Filter, parse

Merged = tuple[int, tuple[frozenset[Constraint], ...]]
"""A schema, and of each of its attributes the constraints of which some has to hold."""


def plain(subscriptions: Iterable[WorkloadSubscription]) -> list[Merged]:
    return [(each.schema, tuple(frozenset({one}) for one in each.constraints)) for each in subscriptions]


def imperfectly(subscriptions: Iterable[WorkloadSubscription]) -> list[Merged]:
    """All of a schema fused."""
    fused: dict[int, Merged] = {}
    for schema, asked in plain(subscriptions):
        _, before = fused.get(schema, (schema, asked))
        fused[schema] = schema, tuple(one | other for one, other in zip(before, asked, strict=True))
    return list(fused.values())


def perfectly(subscriptions: Iterable[WorkloadSubscription]) -> list[Merged]:
    """Two that differ in one attribute at most become one, as long as there are such two."""
    left = plain(subscriptions)
    while pair := _mergeable(left):
        (schema, one), (_, other) = pair
        left = [each for each in left if each not in pair]
        left.append((schema, tuple(a | b for a, b in zip(one, other, strict=True))))
    return left


def matches(merged: Merged, made: Workload, event: Event) -> bool:
    """Return whether ``event`` of one of the schemas matches, by the positions of its values; schemas share no
    names.
    """
    schema, asked = merged
    attributes = made.schemas[schema]
    if {each.name for each in attributes} != set(event.attributes):
        return False
    at = [bisect_left(each.values, event[each.name]) for each in attributes]
    return all(
        any(place in places for each in some for places in each.places) for place, some in zip(at, asked, strict=True)
    )


def as_filter(merged: Merged) -> Filter:
    _, asked = merged
    return parse(" and ".join(f"({' or '.join(sorted(each.text for each in some))})" for some in asked))


def _mergeable(merged: Sequence[Merged]) -> tuple[Merged, Merged] | None:
    for number, one in enumerate(merged):
        for other in merged[:number]:
            if one[0] == other[0] and sum(a != b for a, b in zip(one[1], other[1], strict=True)) <= 1:
                return one, other
    return None
