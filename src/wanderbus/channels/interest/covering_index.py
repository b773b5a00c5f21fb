"""Index of interests for covering: candidates that may cover an interest, or be covered by it (SPEC B-02).

A conjunction covers another only if that one has all its attributes and residuals, and an equality covers only the same
equality. So few conjunctions are compared where filters have equalities or different attributes; ranges of the same
attributes are compared one by one, up to a bound.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final, TypeVar

import msgspec

from wanderbus.filters import conjunctions
from wanderbus.filters.ast import Node
from wanderbus.filters.covering import covers, is_strengthened
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.regions import is_point
from wanderbus.work import UNCOUNTED, WorkBudget, WorkExceeded

SEARCH_WORK_MAX: Final = 50_000
"""Units of work of one search; a covering that it does not find costs a message."""

_CANDIDATE: Final = 10
"""Units of each interest, or set of attributes, that is looked at."""

Point = tuple[str, str, object]
"""An attribute, the kind of a value and the value that it must be equal to."""

Topic = str | Node
"""An attribute or a residual: a conjunction covers only those that have all of its topics."""

Topics = frozenset[Topic]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Hashable)


class Interest(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A conjunction of a filter for the events of one ``subject``; of every subject if that is None."""

    subject: str | None
    conjunction: Conjunction

    def covers(self, other: Interest, work: WorkBudget = UNCOUNTED) -> bool:
        """Return whether every event that ``other`` matches is proved to match this.

        Raises :class:`WorkExceeded` beyond the units of ``work``.
        """
        if self.subject is not None and self.subject != other.subject:
            return False
        if other.conjunction.residuals:
            return covers((self.conjunction,), (other.conjunction,), work)
        return conjunctions.covers(self.conjunction, other.conjunction, work)


class CoveringIndex:
    """A set of interests, searched by covering.

    A search stops after :data:`SEARCH_WORK_MAX` units, or those left of ``work``; what it has not found is unknown.
    """

    def __init__(self) -> None:
        self._subjects: dict[str | None, _SubjectIndex] = {}

    def add(self, interest: Interest) -> None:
        """Add an interest that is not in the set."""
        self._subjects.setdefault(interest.subject, _SubjectIndex()).add(interest)

    def remove(self, interest: Interest) -> None:
        """Remove an interest that is in the set."""
        index = self._subjects[interest.subject]
        index.remove(interest)
        if not index.topics:
            del self._subjects[interest.subject]

    def coverer(self, interest: Interest, work: WorkBudget = UNCOUNTED) -> Interest | None:
        """Return one interest of the set that covers ``interest``; None if none is found."""
        with _search(work) as own:
            for subject in dict.fromkeys((interest.subject, None)):
                index = self._subjects.get(subject)
                for candidate in index.perhaps_covering(interest, own) if index is not None else ():
                    if candidate.covers(interest, own):
                        return candidate
        return None

    def covered(self, interest: Interest, work: WorkBudget = UNCOUNTED) -> list[Interest]:
        """Return the interests of the set that ``interest`` covers, as far as they are found."""
        if interest.subject is None:
            searched = list(self._subjects.values())
        else:
            searched = [self._subjects[interest.subject]] if interest.subject in self._subjects else []
        found: list[Interest] = []
        with _search(work) as own:
            for each in chain.from_iterable(index.perhaps_covered(interest, own) for index in searched):
                if interest.covers(each, own):
                    found.append(each)
        return found


@contextmanager
def _search(work: WorkBudget) -> Iterator[WorkBudget]:
    """Bound a search, which ends at its bound, and add its work to ``work``."""
    own = WorkBudget(min(SEARCH_WORK_MAX, work.left))
    try:
        yield own
    except WorkExceeded:
        pass
    finally:
        work.done += min(own.done, SEARCH_WORK_MAX)


