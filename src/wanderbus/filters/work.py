"""Estimated work of a filter for an event: operations and characters, counted without evaluating it.

A bound is linear in the sizes of the event's attributes that the filter names. It is the same on every machine, in a
simulation and when a log is replayed. One unit is about 10 ns on the reference machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.compiled import is_compiled
from wanderbus.filters.work_counts import Share, Size, Work
from wanderbus.limits import EVENT_BYTES_MOST, EVENT_LIST_ITEMS_MAX

OPERATION: Final = 25
"""Units of one comparison in a compiled function; in a tree it costs :data:`IN_A_TREE` times as much."""

IN_A_TREE: Final = 3

SHORT_TEXT: Final = 128
"""Length of a sought text up to which each character of a value is compared few times."""

OTHER_CHARACTERS: Final = 32
"""Length in characters assumed for a value that is not a text, because some languages convert it to one."""

CASED_OTHERS: Final = 8
"""Number of ASCII characters whose change of case costs as much as one character of another text."""


class Sizes(dict[str, Size | None]):
    """Sizes of the attributes of one event, computed on first use; None for attributes that it lacks."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self.attributes = attributes

    def __missing__(self, name: str) -> Size | None:
        value = self.attributes.get(name)
        self[name] = size = None if value is None else _size(value)
        return size


class EverySize(dict[str, Size | None]):
    """Sizes of an event that has every attribute, each of the same size."""

    def __init__(self, characters: int, items: int = 1, cased: int | None = None) -> None:
        """Create it with texts of so many ``characters``, or with lists; see :class:`Size`."""
        super().__init__()
        self._each = Size(items, characters, characters if cased is None else cased)

    def __missing__(self, name: str) -> Size | None:
        return self._each


_LARGEST: Final = EVENT_BYTES_MOST + EVENT_LIST_ITEMS_MAX * OTHER_CHARACTERS


def most_units(work: Work) -> int:
    """Return the units that a filter never exceeds, for whatever event a broker accepts."""
    return work.units(EverySize(_LARGEST, EVENT_LIST_ITEMS_MAX, CASED_OTHERS * _LARGEST))


def work_of(root: Node) -> Work:
    """Return the work of the filter with this tree."""
    work = Work()
    _of_node(root, work, OPERATION if is_compiled(root) else IN_A_TREE * OPERATION)
    return work


def _of_node(node: Node, work: Work, operation: int) -> None:
    work.fixed += operation
    match node:
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                _of_node(operand, work, operation)
        case Not(operand=operand):
            _of_node(operand, work, operation)
        case Quantified(attribute=name, clause=clause):
            _of_clause(clause, work.share(name), operation)
        case Residual(expression=expression):
            work.add(expression.work())
        case Exists():
            pass


def _of_clause(clause: Clause, share: Share, operation: int) -> None:
    share.items += operation
    match clause:
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                _of_clause(operand, share, operation)
        case Not(operand=operand):
            _of_clause(operand, share, operation)
        case Predicate(operator="in", operand=tuple() as values) if operation > OPERATION:
            share.items += operation * len(values)
        case Predicate(operator="contains", operand=str() as text):
            share.characters += 2 if len(text) <= SHORT_TEXT else 8
        case _:
            pass


def _size(value: Any) -> Size:
    items = value if isinstance(value, list) else (value,)
    characters = cased = 0
    for item in items:
        length = len(item) + 3 if isinstance(item, str) else OTHER_CHARACTERS
        characters += length
        cased += length if not isinstance(item, str) or item.isascii() else CASED_OTHERS * length
    return Size(len(items), characters, cased)
