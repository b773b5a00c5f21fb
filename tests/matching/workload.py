"""Random adds, removals, replacements and matches from a seed; an index is compared with ``evaluate``."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.filters import trees
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.ast import And, Node, Or, Predicate, Quantified
from wanderbus.matching import Index

SUBJECTS = "STU"
_START = datetime(2026, 11, 21, tzinfo=UTC)


def nested(rng: random.Random) -> Node:
    """Return a filter of any shape."""
    return trees.random_node(rng, residuals=True)


def plain(rng: random.Random) -> Node:
    """Return a conjunction of comparisons: equalities, prefixes, ranges of numbers, of dates and of strings."""
    parts: list[Node] = []
    for name in rng.sample("abcdefg", rng.randint(1, 4)):
        value = _value(rng, name)
        if isinstance(value, str):
            clause = Predicate(rng.choice(["==", "==", "!=", "prefix", "<", ">="]), value)
        else:
            clause = Predicate(rng.choice(["==", "!=", "<", "<=", ">", ">="]), value)
        parts.append(Quantified("any", name, clause))
        if rng.random() < 0.1:
            parts.append(Quantified("any", name, Predicate("!=", _value(rng, name))))
    both = And(tuple(parts))
    return both if rng.random() < 0.8 else Or((both, plain(rng)))


def plain_event(rng: random.Random) -> Event:
    """Return an event that such filters are about, now and then with lists."""
    attributes = {name: _value(rng, name) for name in "abcdefg" if rng.random() < 0.8}
    for name in list(attributes):
        if rng.random() < 0.1:
            attributes[name] = [_value(rng, name) for _ in range(rng.randint(0, 3))]
    return Event("", attributes)


def _value(rng: random.Random, name: str) -> Any:
    if name in "ab":
        return rng.choice("abcde") + rng.choice(["", "x", "xy", "y"])
    if name == "c":
        return rng.randint(0, 30)
    if name == "d":
        return rng.randint(0, 100) / 4
    if name == "e":
        return _START + timedelta(microseconds=rng.randint(0, 20))
    return 2**53 + rng.randint(-3, 3) if name == "f" else float(2**53 + rng.randint(-3, 3))


def differences(
    index: Index,
    rng: random.Random,
    *,
    operations: int,
    node: Callable[[random.Random], Node] = nested,
    event: Callable[[random.Random], Event] = trees.random_event,
    ids: int = 200,
) -> int:
    """Do ``operations`` on the empty ``index``; return the pairs tried. Fails at the first difference."""
    live: dict[str, tuple[str, Filter]] = {}
    pairs = 0
    for _ in range(operations):
        chance = rng.random()
        id = f"id {rng.randrange(ids)}"
        if chance < 0.7:
            live[id] = (rng.choice(SUBJECTS), Filter("", "eci", node(rng)))
            index.add(id, *live[id])
        elif chance < 0.8:
            live.pop(id, None)
            index.remove(id)
        else:
            events = [Event(rng.choice(SUBJECTS), event(rng).attributes) for _ in range(rng.choice((1, 3, 20)))]
            for one, found in zip(events, index.match(events), strict=True):
                wanted = [id for id, (subject, its) in live.items() if subject == one.subject and its.matches(one)]
                assert sorted(found) == sorted(wanted), (one, {i: live[i] for i in set(found) ^ set(wanted)})
                pairs += len(live)
        assert len(index) == len(live)
    return pairs
