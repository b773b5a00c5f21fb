"""Values of expressions over the events of a partial match, compiled to nested functions.

None is unknown: an attribute that is missing, values of different kinds, a division by zero, a result that is no
event's value. Comparisons and logic are those of filters (:mod:`wanderbus.filters.evaluate`). The difference of two
dates is a duration, a ``timedelta``, which compares with durations alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from wanderbus.filters.evaluate import COMPARE, OF_KIND, comparable, conjunction, disjunction, kind_of, negation
from wanderbus.patterns.automaton import MatchNode, Value
from wanderbus.patterns.tree import Aggregate, Constant, Count, Expression, Operation, Series

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION: Final = "duration"
_ORDERED: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_KINDS: Final = frozenset(
    {
        *((sign, "number", "number") for sign in _ARITHMETIC),
        *((sign, _DURATION, _DURATION) for sign in "+-/"),
        *(("*", "number", _DURATION), ("*", _DURATION, "number"), ("/", _DURATION, "number")),
        *(("-", "date", "date"), ("+", "date", _DURATION), ("-", "date", _DURATION), ("+", _DURATION, "date")),
    }
)
"""Operators with the kinds of their operands."""


def compile_expression(expression: Expression, attributes: Mapping[str, int]) -> Value:
    """Return the function of ``expression``; ``attributes`` has the place of each attribute in ``Seen.values``."""
    match expression:
        case Constant(value=value):
            return lambda node: value
        case Count(step=step):
            return lambda node: len(_taken(node, step))
        case Series(step=step, attribute=None):
            return lambda node: _last_time(node, step)
        case Series(step=step, attribute=str(attribute)):
            return _last(step, attributes[attribute])
        case Aggregate(function=name, series=series):
            return _aggregate(name, series, attributes)
        case Operation(operator=sign, operands=operands):
            return _operation(sign, [compile_expression(each, attributes) for each in operands])
    raise AssertionError(expression)


def instant(time_us: int) -> datetime:
    """Return the date of a time in microseconds since the Unix epoch."""
    return _EPOCH + timedelta(microseconds=time_us)


def attributes_of(expression: Expression | None) -> set[str]:
    """Return the attributes that an expression uses."""
    match expression:
        case Series(attribute=str(attribute)) | Aggregate(series=Series(attribute=str(attribute))):
            return {attribute}
        case Operation(operands=operands):
            return set().union(*map(attributes_of, operands))
        case _:
            return set()


def _last(step: int, place: int) -> Value:
    def last(node: MatchNode | None) -> Any:
        while node is not None:
            if node.step == step:
                return node.seen.values[place]
            node = node.before
        return None

    return last


def _last_time(node: MatchNode | None, step: int) -> Any:
    while node is not None:
        if node.step == step:
            return instant(node.seen.time_us)
        node = node.before
    return None


def _taken(node: MatchNode | None, step: int) -> list[MatchNode]:
    """Return the nodes of a step, in order."""
    found = []
    while node is not None:
        if node.step == step:
            found.append(node)
        node = node.before
    found.reverse()
    return found


def _aggregate(name: str, series: Series, attributes: Mapping[str, int]) -> Value:
    step, attribute = series.step, series.attribute
    function = _AGGREGATES[name]
    if attribute is None:
        return lambda node: function([instant(each.seen.time_us) for each in _taken(node, step)])
    place = attributes[attribute]
    return lambda node: function([each.seen.values[place] for each in _taken(node, step)])


def _numbers(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if _kind(value) == "number"]


def _total(values: Sequence[Any]) -> Any:
    numbers = _numbers(values)
    return _known(sum(numbers)) if numbers else None


def _average(values: Sequence[Any]) -> Any:
    numbers = _numbers(values)
    return _divided(sum(numbers), len(numbers)) if numbers else None


def _extreme(choose: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    def extreme(values: Sequence[Any]) -> Any:
        known = [value for value in values if value is not None]
        kinds = {_kind(value) for value in known}
        if len(kinds) != 1 or kinds & {None, "boolean"}:
            return None
        (kind,) = kinds
        assert kind is not None
        return choose(known, key=lambda value: comparable(value, kind))

    return extreme


_AGGREGATES: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    "sum": _total,
    "avg": _average,
    "min": _extreme(min),
    "max": _extreme(max),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
}


def _operation(sign: str, operands: Sequence[Value]) -> Value:
    if sign == "and":
        return lambda node: conjunction(_truth(each(node)) for each in operands)
    if sign == "or":
        return lambda node: disjunction(_truth(each(node)) for each in operands)
    if sign == "not":
        (operand,) = operands
        return lambda node: negation(_truth(operand(node)))
    one, other = operands
    if sign in _ARITHMETIC:
        return lambda node: _computed(sign, one(node), other(node))
    return lambda node: _compared(sign, one(node), other(node))


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _kind(value: object) -> str | None:
    return _DURATION if type(value) is timedelta else kind_of(value)


def _compared(sign: str, one: Any, other: Any) -> bool | None:
    kind = _kind(one)
    if kind is None or kind != _kind(other):
        return None
    if sign not in (_ORDERED if kind == _DURATION else OF_KIND[kind]):
        return None
    return COMPARE[sign](comparable(one, kind), comparable(other, kind))


def _computed(sign: str, one: Any, other: Any) -> Any:
    kinds = (sign, _kind(one), _kind(other))
    if kinds not in _KINDS:
        return None
    if sign == "/":
        return _divided(one, other)
    try:
        if "date" in kinds:
            one, other = (value.astimezone(UTC) if isinstance(value, datetime) else value for value in (one, other))
        return _known(_ARITHMETIC[sign](one, other))
    except (ArithmeticError, ValueError):
        return None


def _divided(one: Any, other: Any) -> Any:
    try:
        return _known(one / other)
    except (ArithmeticError, ValueError):
        return None


def _known(value: Any) -> Any:
    """Return ``value``, or None if it cannot be an event's: NaN, or an integer beyond 64 bits."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    return value
