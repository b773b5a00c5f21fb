"""Which comparisons decided an expression (SPEC U-01)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.ast import And, Comparison, Node, Not, Or
from wanderbus.filters.evaluate import conjunction, disjunction, evaluate, negation
from wanderbus.filters.explaining import VALUE_CHARACTERS_MAX, deciding
from wanderbus.filters.language import write

EVENT = Event("S", {"a": 1, "s": "x", "t": True, "l": [1, 5]})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("a == 1", [("a == 1", True, "a is 1")]),
        ("a > 1", [("a > 1", False, "a is 1")]),
        ("b > 1", [("b > 1", None, "the event has no b")]),
        ("s > 1", [("s > 1", None, 's is "x", which does not compare so with 1')]),
        ("t == 1", [("t == 1", None, "t is true, which does not compare so with 1")]),
        ("l > 5", [("l > 5", False, "l is [1, 5]")]),
        ("not a == 1", [("a == 1", True, "a is 1")]),
        ("a > 1 and b > 1", [("a > 1", False, "a is 1")]),
        ("b > 1 and a > 1 and s == y", [("a > 1", False, "a is 1")]),
        ("b > 1 and a == 1", [("b > 1", None, "the event has no b")]),
        ("b > 1 or a > 1", [("b > 1", None, "the event has no b")]),
        ("a > 1 or s == y", [("a > 1", False, "a is 1"), ('s == "y"', False, 's is "x"')]),
        ("a > 1 or s == x or t == true", [('s == "x"', True, 's is "x"')]),
    ],
)
def test_the_comparisons_that_decided(text: str, found: list[tuple[str, bool | None, str]]) -> None:
    assert [(each.comparison, each.truth, each.why) for each in deciding(parse(text).root, EVENT)] == found


def test_a_long_value_is_cut() -> None:
    (found,) = deciding(parse("s == y").root, Event("S", {"s": "x" * 1_000}))
    assert len(found.why) < VALUE_CHARACTERS_MAX + 10


def evaluated(node: Node, truths: dict[str, bool | None]) -> bool | None:
    match node:
        case Comparison():
            return truths[write(node)]
        case Not(operand=operand):
            return negation(evaluated(operand, truths))
        case And(operands=operands):
            return conjunction([evaluated(each, truths) for each in operands])
        case Or(operands=operands):
            return disjunction([evaluated(each, truths) for each in operands])


def comparisons(node: Node) -> set[str]:
    match node:
        case Comparison():
            return {write(node)}
        case Not(operand=operand):
            return comparisons(operand)
        case And(operands=operands) | Or(operands=operands):
            return set().union(*map(comparisons, operands))


@given(data=st.data())
def test_they_decide_whatever_the_others_are(data: st.DataObject, any_tree: Any, any_event: Any) -> None:
    tree, event = data.draw(any_tree), data.draw(any_event)
    truth = evaluate(tree, event)
    found = {each.comparison: each.truth for each in deciding(tree, event)}
    assert found or not comparisons(tree)
    if truth is None:
        assert set(found.values()) == {None}
    else:
        others = {name: data.draw(st.sampled_from([True, False, None])) for name in comparisons(tree) - found.keys()}
        assert evaluated(tree, {**others, **found}) is truth
