"""The syntax tree of CESQL: plain immutable data (CESQL 1.0.0, 2).

Operators of one level of precedence, which are worked off from left to right, stand side by side in one
:class:`Chain`; so a tree is never deeper than its text is nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final, Literal

import msgspec

from wanderbus.filters.cesql import patterns

Value = str | int | bool
"""What an expression gives: String, Integer of 32 bits with a sign, or Boolean (CESQL 3.1)."""

PRECEDENCE: Final = {
    "AND": 1, "OR": 1, "XOR": 1,
    "=": 2, "!=": 2, "<": 2, "<=": 2, ">": 2, ">=": 2,
    "+": 3, "-": 3,
    "*": 4, "/": 4, "%": 4,
}  # fmt: skip
"""Of binary operators; the higher one binds tighter (CESQL 3.6). ``<>`` is read as ``!=``."""


class Constant(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A literal."""

    value: Value

    def __eq__(self, other: object) -> bool:
        # Python holds True equal to 1.
        return isinstance(other, Constant) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """The value of the attribute ``name``."""

    name: str


class Exists(msgspec.Struct, frozen=True, gc=False):
    """``EXISTS name``: whether the event has the attribute."""

    name: str


class Unary(msgspec.Struct, frozen=True, gc=False):
    """``NOT operand`` or ``-operand``."""

    operator: Literal["NOT", "-"]
    operand: Expression


class Chain(msgspec.Struct, frozen=True, gc=False):
    """``first``, and what is done with it step by step: operators of one precedence, each with its right operand.

    Made by :func:`chain`, which keeps ``first`` from being a chain of the same precedence.
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
        """The pattern as :func:`wanderbus.filters.cesql.patterns.matcher` has it, kept as long as the node."""
        return patterns.matcher(self.pattern)


class In(msgspec.Struct, frozen=True, gc=False):
    """``operand [NOT] IN (item, ...)``, of one item at least."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


class Call(msgspec.Struct, frozen=True, gc=False):
    """The function ``name``, in upper case, of ``arguments``."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Constant | Attribute | Exists | Unary | Chain | Like | In | Call


def chain(first: Expression, steps: Iterable[tuple[str, Expression]]) -> Expression:
    """Return ``first`` with ``steps``, all of one precedence: (a + b) + c is a + b + c."""
    steps = tuple(steps)
    if not steps:
        return first
    if isinstance(first, Chain) and precedence(first) == PRECEDENCE[steps[0][0]]:
        return Chain(first.first, first.steps + steps)
    return Chain(first, steps)


def precedence(node: Chain) -> int:
    """Return how tight the operators of ``node`` bind."""
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
        case Call(arguments=arguments):
            return arguments
        case _:
            return ()


def levels(root: Expression) -> Iterator[tuple[int, Expression]]:
    """Yield every node below and with ``root``, each with how deep it lies; the root lies 1 deep."""
    waiting = [(1, root)]
    while waiting:
        deep, node = waiting.pop()
        yield deep, node
        waiting.extend((deep + 1, part) for part in parts(node))
