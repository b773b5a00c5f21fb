"""Garbage collection of names that no row uses any more: words, range ends, whole attributes (DESIGN 7.4).

It works in short steps. First it marks the names that rows use, and those of rows that are written meanwhile; then it
removes all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from wanderbus.matching.columns import AttributeColumns, Columns, Words
from wanderbus.matching.incremental import FIXED_US, Stepped, Steps
from wanderbus.matching.layout import PLACE, SUBJECT, USED
from wanderbus.matching.rows import ORDER, WORD
from wanderbus.matching.segment import Array, RowSegment

_ENTRIES_A_STEP: Final = 32_768
_NAMES_A_STEP: Final = 2_000
_A_NAME_US: Final = 5
"""Least memory of an attribute."""


class Sweep(Stepped):
    """One sweep over all names of an index; no row may wait to be written while it runs."""

    def __init__(self, columns: Columns, segments: Iterable[RowSegment]) -> None:
        self._columns = columns
        self._segments = list(segments)
        self._subjects = np.zeros(columns.subjects.size, np.bool_)
        self._is_named = np.zeros(columns.count, np.bool_)
        self._used: dict[int, Array] = {}
        self._marks: dict[int, Array] = {}
        self._attribute_of: dict[int, tuple[AttributeColumns, int]] = {}
        for attribute in columns.attributes.values():
            for kind, size in ((WORD, attribute.words.size), (ORDER, len(attribute.marks.ends))):
                if attribute.columns[kind] >= 0:
                    self._used[attribute.columns[kind]] = np.zeros(size, np.bool_)
                    self._attribute_of[attribute.columns[kind]] = attribute, kind
                    self._marks[attribute.columns[kind]] = np.array(attribute.marks.values)
        super().__init__()

    def mark(self, subjects: Array, columns: Array, ends: Array) -> None:
        """Mark what these rows name as used."""
        _set(self._subjects, subjects)
        columns = columns & PLACE
        named = np.unique(columns)
        _set(self._is_named, named)
        for column in named.tolist():
            if column in self._used:
                its = ends[columns == column].ravel()
                if self._attribute_of[column][1] == WORD:  # an end beside a word stands for all other words
                    its = its[np.isfinite(its)].astype(np.int64)
                    at = np.concatenate([its - 1, its, its + 1])
                else:
                    at = np.searchsorted(self._marks[column], its)
                    at = np.concatenate([at - 1, at])
                _set(self._used[column], at)

    def _work(self) -> Steps:
        for segment in self._segments:
            self.mark(segment.rows[segment.live_rows(), SUBJECT], segment.entry_columns[:0], segment.ends[:0])
            yield FIXED_US + len(segment.rows) // 50
            for first in range(0, int(segment.sizes[USED]), _ENTRIES_A_STEP):
                last = min(first + _ENTRIES_A_STEP, int(segment.sizes[USED]))
                self.mark(segment.rows[:0, SUBJECT], segment.entry_columns[first:last], segment.ends[first:last])
                yield 1_000
        yield from _forget_words(self._columns.subjects, self._subjects)
        for column, (attribute, kind) in self._attribute_of.items():
            if kind == WORD:
                yield from _forget_words(attribute.words, self._used[column])
            else:
                attribute.marks.forget(set(self._marks[column][~self._used[column]].tolist()))
                yield _A_NAME_US + len(self._used[column]) // 4
        self._columns.forget(self._is_named.tolist())
        yield FIXED_US


def _set(used: Array, at: Array) -> None:
    """Set the entries that are within ``used``; later ones are new and stay anyway."""
    used[at[(at >= 0) & (at < len(used))]] = True


def _forget_words(words: Words, used: Array) -> Steps:
    known = words.all()
    yield _A_NAME_US + len(known) // 50
    for first in range(0, len(known), _NAMES_A_STEP):
        for word in known[first : first + _NAMES_A_STEP]:
            number = int(words[word])
            if number < len(used) and not used[number]:
                words.forget(word)
        yield len(known[first : first + _NAMES_A_STEP]) // 3
