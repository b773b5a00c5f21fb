"""Why an expression is what it is for an event: the comparisons that decided (SPEC U-01).

They are as few as it takes. An ``and`` that is false is decided by its first operand that is false, an ``or`` that is
true by its first that is true, whatever the others are; an ``and`` that is true and an ``or`` that is false by all of
them. What is unknown is so because of every operand that is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from wanderbus.event import Event
from wanderbus.filters.ast import And, Comparison, Node, Not, Or
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.language import write

VALUE_CHARACTERS_MAX: Final = 80
"""Of an attribute's value in words; a longer one is cut."""


class Predicate(msgspec.Struct, frozen=True):
    """A comparison, what it was (None for unknown), and ``why`` in words."""

    comparison: str
    truth: bool | None
    why: str


def deciding(node: Node, event: Event) -> tuple[Predicate, ...]:
    """Return the comparisons that made ``node`` true, false or unknown for ``event``, in the order of the text."""
    truth = evaluate(node, event)
    match node:
        case Comparison():
            return (Predicate(write(node), truth, _why(node, event)),)
        case Not(operand=operand):
            return deciding(operand, event)
        case And(operands=operands):
            return _of_operands(operands, event, truth, one_is_enough=truth is False)
        case Or(operands=operands):
            return _of_operands(operands, event, truth, one_is_enough=truth is True)


def _of_operands(
    operands: Sequence[Node], event: Event, truth: bool | None, *, one_is_enough: bool
) -> tuple[Predicate, ...]:
    deciders = [operand for operand in operands if evaluate(operand, event) is truth]
    return tuple(found for each in deciders[: 1 if one_is_enough else None] for found in deciding(each, event))


def _why(comparison: Comparison, event: Event) -> str:
    name = comparison.attribute
    if name not in event.attributes:
        return f"the event has no {name}"
    value = event.attributes[name]
    if evaluate(comparison, event) is None:
        return f"{name} is {_shown(value)}, which does not compare so with {_shown(comparison.value)}"
    return f"{name} is {_shown(value)}"


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."
