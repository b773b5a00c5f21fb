"""Evaluation of an expression in CESQL for an event (CESQL 1.0.0, 3).

The first error ends the evaluation ("fail fast", 4.1, which 1.2 advises for filters). A failed operation gives the
value that its definition names (``1 / 0`` gives 0, ``LEFT('ab', -1)`` gives ``'ab'``), otherwise the zero value of its
result type; so do all operations around it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from wanderbus.filters.cesql import casting
from wanderbus.filters.cesql.casting import INTEGER_MAX, INTEGER_MIN, ZERO, CastFailure, ErrorKind, Items, Presented
from wanderbus.filters.cesql.functions import FunctionFault, find
from wanderbus.filters.cesql.tree import (
    AttributeExists,
    AttributeValue,
    Chain,
    Expression,
    FunctionCall,
    In,
    Like,
    LiteralValue,
    Unary,
    Value,
)

_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SUM: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def result(root: Expression, attributes: Mapping[str, Any]) -> tuple[Value, ErrorKind | None]:
    """Return the result of ``root`` for an event with ``attributes``, and the kind of the error, if any."""
    try:
        value = _value(root, Presented(attributes))
    except CastFailure as failure:
        return failure.value if failure.node is root else ZERO[type_of(root)], failure.kind
    return (_cast(value, str, root) if isinstance(value, list) else value), None


def type_of(node: Expression) -> type[Value]:
    """Return the result type of ``node``; Boolean if it depends on the event (CESQL 3.2)."""
    match node:
        case LiteralValue(value=value):
            return type(value)
        case Chain(steps=((sign, _), *_)) if sign in "+-*/%":
            return int
        case Unary(operator="-"):
            return int
        case FunctionCall(name=name, arguments=arguments) if function := find(name, len(arguments)):
            return function.gives
        case _:
            return bool


def _value(node: Expression, attributes: Presented) -> Value | Items:
    """Return the result of ``node``; a list for an attribute that is one. Raises :class:`CastFailure`."""
    match node:
        case LiteralValue(value=value):
            return value
        case AttributeValue(name=name):
            return _attribute(node, name, attributes)
        case Chain():
            return _chain(node, attributes)
        case Like(operand=operand, negated=negated):
            matches = node.matches
            left = _value(operand, attributes)
            return negated is not _any_item(left, lambda item: matches(_cast(item, str, node)))
        case In(negated=negated):
            return negated is not _in(node, attributes)
        case AttributeExists(name=name):
            return name.lower() in casting.REQUIRED or _find(name, attributes) is not None
        case Unary():
            return _unary(node, attributes)
        case FunctionCall():
            return _call(node, attributes)


def _find(name: str, attributes: Presented) -> Any:
    return next((attributes[each] for each in casting.names(name) if attributes[each] is not None), None)


def _attribute(node: AttributeValue, name: str, attributes: Presented) -> Value | Items:
    value: Value | Items | None = _find(name, attributes)
    if value is None:
        raise CastFailure("missingAttribute", node, False)
    return value


def _cast(value: Value | Items, wanted: type[Value], node: Expression) -> Any:
    """Return ``value`` cast to the ``wanted`` type; ``node`` fails if the cast does."""
    found = casting.cast(value, wanted)
    if found is None:
        raise CastFailure("cast", node, ZERO[type_of(node)])
    return found


def _unary(node: Unary, attributes: Presented) -> Value:
    value = _value(node.operand, attributes)
    if node.operator == "NOT":
        # The suite requires that NOT of an integer fails, and that a failed cast to Boolean counts as false.
        truth = None if type(value) is int else casting.cast(value, bool)
        if truth is None:
            raise CastFailure("cast", node, True)
        return not truth
    return _within_32_bits(-_cast(value, int, node), node)


def _chain(node: Chain, attributes: Presented) -> Value:
    left = _value(node.first, attributes)
    for sign, operand in node.steps:
        right = partial(_value, operand, attributes)
        if sign in ("AND", "OR", "XOR"):
            left = _logic(node, sign, _cast(left, bool, node), right)
        elif sign in ("=", "!=", "<", "<=", ">", ">="):
            left = _comparison(node, sign, left, right())
        else:
            y = right()
            left = _arithmetic(node, sign, _cast(left, int, node), _cast(y, int, node))
    return left  # type: ignore[return-value]  # a chain has a step, which gives no list


def _logic(node: Chain, sign: str, x: bool, right: Callable[[], Value | Items]) -> bool:
    if sign != "XOR" and x is (sign == "OR"):
        return x
    y: bool = _cast(right(), bool, node)
    return x is not y if sign == "XOR" else y


def _comparison(node: Chain, sign: str, x: Value | Items, y: Value | Items) -> bool:
    if sign in _ORDER:
        bound = _cast(y, int, node)
        return _any_item(x, lambda item: _ORDER[sign](_cast(item, int, node), bound))
    y = _cast(y, str, node) if isinstance(y, list) else y
    equal = _any_item(x, lambda item: bool(_cast(item, type(y), node) == y))
    return equal is (sign == "=")


def _arithmetic(node: Chain, sign: str, x: int, y: int) -> int:
    if sign in _SUM:
        return _within_32_bits(_SUM[sign](x, y), node)
    if y == 0:
        raise CastFailure("math", node, 0)
    quotient = abs(x) // abs(y)
    quotient = quotient if (x < 0) is (y < 0) else -quotient
    return _within_32_bits(quotient if sign == "/" else x - y * quotient, node)


def _within_32_bits(number: int, node: Expression) -> int:
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise CastFailure("math", node, 0)
    return number


def _in(node: In, attributes: Presented) -> bool:
    left = _value(node.operand, attributes)
    items = [_value(item, attributes) for item in node.items]
    # Each element is cast once to each type, not once for every item on the left.
    elements: dict[type[Value], set[Value | None]] = {}

    def listed(value: Value) -> bool:
        wanted = type(value)
        if wanted not in elements:
            elements[wanted] = {casting.cast(item, wanted) for item in items}
        if value not in elements[wanted] and None in elements[wanted]:
            raise CastFailure("cast", node, False)
        return value in elements[wanted]

    return _any_item(left, listed)


def _any_item(value: Value | Items, test: Callable[[Value], bool]) -> bool:
    """Return whether ``test`` holds for ``value``; for a list, whether it holds for some item."""
    return _some(value, test) if isinstance(value, list) else test(value)


def _some(values: Iterable[Any], test: Callable[[Any], bool]) -> bool:
    """Return whether ``test`` holds for some of ``values``; if it holds for none, the first failure is raised."""
    first: CastFailure | None = None
    for value in values:
        try:
            if test(value):
                return True
        except CastFailure as failure:
            first = first or failure
    if first:
        raise first
    return False


def _call(node: FunctionCall, attributes: Presented) -> Value:
    function = find(node.name, len(node.arguments))
    if function is None:
        raise CastFailure("missingFunction", node, False)
    values = [_value(argument, attributes) for argument in node.arguments]
    wanted = function.takes + (function.rest or str,) * (len(values) - len(function.takes))
    try:
        return function.call(*(_cast(value, kind, node) for value, kind in zip(values, wanted, strict=True)))
    except FunctionFault as fault:
        raise CastFailure(fault.kind, node, fault.value) from None
