"""Predicates that decided an expression (SPEC U-01)."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from tests.filters import trees
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.ast import Exists, Or, Residual
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.explaining import VALUE_CHARACTERS_MAX, Deciding, deciding

EVENT = Event(
    "S", {"a": 1, "s": "x", "t": True, "l": [1, 5], "e": [], "m": [1, "x", 9], "d": datetime(2026, 11, 21, tzinfo=UTC)}
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [("everything", True, "it asks nothing of the event")]),
        ("nothing", [("nothing", False, "it asks nothing of the event")]),
        ("exists a", [("exists a", True, "a is 1")]),
        ("not exists b", [("exists b", False, "the event has no b")]),
        ("a == 1", [("a == 1", True, "a is 1")]),
        ("a > 1", [("a > 1", False, "a is 1")]),
        ("b > 1", [("b > 1", None, "the event has no b")]),
        ("s > 1", [("s > 1", None, 's is "x", which does not compare so with 1')]),
        ("t == 1", [("t == 1", None, "t is true, which does not compare so with 1")]),
        ("l > 5", [("l > 5", False, "l is [1, 5]")]),
        ("l > 4", [("l > 4", True, "item 2 of l is 5")]),
        ("all l > 0", [("all l > 0", True, "l is [1, 5]")]),
        ("all l > 1", [("all l > 1", False, "item 1 of l is 1")]),
        ("all l (> 0 and < 5)", [("all l < 5", False, "item 2 of l is 5")]),
        ("l > 0 and l < 9", [("l > 0", True, "item 1 of l is 1"), ("l < 9", True, "item 1 of l is 1")]),
        ("l > 1 and l < 5", [("l > 1 and l < 5", False, "l is [1, 5]")]),
        ("a > 0 and a < 1", [("a < 1", False, "a is 1")]),
        ("e > 5", [("e > 5", False, "e is []")]),
        ("all e > 5", [("all e > 5", True, "e is []")]),
        ("m == 5", [("m == 5", None, 'item 2 of m is "x", which does not compare so with 5')]),
        ("m == 9", [("m == 9", True, "item 3 of m is 9")]),
        ("s in (1, 2)", [("s in (1, 2)", None, 's is "x", which does not compare so with 1 or 2')]),
        (
            "d > 2026-11-22",
            [("d > 2026-11-22T00:00:00Z", False, "d is 2026-11-21T00:00:00Z")],
        ),
        ("not a == 1", [("a == 1", True, "a is 1")]),
        ("a > 1 and b > 1", [("a > 1", False, "a is 1")]),
        ("b > 1 and a > 1 and s == y", [("a > 1", False, "a is 1")]),
        ("b > 1 and a == 1", [("b > 1", None, "the event has no b")]),
        ("b > 1 or a > 1", [("b > 1", None, "the event has no b")]),
        ("a > 1 or s == y", [("a > 1", False, "a is 1"), ('s == "y"', False, 's is "x"')]),
        ("a > 1 or s == x or t == true", [('s == "x"', True, 's is "x"')]),
    ],
)
def test_the_questions_that_decided(text: str, found: list[tuple[str, bool | None, str]]) -> None:
    assert [(each.question, each.truth, each.why) for each in deciding(parse(text).root, EVENT)] == found


def test_a_long_value_is_cut() -> None:
    (found,) = deciding(parse("s == y").root, Event("S", {"s": "x" * 1_000}))
    assert len(found.why) < VALUE_CHARACTERS_MAX + 10


def test_values_and_items_are_explained_unchanged() -> None:
    assert deciding(parse("all l < 5").root, EVENT) == (
        Deciding("all l < 5", False, "item 2 of l is 5", attribute="l", value=5, item=1),
    )
    assert deciding(parse("l > 5").root, EVENT) == (
        Deciding("l > 5", False, "l is [1, 5]", attribute="l", value=[1, 5], item=None),
    )


def test_a_residual_is_explained_as_a_whole() -> None:
    """Its explanation names the attributes that it is known to need."""
    (found,) = deciding(Residual("test", trees.IsEven("a"), Or((Exists("a"), Exists("b")))), EVENT)
    why = "as test evaluates it: a is 1, the event has no b"
    assert (found.question, found.truth, found.why) == ('test "even(a)"', False, why)
    (found,) = deciding(Residual("test", trees.IsEven("a")), EVENT)
    assert found.why == "as test evaluates it"


def test_they_decide_whatever_the_others_are() -> None:
    """Other attributes and other items of a list make no difference if no deciding predicate tests them."""
    random, changed = Random(11), 0
    for _ in range(3_000):
        tree = trees.random_node(random)
        event = trees.random_event(random, tree)
        truth = evaluate(tree, event)
        found = deciding(tree, event)
        assert found
        if truth is None:
            assert {each.truth for each in found} == {None}
            continue
        others = with_other_values(event, found, trees.random_event(random), random)
        assert evaluate(tree, others) is truth, (tree, event, others)
        changed += others != event
    assert changed > 1_000


def with_other_values(event: Event, found: tuple[Deciding, ...], other: Event, random: Random) -> Event:
    """Return ``event`` with its deciding values, and all other values of ``other``."""
    attributes: dict[str, Any] = {**event.attributes, **other.attributes}
    for name in {each.attribute for each in found if each.attribute is not None}:
        attributes.pop(name, None)
        if name not in event.attributes:
            continue
        value = event.attributes[name]
        items = {each.item for each in found if each.attribute == name}
        if isinstance(value, list) and None not in items:
            value = [item if place in items else random.choice(trees.STRINGS) for place, item in enumerate(value)]
        attributes[name] = value
    return Event("S", attributes)
