"""The syntax tree of CESQL: plain immutable data (CESQL 1.0.0, 2).

Operators of one precedence, which are evaluated from left to right, form one :class:`Chain`; so a tree is never deeper
than its text is nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final, Literal

import msgspec

from wanderbus.filters.cesql import patterns

Value = str | int | bool
"""Result of an expression: String, Integer of 32 bits with a sign, or Boolean (CESQL 3.1)."""

PRECEDENCE: Final = {
    "AND": 1, "OR": 1, "XOR": 1,
    "=": 2, "!=": 2, "<": 2, "<=": 2, ">": 2, ">=": 2,
    "+": 3, "-": 3,
    "*": 4, "/": 4, "%": 4,
}  # fmt: skip
"""Precedence of binary operators; the higher one binds tighter (CESQL 3.6). ``<>`` is read as ``!=``."""


class LiteralValue(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A literal."""

    value: Value

    def __eq__(self, other: object) -> bool:
        # Python treats True and 1 as equal.
        return isinstance(other, LiteralValue) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class AttributeValue(msgspec.Struct, frozen=True, gc=False):
    """The value of the attribute ``name``."""

    name: str


class AttributeExists(msgspec.Struct, frozen=True, gc=False):
    """``EXISTS name``: whether the event has the attribute."""

    name: str


class Unary(msgspec.Struct, frozen=True, gc=False):
    """``NOT operand`` or ``-operand``."""

    operator: Literal["NOT", "-"]
    operand: Expression


class Chain(msgspec.Struct, frozen=True, gc=False):
    """``first``, and the operators of one precedence that follow it, each with its right operand.

    :func:`chain` makes it, and keeps ``first`` from being a chain of the same precedence.
    """

    first: Expression
    steps: tuple[tuple[str, Expression], ...]


class Like(msgspec.Struct, frozen=True, dict=True):
    """``operand [NOT] LIKE pattern``."""

    operand: Expression
    pattern: str
    negated: bool = False

    @cached_property
    def matches(self) -> Callable[[str], bool]:
        """The compiled pattern of :func:`wanderbus.filters.cesql.patterns.matcher`, kept as long as the node."""
        return patterns.matcher(self.pattern)


class In(msgspec.Struct, frozen=True, gc=False):
    """``operand [NOT] IN (item, ...)``, with at least one item."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


class FunctionCall(msgspec.Struct, frozen=True, gc=False):
    """The function ``name``, in upper case, of ``arguments``."""

    name: str
    arguments: tuple[Expression, ...]


Expression = LiteralValue | AttributeValue | AttributeExists | Unary | Chain | Like | In | FunctionCall


def chain(first: Expression, steps: Iterable[tuple[str, Expression]]) -> Expression:
    """Return ``first`` with ``steps``, all of one precedence: (a + b) + c is a + b + c."""
    steps = tuple(steps)
    if not steps:
        return first
    if isinstance(first, Chain) and precedence(first) == PRECEDENCE[steps[0][0]]:
        return Chain(first.first, first.steps + steps)
    return Chain(first, steps)


def precedence(node: Chain) -> int:
    """Return the precedence of the operators of ``node``."""
    return PRECEDENCE[node.steps[0][0]]


def parts(node: Expression) -> tuple[Expression, ...]:
    """Return the direct operands of ``node``, from left to right."""
    match node:
        case Chain(first=first, steps=steps):
            return first, *(operand for _, operand in steps)
        case Unary(operand=operand) | Like(operand=operand):
            return (operand,)
        case In(operand=operand, items=items):
            return operand, *items
        case FunctionCall(arguments=arguments):
            return arguments
        case _:
            return ()


def levels(root: Expression) -> Iterator[tuple[int, Expression]]:
    """Yield every node from ``root`` down, each with its depth; the root has depth 1."""
    waiting = [(1, root)]
    while waiting:
        deep, node = waiting.pop()
        yield deep, node
        waiting.extend((deep + 1, part) for part in parts(node))
