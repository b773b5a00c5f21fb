"""Compilation of a filter to one nested function, several times faster than walking its tree for every event.

The function means exactly the same as :func:`wanderbus.filters.evaluate.holds`; tests compare the two on generated
cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from wanderbus.filters.ast import And, Exists, Node, Not, Operand, Or, Predicate, Quantified, Residual
from wanderbus.filters.evaluate import COMPARE, OF_KIND, comparable, conjunction, disjunction, holds, kind_of, negation
from wanderbus.filters.sizes import has_questions

Test = Callable[[Mapping[str, Any]], bool | None]
"""Function from the attributes of an event to True, False or None for unknown."""

QUESTIONS_MAX: Final = 64
"""Largest number of questions of a filter that is compiled; a larger filter is evaluated as a tree.

The functions of large filters would dominate the garbage collector's work, which blocks everything else.
"""

_Truth = Callable[[Any], bool | None]
"""Function from attributes, or from one value, to True, False or None for unknown."""

_TYPES: Final[Mapping[str, type]] = {"boolean": bool, "number": int, "string": str}
"""Types of which all values have one kind; values of other types are inspected one by one."""


def compile_node(node: Node) -> Test:
    """Return the function that evaluates ``node`` over an event's attributes."""
    if not is_compiled(node):
        return partial(holds, node)
    return _boolean(node, _question)


def is_compiled(node: Node) -> bool:
    """Return whether a filter is compiled."""
    return not has_questions(node, QUESTIONS_MAX, values_count=False)


def _boolean(node: Any, leaf: Callable[[Any], _Truth]) -> _Truth:
    """Return the function of a node or of a clause: they combine in the same way and differ in their leaves."""
    match node:
        case Not(operand=operand):
            test = _boolean(operand, leaf)
            return lambda subject: negation(test(subject))
        case And(operands=(single,)) | Or(operands=(single,)):
            return _boolean(single, leaf)
        case And(operands=operands):
            return _combined(tuple(_boolean(operand, leaf) for operand in operands), decisive=False)
        case Or(operands=operands):
            return _combined(tuple(_boolean(operand, leaf) for operand in operands), decisive=True)
        case _:
            return leaf(node)


def _combined(tests: Sequence[_Truth], *, decisive: bool) -> _Truth:
    """Return Kleene's `or` of ``tests``, which True decides, or with ``decisive`` False Kleene's `and`."""

    def combined(subject: Any) -> bool | None:
        result: bool | None = not decisive
        for test in tests:
            truth = test(subject)
            if truth is decisive:
                return truth
            if truth is None:
                result = None
        return result

    return combined


def _question(node: Quantified | Exists | Residual) -> Test:
    match node:
        case Exists(attribute=attribute):
            return lambda attributes: attribute in attributes
        case Residual(expression=expression):
            holds: Test = expression.holds
            return holds
        case Quantified(quantifier=quantifier, attribute=attribute, clause=clause):
            combine = disjunction if quantifier == "any" else conjunction
            item = _boolean(clause, _predicate)

            def quantified(attributes: Mapping[str, Any]) -> bool | None:
                if attribute not in attributes:
                    return None
                value = attributes[attribute]
                return combine(map(item, value)) if isinstance(value, list) else item(value)

            return quantified


def _predicate(predicate: Predicate) -> _Truth:
    sign, operand = predicate.operator, predicate.operand
    if isinstance(operand, tuple):
        return _member(operand)
    kind = kind_of(operand)
    if kind is None or sign not in OF_KIND[kind]:
        return lambda value: None
    compare = COMPARE[sign]
    if kind == "date":
        instant = comparable(operand, "date")
        return lambda value: compare(comparable(value, "date"), instant) if kind_of(value) == "date" else None
    expected = _TYPES[kind]

    def compared(value: Any) -> bool | None:
        return compare(value, operand) if type(value) is expected or kind_of(value) == kind else None

    def number(value: Any) -> bool | None:
        if type(value) is float:  # the only type with a value, NaN, that is not equal to itself
            return compare(value, operand) if value == value else None
        return compared(value)

    return number if kind == "number" else compared


def _member(operands: Sequence[Operand]) -> _Truth:
    """Return a function: whether a value is one of ``operands``; unknown if it cannot be compared with some of them."""
    if not operands:
        return lambda value: False
    kinds = {kind_of(operand) for operand in operands}
    values = {
        kind: frozenset(comparable(each, kind) for each in operands if kind_of(each) == kind) for kind in kinds if kind
    }

    def member(value: Any) -> bool | None:
        kind = kind_of(value)
        if kind is not None and kind in values and comparable(value, kind) in values[kind]:
            return True
        return None if kind is None or kinds - {kind} else False

    return member
