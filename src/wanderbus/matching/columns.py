"""Columns of an index: each attribute has a column of doubles for each kind that filters ask for, and its words.

Strings become doubles too. Those that are compared only for equality are *words*, numbered in order of arrival. The
ends of ranges of strings have *marks* in the order of the strings, with room for what lies between: a new end gets a
mark between those of its neighbours. If no double is left there, the end is widened to the gap, and its matches are
evaluated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Final

from wanderbus.matching.layout import OR_NEXT
from wanderbus.matching.rows import BOOLEAN, DATE, NUMBER, ORDER, PRESENCE, WORD, Piece, Row

UNKNOWN: Final = -1.0
"""The number of every word that no filter names."""

KINDS: Final = (PRESENCE, BOOLEAN, NUMBER, DATE, WORD, ORDER)
_APART: Final = 2.0**20

SEEN_MAX: Final = 4_096
"""Strings whose marks are kept."""


class _Absent(float):
    """A missing attribute: a float, so that a column of numbers with gaps converts at once."""


ABSENT: Final = _Absent("nan")


class Words(dict[Any, float]):
    """Numbers of strings; the number of :data:`ABSENT` is NaN."""

    def __init__(self, known: Mapping[str, float] = MappingProxyType({})) -> None:
        super().__init__()
        self[ABSENT] = math.nan
        self.update(known)
        self._next = max(known.values(), default=UNKNOWN) + 1
        self._free = sorted(set(map(float, range(int(self._next)))) - set(known.values()))

    @property
    def size(self) -> int:
        """Return the number above all numbers in use."""
        return int(self._next)

    def all(self) -> list[str]:
        """Return all words."""
        return list(self)[1:]  # the first key is not a word

    def forget(self, word: str) -> None:
        """Free the number of a word, for another word."""
        self._free.append(self.pop(word))

    def __missing__(self, word: str) -> float:
        """Assign a number to a new word and return it."""
        if self._free:
            number = self._free.pop()
        else:
            number, self._next = self._next, self._next + 1
        self[word] = number
        return number


class Marks:
    """Doubles for the ends of ranges of strings, in the order of the strings."""

    def __init__(self, ends: Sequence[str] = (), values: Sequence[float] = ()) -> None:
        self.ends = list(ends)
        self.values = list(values)
        self._known = dict(zip(ends, values, strict=True))
        self._seen: dict[Any, float] = {}
        """Marks of strings that were looked up since the last end was added, because the same strings recur."""

    def of(self, text: Any) -> float:
        """Return the mark of a value: an end has its own, another string one between ends; NaN if no string."""
        mark = self._seen.get(text)
        if mark is None:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            mark = self._seen[text] = self._mark_of(text)
        return mark

    def _mark_of(self, text: Any) -> float:
        if type(text) is not str:
            return math.nan
        known = self._known.get(text)
        return self._gap(bisect_left(self.ends, text)) if known is None else known

    def of_all(self, texts: list[Any]) -> list[float]:
        """Return the marks of several values."""
        marks = list(map(self._seen.get, texts))
        return [self.of(text) if mark is None else mark for text, mark in zip(texts, marks, strict=True)]

    def add(self, text: str) -> tuple[float, bool]:
        """Return the mark of an end, and whether it belongs to that end alone, not to all strings near it."""
        known = self._known.get(text)
        if known is not None:
            return known, True
        at = bisect_left(self.ends, text)
        mark = self._gap(at)
        if not (self._between(at - 1) < mark < self._between(at)) or not self._has_room(at, mark):
            return mark, False
        self.ends.insert(at, text)
        self.values.insert(at, mark)
        self._known[text] = mark
        self._seen.clear()
        return mark, True

    def forget(self, marks: Set[float]) -> None:
        """Remove the ends with these marks."""
        kept = [(end, mark) for end, mark in zip(self.ends, self.values, strict=True) if mark not in marks]
        self.ends = [end for end, _ in kept]
        self.values = [mark for _, mark in kept]
        self._known = dict(kept)
        self._seen.clear()

    def _between(self, at: int) -> float:
        if at < 0:
            return -math.inf
        return self.values[at] if at < len(self.values) else math.inf

    def _has_room(self, at: int, mark: float) -> bool:
        """Return whether marks are left on either side of a new one."""
        low, high = self._between(at - 1), self._between(at)
        below = mark - _APART if at == 0 else (low + mark) / 2
        above = mark + _APART if at == len(self.ends) else (mark + high) / 2
        return low < below < mark < above < high

    def _gap(self, at: int) -> float:
        """Return the mark of the gap between end number ``at`` and the end before it."""
        marks = self.values
        if not marks:
            return 0.0
        if at == 0:
            return marks[0] - _APART
        if at == len(marks):
            return marks[-1] + _APART
        return (marks[at - 1] + marks[at]) / 2


class AttributeColumns:
    """The columns of one attribute, by kind; -1 where no filter asks for the kind."""

    __slots__ = ("columns", "marks", "name", "words")

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns = [-1] * len(KINDS)
        self.words = Words()
        self.marks = Marks()


class Columns:
    """All attributes that filters name; column 0 is the subject, a word."""

    def __init__(self, count: int = 1) -> None:
        """Create the columns; the first ``count`` numbers are in use already, the subject's among them."""
        self.subjects = Words()
        self.attributes: dict[str, AttributeColumns] = {}
        self.count = count
        self.settle()

    def settle(self) -> None:
        """Recount the columns of all attributes."""
        its = [each.columns for each in self.attributes.values()]
        self.presences = [columns[PRESENCE] for columns in its if columns[PRESENCE] >= 0]
        used = {column for columns in its for column in columns}
        self.count = max(self.count, 1 + max(used, default=0))  # segments still use columns that are free again
        self._free = sorted(set(range(1, self.count)) - used, reverse=True)

    def forget(self, is_named: Sequence[bool]) -> None:
        """Remove the columns that are not named, but none that is newer than this list."""
        for name, attribute in list(self.attributes.items()):
            for kind, column in enumerate(attribute.columns):
                if 0 <= column < len(is_named) and not is_named[column]:
                    attribute.columns[kind] = -1
            if max(attribute.columns) < 0:
                del self.attributes[name]
        self.settle()

    def encode(self, row: Row, columns: list[int], ends: list[float]) -> bool:
        """Append the entries of a row; return whether they are exact."""
        is_exact = True
        for clause in row:
            for piece in clause:
                name, kind, low, high = piece[:4]
                attribute = self.attributes.get(name) or self._new(name)
                column = attribute.columns[kind]
                if column < 0:
                    column = self._new_column(attribute, kind)
                column |= OR_NEXT
                if kind < WORD:
                    columns.append(column | piece[4] if kind else column)
                elif high is not None and kind == WORD:
                    columns.append(column)
                    low = high = attribute.words[low]
                else:
                    ranges, is_own = _marked(attribute.marks, piece) if kind == ORDER else _others(attribute.words, low)
                    is_exact &= is_own
                    columns += [column] * (len(ranges) // 2)
                    ends += ranges
                    continue
                ends.append(low)
                ends.append(high)
            columns[-1] &= ~OR_NEXT
        return is_exact

    def _new(self, name: str) -> AttributeColumns:
        attribute = self.attributes[name] = AttributeColumns(name)
        return attribute

    def _new_column(self, attribute: AttributeColumns, kind: int) -> int:
        if self._free:
            column = self._free.pop()
        else:
            column = self.count
            self.count += 1
        attribute.columns[kind] = column
        if kind == PRESENCE:
            self.presences.append(column)
        return column


def _others(words: Words, texts: Sequence[str]) -> tuple[list[float], bool]:
    """Return the ends of the ranges of the numbers of all words but these."""
    ends = [UNKNOWN]
    for number in sorted([words[each] for each in texts]):
        if ends[-1] == number:
            ends[-1] = number + 1
        else:
            ends += number - 1, number + 1
    return [*ends, math.inf], True


def _marked(marks: Marks, piece: Piece) -> tuple[list[float], bool]:
    """Return the ends of a range of strings, and whether they are exact."""
    _, _, low, high, low_open, high_open = piece
    begin, is_low = _mark(marks, low, low_open, -math.inf)
    end, is_high = _mark(marks, high, high_open, math.inf)
    return [begin, end], is_low and is_high


def _mark(marks: Marks, text: str | None, is_open: bool, infinite: float) -> tuple[float, bool]:
    if text is None:
        return infinite, True
    mark, is_own = marks.add(text)
    return (math.nextafter(mark, -infinite) if is_own and is_open else mark), is_own
