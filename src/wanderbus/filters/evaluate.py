"""Evaluation of an expression of interest: the reference against which everything faster is tested (DESIGN 2.4, 7.1).

Logic is three-valued (Kleene). A missing attribute makes a clause on it *unknown* (None), and a value of another kind
than the operand makes a predicate unknown: ``not`` of it is unknown too, and an event matches only where the whole is
True. So neither ``Price < 25`` nor ``not (Price < 25)`` matches an event without a price.

=========== ======================================================================================================
kind        compares
=========== ======================================================================================================
number      Integer and Double together, exactly by value: 1 equals 1.0, and 2**53 + 1 is above 2.0**53. NaN is of
            no kind.
string      by code point, and by prefix, suffix and contained text; case counts
boolean     for equality alone
date        by instant, whatever the time zone it is written in; one without a time zone is of no kind
=========== ======================================================================================================

A clause of ``any`` is true for a list if it is for some item, a clause of ``all`` if it is for every item: Kleene's
`or` and `and` of the items, so of an empty list ``any`` is false and ``all`` true. A list in a list is of no kind.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from wanderbus.event import Event
from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Or, Predicate, Quantified, Residual

COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
}
"""Comparison of a value with an operand of one kind, by operator."""

_EPOCH: Final = datetime(1970, 1, 1)

OF_KIND: Final[Mapping[str, frozenset[str]]] = {
    "number": frozenset({"==", "!=", "<", "<=", ">", ">=", "in"}),
    "string": frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "prefix", "suffix", "contains"}),
    "boolean": frozenset({"==", "!=", "in"}),
    "date": frozenset({"==", "!=", "<", "<=", ">", ">=", "in"}),
}
"""Operators of each kind (SPEC A-15)."""


def evaluate(node: Node, event: Event) -> bool | None:
    """Return whether ``event`` satisfies ``node``: True, False, or None for unknown."""
    return holds(node, event.attributes)


def holds(node: Node, attributes: Mapping[str, Any]) -> bool | None:
    """Return whether an event with ``attributes`` satisfies ``node``: True, False, or None for unknown."""
    match node:
        case Quantified(attribute=attribute):
            return clause_holds(node, attributes[attribute]) if attribute in attributes else None
        case Exists(attribute=attribute):
            return attribute in attributes
        case Residual(expression=expression):
            truth: bool | None = expression.holds(attributes)
            return truth
        case Not(operand=operand):
            return negation(holds(operand, attributes))
        case And(operands=operands):
            return conjunction(holds(operand, attributes) for operand in operands)
        case Or(operands=operands):
            return disjunction(holds(operand, attributes) for operand in operands)


def clause_holds(node: Quantified, value: Any) -> bool | None:
    """Return whether ``value``, a scalar or a list, satisfies the clause of ``node`` with its quantifier."""
    if not isinstance(value, list):
        return item_holds(node.clause, value)
    combine = disjunction if node.quantifier == "any" else conjunction
    return combine(item_holds(node.clause, item) for item in value)


def item_holds(clause: Clause, item: Any) -> bool | None:
    """Return whether one value satisfies ``clause``."""
    match clause:
        case Predicate(operator="in", operand=operands):
            assert isinstance(operands, tuple)
            return disjunction(_compare(item, "==", operand) for operand in operands)
        case Predicate(operator=sign, operand=operand):
            return _compare(item, sign, operand)
        case Not(operand=operand):
            return negation(item_holds(operand, item))
        case And(operands=operands):
            return conjunction(item_holds(operand, item) for operand in operands)
        case Or(operands=operands):
            return disjunction(item_holds(operand, item) for operand in operands)


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


def comparable(value: Any, kind: str) -> Any:
    """Return the representation of a ``value`` of ``kind`` in comparisons: for a date, its time since the Unix epoch.

    Python compares dates of one time zone by local time, though some local hours occur twice.
    """
    if kind != "date":
        return value
    offset: timedelta = value.utcoffset()
    return value.replace(tzinfo=None) - _EPOCH - offset


def kind_of(value: object) -> str | None:
    """Return the kind within which values compare, or None if ``value`` is not comparable."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "number"
        case float():
            return "number" if value == value else None
        case str():
            return "string"
        case datetime():
            return "date" if value.utcoffset() is not None else None
        case _:
            return None


def _compare(value: object, sign: str, operand: object) -> bool | None:
    kind = kind_of(value)
    if kind is None or kind != kind_of(operand) or sign not in OF_KIND[kind]:
        return None
    return COMPARE[sign](comparable(value, kind), comparable(operand, kind))
