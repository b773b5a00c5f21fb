"""Size of a filter, estimated only from its tree, so that every estimate of a filter is the same."""

from __future__ import annotations

from typing import Any, Final

from wanderbus.filters.ast import And, Exists, Not, Or, Predicate, Quantified, Residual, Rooted

FILTER_BYTES: Final = 1_024
"""Bytes of a filter by itself: its subscription, its id, its row."""

NAME_BYTES: Final = 4_096
"""Bytes of an attribute name: an index has columns for it, shared among filters, which every event passes."""

QUESTION_BYTES: Final = 512
"""Bytes of a comparison or a combination: its tree, its compiled function, and its entry in a row."""

VALUE_BYTES: Final = 192
"""Bytes of one value of ``in``."""

CHARACTER_BYTES: Final = 80
"""Bytes of a character of an expression that another language evaluates in its own tree."""


def size_of(of: Rooted) -> int:
    """Return the estimated bytes of memory of a filter in an index: an upper estimate."""
    size = FILTER_BYTES
    names: set[str] = set()
    waiting: list[Any] = [of.root]
    while waiting:
        node = waiting.pop()
        size += QUESTION_BYTES
        match node:
            case And(operands=operands) | Or(operands=operands):
                waiting += operands
            case Not(operand=operand):
                waiting.append(operand)
            case Quantified(attribute=name, clause=clause):
                names.add(name)
                waiting.append(clause)
            case Exists(attribute=name):
                names.add(name)
            case Residual(expression=expression, needed=needed):
                size += CHARACTER_BYTES * len(str(expression))
                waiting.append(needed)
            case Predicate(operand=tuple() as values):
                size += VALUE_BYTES * len(values) + sum(len(each) for each in values if isinstance(each, str))
            case Predicate(operand=str() as text):
                size += len(text)
    return size + NAME_BYTES * len(names)


def has_questions(root: Any, most: int, *, values_count: bool = True) -> bool:
    """Return whether a tree has more than ``most`` questions; each value of ``in`` may count as a quarter of one."""
    left = 4 * most
    waiting = [root]
    while waiting and left >= 0:
        node = waiting.pop()
        match node:
            case And(operands=operands) | Or(operands=operands):
                waiting += operands
                left -= 1
            case Not(operand=operand):
                waiting.append(operand)
                left -= 1
            case Quantified(clause=clause):
                waiting.append(clause)
            case Predicate(operand=tuple() as operands) if values_count:
                left -= len(operands)
            case _:
                left -= 4
    return left < 0
