"""Index of interests for covering: candidates that may cover an interest, or be covered by it (SPEC B-02).

A conjunction covers another only if that one names all its attributes, and an equality covers only the same equality.
So few conjunctions are compared where filters have equalities or different attributes; ranges of the same attributes
are compared one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import TypeVar

import msgspec

from wanderbus.filters import conjunctions
from wanderbus.filters.covering import covers
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.regions import is_point

Point = tuple[str, str, object]
"""An attribute, the kind of a value and the value that it must be equal to."""

Key = TypeVar("Key", bound=Hashable)


class Interest(msgspec.Struct, frozen=True, array_like=True):
    """A conjunction of a filter for the events of one ``subject``; of every subject if that is None."""

    subject: str | None
    conjunction: Conjunction

    def covers(self, other: Interest) -> bool:
        """Return whether every event that ``other`` matches is proved to match this."""
        if self.subject is not None and self.subject != other.subject:
            return False
        if other.conjunction.residuals:
            return covers((self.conjunction,), (other.conjunction,))
        return conjunctions.covers(self.conjunction, other.conjunction)


class CoveringIndex:
    """A set of interests, searched by covering."""

    def __init__(self) -> None:
        self._subjects: dict[str | None, _SubjectIndex] = {}

    def add(self, interest: Interest) -> None:
        """Add an interest that is not in the set."""
        self._subjects.setdefault(interest.subject, _SubjectIndex()).add(interest)

    def remove(self, interest: Interest) -> None:
        """Remove an interest that is in the set."""
        index = self._subjects[interest.subject]
        index.remove(interest)
        if not index.names:
            del self._subjects[interest.subject]

    def coverer(self, interest: Interest) -> Interest | None:
        """Return one interest of the set that covers ``interest``; None if there is none."""
        for subject in dict.fromkeys((interest.subject, None)):
            index = self._subjects.get(subject)
            for candidate in index.perhaps_covering(interest) if index is not None else ():
                if candidate.covers(interest):
                    return candidate
        return None

    def covered(self, interest: Interest) -> list[Interest]:
        """Return the interests of the set that ``interest`` covers."""
        if interest.subject is None:
            searched = list(self._subjects.values())
        else:
            searched = [self._subjects[interest.subject]] if interest.subject in self._subjects else []
        candidates = chain.from_iterable(index.perhaps_covered(interest) for index in searched)
        return [each for each in candidates if interest.covers(each)]


class _SubjectIndex:
    """The interests of one subject."""

    def __init__(self) -> None:
        self.names: dict[frozenset[str], dict[Point | None, dict[Interest, None]]] = {}
        """Interests by their attributes and then by their first equality."""
        self._points: dict[Point, dict[Interest, None]] = {}
        self._opaque: dict[Interest, None] = {}

    def add(self, interest: Interest) -> None:
        points = _points(interest)
        key = points[0] if points else None
        self.names.setdefault(_names(interest), {}).setdefault(key, {})[interest] = None
        for point in points:
            self._points.setdefault(point, {})[interest] = None
        if _is_opaque(interest):
            self._opaque[interest] = None

    def remove(self, interest: Interest) -> None:
        points = _points(interest)
        names = _names(interest)
        _discard(self.names[names], points[0] if points else None, interest)
        if not self.names[names]:
            del self.names[names]
        for point in points:
            _discard(self._points, point, interest)
        self._opaque.pop(interest, None)

    def perhaps_covering(self, interest: Interest) -> Iterator[Interest]:
        """Yield every interest that may cover ``interest``."""
        names, opaque = _names(interest), _is_opaque(interest)
        keys = [None, *_points(interest)]
        for its, buckets in self.names.items():
            if opaque:
                yield from chain.from_iterable(buckets.values())
            elif its <= names:
                yield from chain.from_iterable(buckets[key] for key in keys if key in buckets)

    def perhaps_covered(self, interest: Interest) -> Iterator[Interest]:
        """Yield every interest that ``interest`` may cover."""
        yield from self._opaque
        names, points = _names(interest), _points(interest)
        if points:
            fewest = min((self._points.get(point, {}) for point in points), key=len)
            yield from (each for each in fewest if each not in self._opaque)
            return
        for its, buckets in self.names.items():
            if names <= its:
                yield from (each for each in chain.from_iterable(buckets.values()) if each not in self._opaque)


def _discard(buckets: dict[Key, dict[Interest, None]], key: Key, interest: Interest) -> None:
    bucket = buckets[key]
    del bucket[interest]
    if not bucket:
        del buckets[key]


def _names(interest: Interest) -> frozenset[str]:
    return frozenset([each.attribute for each in interest.conjunction.filters])


def _is_opaque(interest: Interest) -> bool:
    """Return whether more than its separate attribute filters may imply another conjunction."""
    filters = interest.conjunction.filters
    return bool(interest.conjunction.residuals) or len({each.attribute for each in filters}) < len(filters)


def _points(interest: Interest) -> list[Point]:
    """Return the equalities of ``interest``, in the order of the attributes."""
    points: list[Point] = []
    for each in interest.conjunction.filters:
        if each.quantifier == "any" and len(each.terms) == 1 and not each.terms[0].patterns:
            (term,) = each.terms
            if len(term.region) == 1 and is_point(term.region[0]):
                points.append((each.attribute, term.kind, term.region[0].low))
    return points
