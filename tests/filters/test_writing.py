"""Writing the subscription language: every tree has a text of its own (SPEC A-06, DESIGN 2.5)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from tests.filters import trees
from tests.filters.trees import question
from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters import parse
from wanderbus.filters.ast import EVERYTHING, NOTHING, And, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.eci import read, write

A, B, C = (question(name, "==", 1) for name in "abc")
ABOVE, BELOW = Predicate(">", 5), Predicate("<", 10)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (And((A,)), "and(a == 1)"),
        (Or((NOTHING,)), "or(nothing)"),
        (And((A, And((B, C)))), "a == 1 and and(b == 1, c == 1)"),
        (Or((Or((A, B)), C)), "or(a == 1, b == 1) or c == 1"),
        (Not(And((A, B))), "not (a == 1 and b == 1)"),
        (And((A, A)), "any a == 1 and any a == 1"),
        (And((Quantified("any", "a", And((ABOVE, BELOW))), A)), "a > 5 and a < 10 and any a == 1"),
        (
            And((A, *[Quantified("any", "a", And((ABOVE, BELOW)))] * 2)),
            "any a == 1 and a > 5 and a < 10 and any a (> 5 and < 10)",
        ),
        (And((Quantified("any", "a", And((ABOVE, BELOW))), B)), "a > 5 and a < 10 and b == 1"),
        (Not(Quantified("any", "a", And((ABOVE, BELOW)))), "not (a > 5 and a < 10)"),
        (Quantified("all", "a", And((ABOVE,))), "all a (and(> 5))"),
        (Exists("Any"), "exists `Any`"),
        (EVERYTHING, "everything"),
    ],
)
def test_trees_that_no_plain_text_gives(node: Node, text: str) -> None:
    assert write(node) == text
    assert read(text) == node


def test_length_is_bounded_as_written_in_full() -> None:
    text = " or ".join(["a<9e15"] * 1500)
    assert len(text) < limits.EXPRESSION_CHARACTERS_MAX
    with pytest.raises(FilterError, match="in full"):
        parse(text)


def test_canonical_text() -> None:
    text = "((Stock == PETR4)) AND ( Price<25 or not(Price >= 1e3) )"
    assert str(parse(text)) == 'Stock == "PETR4" and (Price < 25 or not Price >= 1000.0)'
    assert parse(text).text == text


@pytest.mark.parametrize("deepest", ["a not in (1) and a > 5 and any a == 1", "a > 5 and any a < 10 and a != 7"])
def test_no_text_is_deeper_once_written(deepest: str) -> None:
    levels = limits.EXPRESSION_DEPTH_MAX // 2
    node = parse("not (" * levels + deepest + ")" * levels).root
    assert read(write(node)) == node


@settings(max_examples=500)
@given(trees.nodes())
def test_every_tree_has_a_text_of_its_own(node: Node) -> None:
    """parse(str(f)) is the tree of f, for any tree, and equal trees have equal texts."""
    text = write(node)
    assert read(text) == node
    assert write(read(text)) == text
    assert "\n" not in text


@pytest.mark.parametrize("text", ["a = 1 + 2", "LENGTH('\"`\\n') > a", "NOT (b % 2 = 1) OR c XOR d"])
def test_cesql_is_quoted(text: str) -> None:
    """An expression that the tree cannot represent stays in its language, and is parsed as the same again
    (DESIGN 7.2).
    """
    residual = parse(text, language="cesql")
    assert isinstance(residual.root, Residual)
    both: Node = And((A, Not(residual.root)))
    assert write(both).startswith('a == 1 and not cesql "')
    assert read(write(both)) == both
    assert parse(str(residual)).root == residual.root


def test_every_tree_has_a_text_of_its_own_by_seed() -> None:
    random = Random(7)
    for _ in range(3_000):
        node = trees.random_node(random, 4, trees.NAMES)
        assert read(write(node)) == node, write(node)
