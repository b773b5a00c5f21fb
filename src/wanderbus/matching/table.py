"""Events as a table, whose columns become those of an index without an object for each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wanderbus.filters.compiled import Test
from wanderbus.matching.table_columns import Column, Doubles, Texts

RowJudge = Callable[[str, Test, int, Mapping[str, Any]], bool]
"""Evaluation of a filter, by its id, its function, a row of a table and that row's attributes: returns whether the row
counts as a match. It is to the rows of a table what :data:`wanderbus.matching.scan.Judge` is to events.
"""


class EventTable:
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
        """Attributes of each row that are in no column; if one is in a column too, its value here counts."""
        self._attributes_of = attributes_of

    def __len__(self) -> int:
        return len(self.subjects.places)

    def attributes(self, row: int) -> Mapping[str, Any]:
        """Return all attributes of a row."""
        return self._attributes_of(row)

    def of_subject(self, subject: str) -> EventTable:
        """Return the same rows, all with this subject."""
        places = np.zeros(len(self), self.subjects.places.dtype)
        return EventTable(Texts(places, [subject]), self.columns, self._attributes_of, self.more)

    def part(self, first: int, stop: int) -> EventTable:
        """Return some rows."""
        if first == 0 and stop >= len(self):
            return self
        rows = slice(first, stop)
        return EventTable(
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
