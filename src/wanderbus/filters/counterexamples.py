"""Counterexamples to covering: events that one filter matches and another does not (SPEC B-02, B-09).

A conjunction of the one filter is narrowed until no conjunction of the other holds for it. As long as some conjunction
of the other holds for a sampled event, one of its attribute filters has to fail, so the contrary of that filter is
added. The number of steps is bounded; without patterns, residuals and too many alternatives, every existing
counterexample is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wanderbus.errors import EventError
from wanderbus.event import Event, check_event
from wanderbus.filters import clauses
from wanderbus.filters.ast import Node
from wanderbus.filters.clauses import TooLarge
from wanderbus.filters.conjunctions import both
from wanderbus.filters.covering import Comparable, form_of, strengthened
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.normal import AttributeFilter, Conjunction, NormalForm
from wanderbus.filters.normalising import to_node, tree_of
from wanderbus.filters.sampling import attributes_of
from wanderbus.filters.unfolding import conjunction_node

STEPS_MAX: Final = 1_024
"""Conjunctions that are tried for one counterexample."""

VARIATIONS: Final = 8
"""Events that are sampled from one conjunction."""


def counterexample(one: Comparable, other: Comparable, subject: str = "example") -> Event | None:
    """Return an event that ``other`` matches and ``one`` does not, or None if none was found.

    The event has been evaluated and may be published; its subject is ``subject``.
    """
    mine = [(each, conjunction_node(each)) for each in form_of(one)]
    search = _Search(_tree(one), _tree(other), mine, subject)
    return search.run(form_of(other))


def _tree(of: Comparable) -> Node:
    return to_node(of) if isinstance(of, tuple) else tree_of(of)


class _Search:
    def __init__(self, avoided: Node, wanted: Node, mine: list[tuple[Conjunction, Node]], subject: str) -> None:
        self._avoided = avoided
        self._wanted = wanted
        self._mine = mine
        self._subject = subject
        self._steps = 0

    def run(self, form: NormalForm) -> Event | None:
        for each in form:
            for piece in strengthened(each):
                if (found := self._within(piece)) is not None:
                    return found
        return None

    def _within(self, conjunction: Conjunction) -> Event | None:
        """Return an event for which ``conjunction`` holds, by narrowing it depth first."""
        left = [conjunction]
        while left and self._steps < STEPS_MAX:
            self._steps += 1
            narrowed = left.pop()
            last: Event | None = None
            for attributes in attributes_of(narrowed, VARIATIONS):
                last = Event(self._subject, attributes)
                if self._is_found(last):
                    return last
            if last is not None:
                left += self._narrowed(narrowed, last)
        return None

    def _is_found(self, event: Event) -> bool:
        try:
            check_event(event)
            return evaluate(self._wanted, event) is True and evaluate(self._avoided, event) is not True
        except (EventError, ValueError):  # CESQL has no answer for a date that cannot be published
            return False

    def _narrowed(self, conjunction: Conjunction, event: Event) -> Iterator[Conjunction]:
        """Yield narrower variants of ``conjunction``: those where the first filter that holds for ``event`` fails; best
        last.
        """
        held = next((each for each, node in self._mine if _holds(node, event)), None)
        for asked in reversed(held.filters) if held is not None else ():
            contrary = _contrary(asked)
            narrowed = None if contrary is None else both(conjunction, Conjunction((contrary,)))
            if narrowed is not None:
                yield narrowed


def _holds(node: Node, event: Event) -> bool:
    """Return whether a filter holds for a sampled event, if it has an answer."""
    try:
        return evaluate(node, event) is True
    except ValueError:
        return False


def _contrary(asked: AttributeFilter) -> AttributeFilter | None:
    """Return a filter that holds for events with the attribute where ``asked`` fails; None if none is known.

    A missing attribute is never tried: events are made only with the attributes that must exist.
    """
    match asked.quantifier:
        case "absent":
            return AttributeFilter(asked.attribute, "exists")
        case "exists":
            return None
        case quantifier:
            try:
                beyond = clauses.complement(asked.terms)
            except TooLarge:
                return None
            return AttributeFilter(asked.attribute, "all" if quantifier == "any" else "any", beyond)
