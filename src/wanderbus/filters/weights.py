"""Weights of normal forms: how many parts have to be compared (SPEC U-02)."""

from __future__ import annotations

from typing import Any

from wanderbus.filters.ast import And, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.normal import AttributeFilter, Conjunction


def weight_of_filter(each: AttributeFilter) -> int:
    """Return the number of intervals and patterns of an attribute filter; patterns are compared in pairs."""
    weight = 1
    for term in each.terms:
        patterns = len(term.patterns)
        weight += 1 + len(term.region) + patterns * patterns
    return weight


def weight_of(conjunction: Conjunction) -> int:
    """Return the weight of the attribute filters of a conjunction."""
    return 1 + sum(map(weight_of_filter, conjunction.filters))


def weight_of_node(node: Node) -> int:
    """Return the number of questions and combinations of a residual, and of the values that it names."""
    weight = 0
    waiting: list[Any] = [node]
    while waiting:
        weight += 1
        match waiting.pop():
            case And(operands=operands) | Or(operands=operands):
                waiting += operands
            case Not(operand=operand):
                waiting.append(operand)
            case Quantified(clause=clause):
                waiting.append(clause)
            case Predicate(operand=tuple() as values):
                weight += len(values)
            case Residual(expression=expression, needed=needed):
                weight += len(str(expression)) // CHARACTERS_A_PART
                waiting.append(needed)
            case _:
                pass
    return weight


CHARACTERS_A_PART = 16
"""Characters of an expression of another language that weigh as much as one question."""
