"""Events as a table, whose columns become those of an index without an object for each event.

A column has all values of one attribute. Those of one type are flat arrays; any others are a list of Python values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from wanderbus.matching.batch import Batch
from wanderbus.matching.columns import ABSENT, UNKNOWN, Attribute, Columns
from wanderbus.matching.rows import MISSING, ORDER, PRESENCE, PRESENT, WORD
from wanderbus.matching.segment import Array

EXACT_MAX: Final = 2**53
"""Largest whole number up to which every one is a double; larger ones are not in :class:`Doubles`."""


class Texts(NamedTuple):
    """Strings: the distinct ones, and the place of each row's among them, or -1 if the row has none."""

    places: Array
    distinct: Sequence[str]


class Doubles(NamedTuple):
    """Values of one kind, each exactly a double: booleans, numbers, or dates in microseconds since the Unix epoch."""

    kind: int
    """One of the kinds of :mod:`wanderbus.matching.rows`."""
    values: Array
    is_missing: Array | None
    """For each row, whether it has no value; None if all have one."""


Column = Texts | Doubles | list[Any]
"""Values of an attribute; a list has :data:`wanderbus.matching.columns.ABSENT` where a row has none."""


class Table:
    """Events by row: their subjects, their attributes by column, and for any row further attributes.

    ``attributes_of`` returns all attributes of a row, for filters that have to be evaluated.
    """

    def __init__(
        self,
        subjects: Texts,
        columns: Mapping[str, Column],
        attributes_of: Callable[[int], Mapping[str, Any]],
        more: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        self.subjects = subjects
        self.columns = columns
        self.more = more
        """Attributes of each row that are in no column."""
        self._attributes_of = attributes_of

    def __len__(self) -> int:
        return len(self.subjects.places)

    def attributes(self, row: int) -> Mapping[str, Any]:
        """Return all attributes of a row."""
        return self._attributes_of(row)

    def of_subject(self, subject: str) -> Table:
        """Return the same rows, all with this subject."""
        places = np.zeros(len(self), self.subjects.places.dtype)
        return Table(Texts(places, [subject]), self.columns, self._attributes_of, self.more)

    def part(self, first: int, stop: int) -> Table:
        """Return some rows."""
        if first == 0 and stop >= len(self):
            return self
        rows = slice(first, stop)
        return Table(
            Texts(self.subjects.places[rows], self.subjects.distinct),
            {name: _part(column, rows) for name, column in self.columns.items()},
            lambda row: self._attributes_of(first + row),
            None if self.more is None else self.more[rows],
        )


def _part(column: Column, rows: slice) -> Column:
    match column:
        case Texts(places, distinct):
            return Texts(places[rows], distinct)
        case Doubles(kind, values, is_missing):
            return Doubles(kind, values[rows], None if is_missing is None else is_missing[rows])
        case _:
            return column[rows]


class TableBatch(Batch):
    """Rows of a table as doubles."""

    def __init__(self, table: Table, columns: Columns) -> None:
        self._allocate(len(table), columns)
        self.values[:, 0] = _looked_up(table.subjects, lambda texts: map(columns.subjects.get, texts, repeat(UNKNOWN)))
        for name, column in table.columns.items():
            attribute = columns.attributes.get(name)
            match column:
                case _ if attribute is None:
                    continue
                case Texts():
                    self._fill_texts(attribute, column)
                case Doubles():
                    self._fill_doubles(attribute, column)
                case _:
                    self._fill(attribute, column)
        if table.more is not None:
            self._fill_more(table.more, columns.attributes)
        self.item_starts, self.item_columns, self.item_values = self._flat_items()

    def _fill_texts(self, attribute: Attribute, column: Texts) -> None:
        columns, words, marks = attribute.columns, attribute.words, attribute.marks
        if columns[WORD] >= 0:
            self.values[:, columns[WORD]] = _looked_up(column, lambda texts: map(words.get, texts, repeat(UNKNOWN)))
        if columns[ORDER] >= 0:
            self.values[:, columns[ORDER]] = _looked_up(column, lambda texts: marks.of_all(list(texts)))
        if columns[PRESENCE] >= 0:
            self.values[:, columns[PRESENCE]] = np.where(column.places < 0, MISSING, PRESENT)

    def _fill_doubles(self, attribute: Attribute, column: Doubles) -> None:
        at, presence = attribute.columns[column.kind], attribute.columns[PRESENCE]
        if at >= 0:
            self.values[:, at] = column.values
            if column.is_missing is not None:
                self.values[column.is_missing, at] = math.nan
        if presence >= 0:
            self.values[:, presence] = (
                PRESENT if column.is_missing is None else np.where(column.is_missing, MISSING, PRESENT)
            )

    def _fill_more(self, rows: Sequence[Mapping[str, Any] | None], attributes: Mapping[str, Attribute]) -> None:
        for at, row in enumerate(rows):
            if row:
                for name, value in row.items():
                    attribute = attributes.get(name)
                    if attribute is not None and value is not ABSENT:
                        self._put(at, attribute, value)


def _looked_up(column: Texts, look_up: Callable[[Sequence[str]], Any]) -> Array:
    """Return a double for each row: that of its text, or NaN."""
    doubles = np.array([*look_up(column.distinct), math.nan], np.float64)
    found: Array = doubles[column.places]  # place -1 is the last: NaN
    return found
