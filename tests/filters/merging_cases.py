"""Filters of one structure and of several, with events that meet them, for the tests of merging."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.filters.trees import NAMES, OPERANDS, random_event, random_node
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.filters.ast import And, Node, Predicate, Quantified
from wanderbus.filters.evaluate import OF_KIND
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.normalising import normal_form


def filters(*texts: str) -> list[Filter]:
    """Return the filters of these texts."""
    return [parse(text) for text in texts]


def conjunctions(*texts: str) -> list[Conjunction]:
    """Return the conjunctions of the normal forms of these texts."""
    return [each for filter in filters(*texts) for each in normal_form(filter)]


def of_node(node: Node) -> Filter:
    """Return the filter of ``node``, without a text."""
    return Filter("", "eci", node)


def random_nodes(rng: random.Random) -> list[Node]:
    """Return some filters: half of the time of one structure, else of any."""
    if rng.random() < 0.5:
        names = NAMES[: rng.choice((1, 2, 3))]
        return [random_node(rng, rng.choice((0, 1, 2)), names, residuals=True) for _ in range(rng.choice((2, 5, 12)))]
    return random_alike(rng, rng.choice((3, 8, 20)))


def random_alike(rng: random.Random, count: int) -> list[Node]:
    """Return ``count`` filters of one structure, as far as their operators leave it so."""
    shape: list[tuple[Any, str, str]] = [
        (rng.choice(("any", "any", "any", "all")), name, rng.choice(("number", "number", "string", "boolean", "date")))
        for name in NAMES[: rng.choice((1, 2, 3))]
    ]

    def predicate(kind: str) -> Predicate:
        sign: Any = rng.choice(sorted(OF_KIND[kind] - {"in"}))
        return Predicate(sign, rng.choice(OPERANDS[kind][:5]))

    return [
        And(tuple(Quantified(quantifier, name, predicate(kind)) for quantifier, name, kind in shape))
        for _ in range(count)
    ]


def random_events(rng: random.Random, nodes: Sequence[Node], count: int = 20) -> list[Event]:
    """Return random events with the attributes that ``nodes`` test."""
    return [random_event(rng, rng.choice(nodes)) for _ in range(count)]
