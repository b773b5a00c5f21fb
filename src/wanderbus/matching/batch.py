"""Events as columns of doubles: one value for each column of :mod:`wanderbus.matching.columns`.

A value that a column cannot hold is NaN there, so it compares with nothing. Items of lists are stored separately. A
number that is not a double is stored like an item, as the two doubles around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np

from wanderbus.event import Event
from wanderbus.filters.evaluate import kind_of
from wanderbus.matching.columns import ABSENT, UNKNOWN, AttributeColumns, Columns
from wanderbus.matching.layout import LISTS
from wanderbus.matching.rows import (
    BOOLEAN,
    DATE,
    EMPTY,
    MISSING,
    NUMBER,
    ORDER,
    PRESENCE,
    PRESENT,
    WORD,
    doubles_around,
    microseconds,
)
from wanderbus.matching.segment import Array

COLUMNWISE_MIN: Final = 16
"""Fewest events for which converting whole columns is worth its fixed cost."""

WIDE_MIN: Final = 512
"""Fewest columns for which only the columns that an event has are written, one by one."""

EVENTS_MAX: Final = 1_024
VALUES_MAX: Final = 2**20
"""Largest number of values in a batch; with many columns, a batch has fewer events."""

Item = tuple[int, float, float]

_EXACT_MAX: Final = 2.0**53
_STRINGS: Final = {str, type(ABSENT)}
_NUMBERS: Final = {int, float, type(ABSENT)}


class Batch:
    """Some events as doubles."""

    def __init__(self, events: Sequence[Event], columns: Columns) -> None:
        self._allocate(len(events), columns)
        known = columns.subjects.get
        self.values[:, 0] = [known(event.subject, UNKNOWN) for event in events]
        attributes = [event.attributes for event in events]
        widest = max(map(len, attributes))
        if len(events) >= COLUMNWISE_MIN and len(columns.attributes) <= 4 * (16 + widest):
            for name, attribute in columns.attributes.items():
                self._fill(attribute, [each.get(name, ABSENT) for each in attributes])
        else:
            self._fill_one_by_one(attributes, columns.attributes)
        self.item_starts, self.item_columns, self.item_values = self._flat_items()

    def _allocate(self, events: int, columns: Columns) -> None:
        """Make the arrays of so many events, all without attributes."""
        self.values: Array = np.full((events, columns.count), math.nan)
        self.flags: Array = np.zeros(events, np.uint8)
        self._items: dict[int, list[Item]] = {}
        """Items by event, only for events that have several values in some column."""
        if columns.presences:
            self.values[:, columns.presences] = MISSING

    def part(self, first: int, stop: int) -> Batch:
        """Return some of the events; the values are shared."""
        if first == 0 and stop >= len(self.flags):
            return self
        part = Batch.__new__(Batch)
        part.values, part.flags = self.values[first:stop], self.flags[first:stop]
        part._items = {at - first: items for at, items in self._items.items() if first <= at < stop}
        part.item_starts, part.item_columns, part.item_values = part._flat_items()
        return part

    @property
    def with_lists(self) -> list[int]:
        """Return the events that have several values in some column."""
        return sorted(self._items)

    @property
    def tables(self) -> tuple[Array, ...]:
        """Return the arrays that the kernels read."""
        return self.values, self.flags, self.item_starts, self.item_columns, self.item_values

    def _fill_one_by_one(self, events: Sequence[Mapping[str, Any]], attributes: Mapping[str, AttributeColumns]) -> None:
        known = attributes.get
        is_wide = self.values.shape[1] > WIDE_MIN
        for at, named in enumerate(events):
            row: Any = {} if is_wide else self.values[at].tolist()
            others = []
            for name, value in named.items():
                attribute = known(name)
                if attribute is None:
                    continue
                presence, _, number, _, word, order = attribute.columns
                type_ = type(value)
                if type_ is str:
                    if word >= 0:
                        row[word] = attribute.words.get(value, UNKNOWN)
                    if order >= 0:
                        row[order] = attribute.marks.of(value)
                elif type_ is float or (type_ is int and -_EXACT_MAX <= value <= _EXACT_MAX):
                    if number >= 0:
                        row[number] = value
                else:
                    others.append((attribute, value))
                    continue
                if presence >= 0:
                    row[presence] = PRESENT
            if not is_wide:
                self.values[at] = row
            elif row:
                self.values[at, list(row)] = list(row.values())
            for attribute, value in others:
                self._put(at, attribute, value)

    def _fill(self, attribute: AttributeColumns, values: list[Any]) -> None:
        """Convert a whole column."""
        types = set(map(type, values))
        columns = attribute.columns
        if types <= _STRINGS:
            if columns[WORD] >= 0:
                self.values[:, columns[WORD]] = list(map(attribute.words.get, values, repeat(UNKNOWN)))
            if columns[ORDER] >= 0:
                self.values[:, columns[ORDER]] = attribute.marks.of_all(values)
        elif not (types <= _NUMBERS and self._fill_numbers(columns[NUMBER], values, int in types)):
            for at, value in enumerate(values):
                if value is not ABSENT:
                    self._put(at, attribute, value)
            return
        if columns[PRESENCE] >= 0:
            self.values[:, columns[PRESENCE]] = [MISSING if value is ABSENT else PRESENT for value in values]

    def _fill_numbers(self, column: int, values: list[Any], some_are_integers: bool) -> bool:
        """Convert a column of numbers, unless some value may not be a double."""
        if column < 0:
            return True
        try:
            doubles = np.array(values, np.float64)
        except OverflowError:
            return False
        if some_are_integers and bool((np.abs(doubles) >= _EXACT_MAX).any()):
            return False
        self.values[:, column] = doubles
        return True

    def _put(self, at: int, attribute: AttributeColumns, value: Any) -> None:
        presence = attribute.columns[PRESENCE]
        if presence >= 0:
            self.values[at, presence] = EMPTY if value == [] else PRESENT
        if isinstance(value, list):
            self._put_items(at, [item for each in value for item in _doubles(attribute, each)])
            return
        for column, low, high in _doubles(attribute, value):
            if low == high:
                self.values[at, column] = low
            else:
                self._put_items(at, [(column, low, high)])

    def _put_items(self, at: int, items: list[Item]) -> None:
        self.flags[at] |= LISTS
        self._items.setdefault(at, []).extend(items)

    def _flat_items(self) -> tuple[Array, Array, Array]:
        """Return where the items of each event begin, their columns and their doubles; sorted within each event."""
        starts = np.zeros(len(self.flags) + 1, np.int64)
        flat = [item for at in self.with_lists for item in sorted(self._items[at])]
        for at, items in self._items.items():
            starts[at + 1] = len(items)
        np.cumsum(starts, out=starts)
        columns = np.array([item[0] for item in flat], np.int32)
        return starts, columns, np.array([item[1:] for item in flat], np.float64).reshape(-1, 2)


def _doubles(attribute: AttributeColumns, value: Any) -> list[Item]:
    """Return the columns of a value and the doubles around it: twice the same one if the value is a double."""
    columns = attribute.columns
    kind = "string" if type(value) is str else kind_of(value)
    if kind == "string":
        word = attribute.words.get(value, UNKNOWN)
        mark = attribute.marks.of(value)
        found = [(columns[WORD], word, word), (columns[ORDER], mark, mark)]
    elif kind == "number":
        found = [(columns[NUMBER], *doubles_around(value))]
    elif kind == "date":
        found = [(columns[DATE], *doubles_around(microseconds(value)))]
    elif kind == "boolean":
        found = [(columns[BOOLEAN], float(value), float(value))]
    else:
        return []
    return [item for item in found if item[0] >= 0]
