"""What an expression of interest means: the reference that everything faster is tested against (DESIGN 2.4, 7.1).

Logic is three-valued (Kleene). A missing attribute, or one of another type than the value it is compared with,
makes a comparison *unknown* (None): ``not`` of it is unknown too, and an event matches only where the whole is True.
So neither ``Price < 25`` nor ``not (Price < 25)`` matches an event without a price.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from wanderbus.event import Event
from wanderbus.filters.ast import And, Comparison, Node, Not, Operand, Operator, Or

COMPARE: Final[Mapping[Operator, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Comparison of two values of one kind: numbers by value, strings by code point."""

_ABSENT: Final = object()


def evaluate(node: Node, event: Event) -> bool | None:
    """Return whether ``event`` satisfies ``node``: True, False, or None for unknown."""
    match node:
        case Comparison():
            return _evaluate_comparison(node, event)
        case Not(operand=operand):
            return negation(evaluate(operand, event))
        case And(operands=operands):
            return conjunction(evaluate(operand, event) for operand in operands)
        case Or(operands=operands):
            return disjunction(evaluate(operand, event) for operand in operands)


def negation(truth: bool | None) -> bool | None:
    """Return Kleene's `not`."""
    return None if truth is None else not truth


def conjunction(truths: Iterable[bool | None]) -> bool | None:
    """Return Kleene's `and`: False if any is False, else None if any is None, else True (also of none at all)."""
    result: bool | None = True
    for truth in truths:
        if truth is False:
            return False
        if truth is None:
            result = None
    return result


def disjunction(truths: Iterable[bool | None]) -> bool | None:
    """Return Kleene's `or`: True if any is True, else None if any is None, else False (also of none at all)."""
    result: bool | None = False
    for truth in truths:
        if truth is True:
            return True
        if truth is None:
            result = None
    return result


def _evaluate_comparison(node: Comparison, event: Event) -> bool | None:
    value = event.attributes.get(node.attribute, _ABSENT)
    if isinstance(value, list):
        return disjunction(_compare(item, node.operator, node.value) for item in value)
    return _compare(value, node.operator, node.value)


def _compare(value: object, sign: Operator, operand: Operand) -> bool | None:
    kind = _kind(value)
    if kind is None or kind != _kind(operand):
        return None
    if kind == "boolean" and sign not in ("==", "!="):
        return None
    return COMPARE[sign](value, operand)


def _kind(value: object) -> str | None:
    """Return the kind within which values compare, or None if ``value`` compares with nothing."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "number"
        case float():
            return "number" if value == value else None
        case str():
            return "string"
        case _:
            return None
