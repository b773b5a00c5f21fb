"""CESQL, the CloudEvents SQL Expression Language 1.0.0, as a language of filters (SPEC U-04; DESIGN 7.1, 7.2).

:func:`read` gives a tree for any use of a filter: the common one where that says exactly the same, otherwise a
`Residual` that carries the expression and what must hold before it can be true (:mod:`.translating`).
:func:`evaluate` gives what the conformance suite asks for: the value and the kind of the error.

Identifiers name the attributes of an event as they are written. CloudEvents has lower case alone; so where an event
has no attribute as written, the eight context attributes are found in lower case too: ``EXISTS SOURCE``. The four
that every CloudEvent has (id, source, specversion, type) always exist (3.4.4), even if they have no value here.

============ =====================================================================================================
attribute    is to an expression
============ =====================================================================================================
String       a String
Boolean      a Boolean
Integer      an Integer if it fits 32 bits, otherwise the String of its digits
Double       a String, the shortest that reads back to the same number: ``'25.5'``, ``'5.0'``
Date         a String after RFC 3339 in its own time zone: ``'2026-11-21T10:00:00Z'``
List         left of a comparison, LIKE or IN: each item on its own, and some item must do (so that ``NOT`` and
             ``!=`` ask that none does); elsewhere one String, a JSON array
============ =====================================================================================================

An event matches where the expression gives the Boolean true and no error. An expression that ends with an error, or
gives an Integer or a String, matches nothing (1.2); nor does its ``NOT``.

Where the specification leaves a choice, or the suite says otherwise:

- The first error ends the evaluation (4.1); what is around it gives its zero value: ``1 / 0 != 1`` is false.
- ``NOT 10`` is a cast error and true, as the suite has it, though 3.7 casts integers to Booleans; so is the NOT of
  any text that is no Boolean. All else follows 3.7: ``1 AND TRUE`` is true.
- A sum, difference, product or quotient beyond 32 bits is 0 with a math error.
- A cast that fails makes its operator give the zero value: ``'x' < 5`` is false, ``'x' + 5`` is 0.
- IN holds if some element is equal, even if another cannot be cast; every element is evaluated.
- AND, OR and XOR are of one precedence and group to the left (3.6).
- ``4-1`` is a subtraction: a sign belongs to an integer only where a value is expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters.ast import Node, Residual
from wanderbus.filters.cesql.casting import ErrorKind
from wanderbus.filters.cesql.evaluating import result
from wanderbus.filters.cesql.reading import read as read_expression
from wanderbus.filters.cesql.translating import translate
from wanderbus.filters.cesql.tree import Expression, Value
from wanderbus.filters.cesql.working import work_of
from wanderbus.filters.cesql.writing import write
from wanderbus.filters.work_counts import Work

__all__ = ["Condition", "canonical", "evaluate", "read"]


class Condition:
    """An expression as the condition of a `Residual`; immutable, and equal if the trees are."""

    __slots__ = ("root",)

    def __init__(self, root: Expression) -> None:
        self.root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.root == other.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __repr__(self) -> str:
        return f"Condition({str(self)!r})"

    def __str__(self) -> str:
        return write(self.root)

    def work(self) -> Work:
        """Return the greatest work of evaluating it, by the attributes of an event."""
        return work_of(self.root)

    def holds(self, attributes: Mapping[str, Any]) -> bool | None:
        """Return the result of the expression; None for an error, or for a result that is not Boolean."""
        value, error = result(self.root, attributes)
        return value if error is None and isinstance(value, bool) else None


def read(text: str) -> Node:
    """Return the tree of the filter in ``text``: true for an event where the expression is true without an error.

    Raises :class:`FilterError` with the position of the fault. The tree does not keep whether other results are false
    or unknown.
    """
    root = read_expression(text)
    longest = limits.EXPRESSION_CHARACTERS_MAX
    if len(write(root)) > longest:
        raise FilterError(f"an expression has at most {longest} characters once written in full", text, 0)
    condition = translate(root)
    return condition.node if condition.exact else Residual("cesql", Condition(root), condition.node)


def canonical(text: str) -> str:
    """Return the canonical text of the expression ``text``; raises :class:`FilterError`."""
    return write(read_expression(text))


def evaluate(text: str, attributes: Mapping[str, Any]) -> tuple[Value, ErrorKind | None]:
    """Return the value of ``text`` for an event with ``attributes``, and the kind of the first error, or None.

    An invalid text gives False and ``"parse"``.
    """
    try:
        root = read_expression(text)
    except FilterError:
        return False, "parse"
    return result(root, attributes)
