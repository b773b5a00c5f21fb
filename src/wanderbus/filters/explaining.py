"""Explanation of a filter's result for an event: the deciding questions and values (SPEC U-01).

They are as few as possible. A false ``and`` is decided by its first false operand, a true ``or`` by its first true
operand; a true ``and`` and a false ``or`` are decided by all their operands. The same rules apply to the tests within a
clause and to the items of a list: a true ``any`` is decided by the first item for which the clause is true, a false
``all`` by the first item for which it is false, otherwise by all items together. An unknown result is decided by every
unknown operand, and by the first unknown item of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from wanderbus.event import Event
from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.eci import write
from wanderbus.filters.evaluate import holds, item_holds
from wanderbus.literals import to_text

VALUE_CHARACTERS_MAX: Final = 80
"""Longest text of an attribute's value in an explanation; a longer one is cut."""


class Deciding(msgspec.Struct, frozen=True):
    """A question that decided: its text, its result (None for unknown), and ``why`` in words."""

    question: str
    truth: bool | None
    why: str
    attribute: str | None = None
    """The attribute in question; None if the question is about the whole event."""

    value: Any = None
    """The event's value of it, or the item that decided; None if the attribute is missing."""

    item: int | None = None
    """Index of the deciding item of a list, counted from 0."""


def deciding(node: Node, event: Event) -> tuple[Deciding, ...]:
    """Return the questions that made ``node`` true, false or unknown for ``event``, in the order of the text."""
    attributes = event.attributes
    return tuple(
        found
        for leaf, truth in _deciders(node, lambda each: holds(each, attributes))
        for found in _explained(leaf, truth, event)
    )


def _deciders(node: Any, truth_of: Callable[[Any], bool | None]) -> Iterator[tuple[Any, bool | None]]:
    """Yield the parts that decided ``node``, a filter or a clause, with their results: parts that combine no others."""
    match node:
        case Not(operand=operand):
            yield from _deciders(operand, truth_of)
        case And(operands=operands) | Or(operands=operands) if operands:
            truth = truth_of(node)
            enough = isinstance(node, Or)
            same = (operand for operand in operands if truth_of(operand) is truth)
            for operand in same:
                yield from _deciders(operand, truth_of)
                if truth is enough:
                    return
        case _:
            yield node, truth_of(node)


def _explained(leaf: Node, truth: bool | None, event: Event) -> Iterator[Deciding]:
    match leaf:
        case Quantified(attribute=name) if name in event.attributes:
            yield from _of_value(leaf, event.attributes[name], truth)
        case Quantified(attribute=name) | Exists(attribute=name):
            yield Deciding(write(leaf), truth, _what_is(name, event), name, event.get(name))
        case Residual(language=language, needed=needed):
            facts = ", ".join(_what_is(name, event) for name in dict.fromkeys(_attributes(needed)))
            yield Deciding(write(leaf), truth, f"as {language} evaluates it{facts and f': {facts}'}")
        case _:
            yield Deciding(write(leaf), truth, "it asks nothing of the event")


def _attributes(node: Node) -> Iterator[str]:
    match node:
        case Quantified(attribute=name) | Exists(attribute=name):
            yield name
        case Residual(needed=operand) | Not(operand=operand):
            yield from _attributes(operand)
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                yield from _attributes(operand)


def _what_is(name: str, event: Event) -> str:
    return f"{name} is {_shown(event[name])}" if name in event.attributes else f"the event has no {name}"


def _of_value(node: Quantified, value: Any, truth: bool | None) -> Iterator[Deciding]:
    if not isinstance(value, list):
        yield from _of_item(node, value, None)
        return
    one_decides = truth is None or truth is (node.quantifier == "any")
    for place, item in enumerate(value) if one_decides else ():
        if item_holds(node.clause, item) is truth:
            yield from _of_item(node, item, place)
            return
    yield Deciding(write(node), truth, f"{node.attribute} is {_shown(value)}", node.attribute, value)


def _of_item(node: Quantified, item: Any, place: int | None) -> Iterator[Deciding]:
    """Yield the parts of the clause that decided for one value, item ``place`` of a list."""
    name = node.attribute
    where = name if place is None else f"item {place + 1} of {name}"
    for leaf, truth in _deciders(node.clause, lambda clause: item_holds(clause, item)):
        why = f"{where} is {_shown(item)}"
        if truth is None:
            why += f", which does not compare so with {_operand_in_words(leaf)}"
        question = write(Quantified(node.quantifier, name, leaf))
        yield Deciding(question, truth, why, name, item, place)


def _operand_in_words(leaf: Clause) -> str:
    assert isinstance(leaf, Predicate)
    operand = leaf.operand
    return " or ".join(map(_shown, operand)) if isinstance(operand, tuple) else _shown(operand)


def _shown(value: Any) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = f'"{value}"'
        case datetime():
            text = to_text(value)
        case list():
            text = f"[{', '.join(map(_shown, value))}]"
        case _:
            text = str(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 3] + "..."
