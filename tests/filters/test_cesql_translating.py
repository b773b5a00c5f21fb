"""Translation of CESQL: what a condition knows about its node, and the work of translating nested expressions."""

from __future__ import annotations

from functools import partial
from random import Random

from harness.calls import calls_of
from tests.filters.cesql_trees import random_expression
from wanderbus.filters.ast import And, Exists, Node, Or, Quantified
from wanderbus.filters.cesql.reading import read
from wanderbus.filters.cesql.translating import TranslatedCondition, _meaning, translate

CALLS_OF_A_PART_MAX = 450
"""Function calls for each question of a nested expression: each operand is joined with up to 32 before it."""


def weight(node: Node) -> int:
    return sum(map(weight, node.operands)) if isinstance(node, And | Or) else 1


def depth(node: Node) -> int:
    return 1 + max(map(depth, node.operands), default=0) if isinstance(node, And | Or) else 1


def needs(node: Node) -> frozenset[str]:
    match node:
        case Exists(attribute=attribute) | Quantified(attribute=attribute):
            return frozenset({attribute})
        case And(operands=operands):
            return frozenset().union(*map(needs, operands))
        case Or(operands=(first, *others)):
            return needs(first).intersection(*map(needs, others))
        case _:
            return frozenset()


def is_consistent(condition: TranslatedCondition) -> bool:
    node = condition.node
    known = condition.weight, condition.depth, condition.needs
    operands = node.operands if isinstance(node, And | Or) else ()
    return known == (weight(node), depth(node), needs(node)) and operands == tuple(
        each.node for each in condition.operands
    )


def test_a_condition_knows_the_size_and_the_attributes_of_its_node() -> None:
    random = Random(1)
    for _ in range(3_000):
        for condition in _meaning(root := random_expression(random, 6)):
            assert is_consistent(condition), root


def test_a_nested_expression_is_translated_from_its_parts() -> None:
    text, levels, width = "z = 'p'", 28, 15
    for level in range(levels):
        questions = " AND ".join(f"a{level}x{each} = 'p'" for each in range(width))
        text = f"{questions} {('AND', 'OR')[level % 2]} ({text})"
    assert calls_of(partial(translate, read(text))) < CALLS_OF_A_PART_MAX * levels * width


def test_a_condition_that_stands_for_an_inexact_one_is_not_exact() -> None:
    """The question about ``a`` implies that ``a`` exists, all that is known of the other operand."""
    assert translate(read("a = 'x' AND EXISTS a")).exact
    assert not translate(read("a = 'x' AND LENGTH(a) = 3")).exact
