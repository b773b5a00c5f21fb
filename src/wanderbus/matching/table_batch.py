"""Rows of a table as doubles: a batch for the kernels, made column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from wanderbus.matching.batch import Batch
from wanderbus.matching.columns import ABSENT, UNKNOWN, AttributeColumns, Columns
from wanderbus.matching.rows import MISSING, ORDER, PRESENCE, PRESENT, WORD
from wanderbus.matching.segment import Array
from wanderbus.matching.table import EventTable
from wanderbus.matching.table_columns import Doubles, Texts


class TableBatch(Batch):
    """Rows of a table as doubles."""

    def __init__(self, table: EventTable, columns: Columns) -> None:
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

    def _fill_texts(self, attribute: AttributeColumns, column: Texts) -> None:
        columns, words, marks = attribute.columns, attribute.words, attribute.marks
        if columns[WORD] >= 0:
            self.values[:, columns[WORD]] = _looked_up(column, lambda texts: map(words.get, texts, repeat(UNKNOWN)))
        if columns[ORDER] >= 0:
            self.values[:, columns[ORDER]] = _looked_up(column, lambda texts: marks.of_all(list(texts)))
        if columns[PRESENCE] >= 0:
            self.values[:, columns[PRESENCE]] = np.where(column.places < 0, MISSING, PRESENT)

    def _fill_doubles(self, attribute: AttributeColumns, column: Doubles) -> None:
        at, presence = attribute.columns[column.kind], attribute.columns[PRESENCE]
        if at >= 0:
            self.values[:, at] = column.values
            if column.is_missing is not None:
                self.values[column.is_missing, at] = math.nan
        if presence >= 0:
            self.values[:, presence] = (
                PRESENT if column.is_missing is None else np.where(column.is_missing, MISSING, PRESENT)
            )

    def _fill_more(self, rows: Sequence[Mapping[str, Any] | None], attributes: Mapping[str, AttributeColumns]) -> None:
        for at, row in enumerate(rows):
            if row:
                for name, value in row.items():
                    attribute = attributes.get(name)
                    if attribute is not None and value is not ABSENT:
                        self.values[at, [column for column in attribute.columns if column >= 0]] = math.nan
                        self._put(at, attribute, value)


def _looked_up(column: Texts, look_up: Callable[[Sequence[str]], Any]) -> Array:
    """Return a double for each row: that of its text, or NaN."""
    doubles = np.array([*look_up(column.distinct), math.nan], np.float64)
    found: Array = doubles[column.places]  # place -1 is the last: NaN
    return found
