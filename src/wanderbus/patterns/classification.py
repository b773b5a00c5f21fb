"""Classification of events by the leaves, the key and the time of a pattern, one by one or as a table (SPEC T-07)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wanderbus.filters.compiled import Test, compile_node
from wanderbus.filters.evaluate import comparable, kind_of
from wanderbus.literals import type_name
from wanderbus.matching import Index
from wanderbus.patterns.automaton import Seen
from wanderbus.patterns.evaluation import attributes_of
from wanderbus.patterns.occurrence import AcceptedEvent
from wanderbus.patterns.tree import Declaration
from wanderbus.subscription import EVERY_SUBJECT

if TYPE_CHECKING:
    from numpy import ndarray

    from wanderbus.matching.table import EventTable

_MICROSECOND: Final = timedelta(microseconds=1)
_encode_key: Final[Callable[[object], bytes]] = msgspec.json.Encoder().encode


def attributes_used(declaration: Declaration) -> tuple[str, ...]:
    """Return the attributes that conditions and detections use, in order of their names."""
    expressions = [step.where for step in declaration.steps]
    expressions += [expression for _, expression in declaration.emitted]
    return tuple(sorted(set().union(*map(attributes_of, expressions))))


class Classifier:
    """The leaves of a pattern as functions, and what it needs of an event."""

    def __init__(self, declaration: Declaration, children: Mapping[str, tuple[str, ...]] = {}) -> None:
        """Compile the leaves; one of a subject also takes its ``children``, all subjects below it."""
        self._children = children
        self.keys = declaration.keys
        self.attributes = attributes_used(declaration)
        self._source = declaration.time_source
        self._time_attribute = declaration.time_attribute
        self._leaves = [step.leaf for step in declaration.steps]
        self._tests: dict[str, list[tuple[int, Test]]] = {}
        self._any: list[tuple[int, Test]] = []
        self._table_indexes: tuple[Index, Index] | None = None
        for place, leaf in enumerate(self._leaves):
            test = (1 << place, compile_node(leaf.filter.root))
            if leaf.subject == EVERY_SUBJECT:
                self._any.append(test)
            else:
                for subject in self._subjects(leaf.subject):
                    self._tests.setdefault(subject, []).append(test)

    def leaves(self, subject: str, attributes: Mapping[str, Any]) -> int:
        """Return a bit for each step whose leaf an event matches."""
        found = 0
        for bit, test in self._tests.get(subject, ()):
            if test(attributes) is True:
                found |= bit
        for bit, test in self._any:
            if test(attributes) is True:
                found |= bit
        return found

    def table_leaves(self, table: EventTable) -> ndarray[Any, Any]:
        """Return the same of every row of a table, as 64-bit integers; needs numpy."""
        import numpy as np

        if self._table_indexes is None:
            self._table_indexes = self._make_indexes()
        found = np.zeros(len(table), np.int64)
        named, any_subject = self._table_indexes
        for index, rows in ((named, table), (any_subject, table.of_subject(EVERY_SUBJECT))):
            if len(index) and len(table):
                slots, ends = index.match_table(rows)
                bits = np.array([0 if id is None else 1 << _place(id) for id in index.ids()], np.int64)
                row_of = np.repeat(np.arange(len(table)), np.diff(ends, prepend=0))
                np.bitwise_or.at(found, row_of, bits[slots])
        return found

    def key(self, attributes: Mapping[str, Any]) -> str | None:
        """Return the key of an event as text: equal if the values are; None if a value is missing or a list."""
        values = []
        for name in self.keys:
            value = attributes.get(name)
            if type(value) is not str:
                value = _key_part(value)
                if value is None:
                    return None
            values.append(value)
        return _encode_key(values).decode()

    def time_us(self, attributes: Mapping[str, Any], received_us: int, published_us: int | None) -> int | None:
        """Return the time of an event by the pattern's choice; None if it has none."""
        if self._source == "receipt":
            return received_us
        if self._source == "publication":
            return published_us
        assert self._time_attribute is not None
        value = attributes.get(self._time_attribute)
        if kind_of(value) != "date":
            return None
        since: timedelta = comparable(value, "date")
        return since // _MICROSECOND

    def seen(
        self,
        leaves: int,
        attributes: Mapping[str, Any],
        offset: int,
        id: str,
        received_us: int,
        published_us: int | None,
    ) -> Seen | None:
        """Return an event as the automaton sees it; None if it has no key or no time, or matches no leaf."""
        if not leaves:
            return None
        time_us = self.time_us(attributes, received_us, published_us)
        key = self.key(attributes)
        if time_us is None or key is None:
            return None
        values = tuple([_stored(attributes.get(name)) for name in self.attributes])
        return Seen(key, time_us, offset, id, leaves, values)

    def classify(self, occurrences: Iterable[AcceptedEvent]) -> list[Seen]:
        """Return the events that take part."""
        found = []
        for each in occurrences:
            event = each.event
            leaves = self.leaves(event.subject, event.attributes)
            if leaves:
                seen = self.seen(leaves, event.attributes, each.offset, each.id, each.received_us, event.published_us)
                if seen is not None:
                    found.append(seen)
        return found

    def _make_indexes(self) -> tuple[Index, Index]:
        """Return an index of the leaves with a subject, and one of those of every subject."""
        from wanderbus.matching.index import best_kernel

        named, any_subject = Index(best_kernel()), Index(best_kernel())
        for place, leaf in enumerate(self._leaves):
            index = any_subject if leaf.subject == EVERY_SUBJECT else named
            for subject in self._subjects(leaf.subject):
                index.add(f"{place} {subject}", subject, leaf.filter)
        return named, any_subject

    def _subjects(self, subject: str) -> tuple[str, ...]:
        return (subject, *self._children.get(subject, ()))


def _place(id: str) -> int:
    """Return the place of the leaf that has an id in an index."""
    return int(id.partition(" ")[0])


def _key_part(value: object) -> object:
    """Return a value as a part of a key, None if it is none: numbers by value, dates by instant."""
    match kind_of(value):
        case "boolean" | "string":
            return value
        case "number":
            assert isinstance(value, int | float)
            if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
                return int(value)
            return value if abs(value) != float("inf") else {type_name(value): str(value)}
        case "date":
            return {"Date": comparable(value, "date") // _MICROSECOND}
        case _:
            return None


def _stored(value: Any) -> Any:
    """Return a value as the state keeps it: dates in UTC, which is all that is left of them in stored form."""
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC)
        except OverflowError:
            return None
    return [_stored(item) for item in value] if isinstance(value, list) else value
