"""Merging of the attribute filters of one attribute (SPEC B-04; DESIGN 7.2).

Attribute filters of one structure are joined by disjunction. They are laid out as *spans* on a line of cells, on which
one covers another if it has all cells of the other. The cells of a kind are the ends that the filters name, and the
gaps between neighbouring ends: every interval of the filters is a run of whole cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wanderbus import limits
from wanderbus.filters import clauses
from wanderbus.filters.clauses import KINDS, Terms
from wanderbus.filters.normal import AttributeFilter, Interval, Term
from wanderbus.work import UNCOUNTED, WorkBudget

_ROOM: Final = limits.CLAUSE_TERMS_MAX - len(KINDS)
"""Largest number of terms with patterns, which multiply; terms without patterns are at most one for each kind."""


class Spans(NamedTuple):
    """The cells of one attribute filter."""

    runs: list[tuple[int, int]]
    """For each interval of a term without patterns, its first cell and the cell after its last."""

    first: int
    past: int
    """The first cell of all, and the cell after the last; equal if there is none. With patterns, those of the line."""

    has_patterns: bool

    @property
    def mask(self) -> int:
        """Return the cells as the bits of a number."""
        bits = 0
        for low, past in self.runs:
            bits |= (1 << past) - (1 << low)
        return bits


def joined(filters: Iterable[AttributeFilter], work: WorkBudget = UNCOUNTED) -> list[AttributeFilter]:
    """Return the disjunction of ``filters``, which have one structure, without terms that the rest of it covers.

    The result is one attribute filter unless that would exceed :data:`wanderbus.limits.CLAUSE_TERMS_MAX`. For ``any``
    it holds exactly where one of ``filters`` does. For ``all`` it also holds for lists whose items fit different
    filters. Raises :class:`WorkExceeded` beyond the units of ``work``.
    """
    distinct = list(dict.fromkeys(filters))
    if len(distinct) < 2:
        return distinct
    parts: list[list[Terms]] = [[]]
    room = _ROOM
    for each in distinct:
        size = sum(1 + len(term.patterns) for term in each.terms if term.patterns)
        if size > room:
            parts.append([])
            room = _ROOM
        parts[-1].append(each.terms)
        room -= size
    first = distinct[0]
    return [AttributeFilter(first.attribute, first.quantifier, clauses.union(part, work)) for part in parts]


def widened(filters: Iterable[AttributeFilter], work: WorkBudget = UNCOUNTED) -> AttributeFilter:
    """Return one attribute filter that holds wherever one of ``filters``, which have one structure, does.

    It is the disjunction, or if that has too many patterns, the disjunction without them.
    """
    first, *others = joined(filters, work)
    if not others:
        return first
    bare = [(Term(term.kind, term.region),) for part in (first, *others) for term in part.terms]
    return AttributeFilter(first.attribute, first.quantifier, clauses.union(bare, work))


def order(each: AttributeFilter) -> tuple[Any, ...]:
    """Return a sort key for attribute filters of one structure, the same in every process."""
    return tuple([_term_order(term) for term in each.terms])


def _term_order(term: Term) -> tuple[Any, ...]:
    region = tuple(
        [
            (low is not None, low, low_open, high is None, high, high_open)
            for low, high, low_open, high_open in map(_ends, term.region)
        ]
    )
    return term.kind, term.patterns, region


# Cells ---------------------------------------------------------------------------------------------------------------


def laid_out(filters: Sequence[AttributeFilter]) -> tuple[list[Spans], int]:
    """Return the spans of each of ``filters`` on the line of cells of them all, and how many cells it has."""
    places, cells = _places(filters)
    spans: list[Spans] = []
    for each in filters:
        runs: list[tuple[int, int]] = []
        first, last, has_patterns = cells, 0, False
        for term in each.terms:
            if term.patterns:
                has_patterns = True
                continue
            base, past, index = places[term.kind]
            for low, high, low_open, high_open in map(_ends, term.region):
                begin = base if low is None else index[low] + low_open
                end = past if high is None else index[high] + 1 - high_open
                runs.append((begin, end))
                if begin < first:
                    first = begin
                if end > last:
                    last = end
        spans.append(Spans(runs, 0, cells, True) if has_patterns else Spans(runs, min(first, last), last, False))
    return spans, cells


def _places(filters: Sequence[AttributeFilter]) -> tuple[dict[str, tuple[int, int, Mapping[Any, int]]], int]:
    """Return for each kind its first cell, the cell after its last, and the cells of the ends; and the total number."""
    ends: dict[str, set[Any]] = {}
    for each in filters:
        for term in each.terms:
            named = ends.setdefault(term.kind, set())
            for interval in term.region:
                named.add(interval.low)
                named.add(interval.high)
    places: dict[str, tuple[int, int, Mapping[Any, int]]] = {}
    base = 0
    for kind in sorted(ends):
        named = ends[kind]
        named.discard(None)
        # There is a cell between two ends, one before the first end and one after the last.
        index = {end: base + 1 + 2 * number for number, end in enumerate(sorted(named))}
        past = base + 2 * len(index) + 1
        places[kind] = base, past, index
        base = past
    return places, base


def _ends(interval: Interval) -> tuple[Any, Any, bool, bool]:
    return interval.low, interval.high, interval.low_open, interval.high_open