class _SubjectIndex:
    """The interests of one subject."""

    def __init__(self) -> None:
        self.topics: dict[Topics, dict[Point | None, dict[Interest, None]]] = {}
        """Interests by their topics and then by their first equality."""
        self._by_first: dict[Topic | None, dict[Topics, None]] = {}
        """Topics by their first one."""
        self._by_each: dict[Topic, dict[Topics, None]] = {}
        """Topics by every one of them."""
        self._points: dict[Point, dict[Interest, None]] = {}
        self._opaque: dict[Interest, Topics | None] = {}
        """Interests that others without their equalities may cover; with their topics, or None if without them too."""

    def add(self, interest: Interest) -> None:
        points, topics = _points(interest), _topics(interest)
        if topics not in self.topics:
            self.topics[topics] = {}
            self._by_first.setdefault(_first(interest), {})[topics] = None
            for topic in topics:
                self._by_each.setdefault(topic, {})[topics] = None
        self.topics[topics].setdefault(points[0] if points else None, {})[interest] = None
        for point in points:
            self._points.setdefault(point, {})[interest] = None
        if _is_opaque(interest):
            self._opaque[interest] = None if is_strengthened(interest.conjunction) else topics

    def remove(self, interest: Interest) -> None:
        points, topics = _points(interest), _topics(interest)
        _discard(self.topics[topics], points[0] if points else None, interest)
        if not self.topics[topics]:
            del self.topics[topics]
            _discard(self._by_first, _first(interest), topics)
            for topic in topics:
                _discard(self._by_each, topic, topics)
        for point in points:
            _discard(self._points, point, interest)
        self._opaque.pop(interest, None)

    def perhaps_covering(self, interest: Interest, work: WorkBudget) -> Iterator[Interest]:
        """Yield every interest that may cover ``interest``."""
        if is_strengthened(interest.conjunction):
            for buckets in self.topics.values():
                yield from chain.from_iterable(buckets.values())
            return
        topics, is_opaque = _topics(interest), _is_opaque(interest)
        keys = [None, *_points(interest)]
        for first in (None, *topics):
            for its in self._by_first.get(first, ()):
                work.spend(_CANDIDATE)
                if its <= topics:
                    buckets = self.topics[its]
                    for key in buckets if is_opaque else keys:
                        yield from buckets.get(key, ())

    def perhaps_covered(self, interest: Interest, work: WorkBudget) -> Iterator[Interest]:
        """Yield every interest that ``interest`` may cover."""
        topics, points = _topics(interest), _points(interest)
        if points:
            fewest: Mapping[Interest, None] = min((self._points.get(point, {}) for point in points), key=len)
            yield from self._not_opaque(fewest, work)
        else:
            some = min((self._by_each.get(topic, {}) for topic in topics), key=len, default=None)
            for its in self.topics if some is None else some:
                work.spend(_CANDIDATE)
                if topics <= its:
                    yield from self._not_opaque(chain.from_iterable(self.topics[its].values()), work)
        for each, its_topics in self._opaque.items():
            work.spend(_CANDIDATE)
            if its_topics is None or topics <= its_topics:
                yield each

    def _not_opaque(self, interests: Iterable[Interest], work: WorkBudget) -> Iterator[Interest]:
        for each in interests:
            work.spend(_CANDIDATE)
            if each not in self._opaque:
                yield each


def _discard(buckets: dict[Key, dict[Value, None]], key: Key, value: Value) -> None:
    bucket = buckets[key]
    del bucket[value]
    if not bucket:
        del buckets[key]


def _topics(interest: Interest) -> Topics:
    conjunction = interest.conjunction
    return frozenset([*[each.attribute for each in conjunction.filters], *conjunction.residuals])


def _first(interest: Interest) -> Topic | None:
    conjunction = interest.conjunction
    return conjunction.filters[0].attribute if conjunction.filters else next(iter(conjunction.residuals), None)


def _is_opaque(interest: Interest) -> bool:
    """Return whether more than its separate attribute filters may imply another conjunction."""
    filters = interest.conjunction.filters
    return len({each.attribute for each in filters}) < len(filters) or is_strengthened(interest.conjunction)


def _points(interest: Interest) -> list[Point]:
    """Return the equalities of ``interest``, in the order of the attributes."""
    points: list[Point] = []
    for each in interest.conjunction.filters:
        if each.quantifier == "any" and len(each.terms) == 1 and not each.terms[0].patterns:
            (term,) = each.terms
            if len(term.region) == 1 and is_point(term.region[0]):
                points.append((each.attribute, term.kind, term.region[0].low))
    return points
