"""Pieces of a conjunction whose text is too long for one subscription (SPEC B-10).

Merging unites the values of an attribute, so a merged filter may have thousands of them. The pieces have some of these
values each, and together match what the conjunction matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final
from zlib import crc32

import msgspec

from wanderbus.filters import Filter
from wanderbus.filters.merging import filter_of
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval, Kind, Term, TextPattern

_VALUES: Final = 32
"""Values of a piece on average. The values themselves decide where a piece ends, so a new value changes one piece."""

_Part = tuple[Kind, tuple[TextPattern, ...], Interval]


def pieces_of(conjunction: Conjunction, characters_max: int) -> Iterator[Filter]:
    """Yield filters with at most ``characters_max`` characters, one of which matches if ``conjunction`` does.

    They match nothing else, unless a requirement for one value is longer than that: it is left out.
    """
    whole = filter_of(conjunction)
    if len(whole.text) <= characters_max:
        yield whole
        return
    longest = max(range(len(conjunction.filters)), key=lambda at: _count(conjunction.filters[at]), default=None)
    if longest is None or not (parts := _parts(conjunction.filters[longest])):
        yield _without_longest(conjunction, characters_max)
        return
    groups = _groups(parts)
    if len(groups) == 1:
        groups = [parts[: len(parts) // 2], parts[len(parts) // 2 :]]
    for group in groups:
        filters = list(conjunction.filters)
        filters[longest] = msgspec.structs.replace(filters[longest], terms=_terms(group))
        yield from pieces_of(msgspec.structs.replace(conjunction, filters=tuple(filters)), characters_max)


def _count(each: AttributeFilter) -> int:
    """Return the number of intervals of a filter that can be divided, 0 for another one."""
    return sum(len(term.region) for term in each.terms) if each.quantifier == "any" else 0


def _parts(each: AttributeFilter) -> list[_Part]:
    """Return the intervals of a filter with their kinds and patterns, none if there are not several."""
    if _count(each) < 2:
        return []
    return [(term.kind, term.patterns, interval) for term in each.terms for interval in term.region]


def _groups(parts: list[_Part]) -> list[list[_Part]]:
    groups: list[list[_Part]] = []
    for part in parts:
        if not groups or crc32(repr(part).encode("utf-8", "surrogatepass")) % _VALUES == 0:
            groups.append([])
        groups[-1].append(part)
    return groups


def _terms(parts: list[_Part]) -> tuple[Term, ...]:
    grouped = groupby(parts, key=lambda part: (part[0], part[1]))
    return tuple(Term(kind, tuple(each[2] for each in group), patterns) for (kind, patterns), group in grouped)


def _without_longest(conjunction: Conjunction, characters_max: int) -> Filter:
    """Return a filter that matches more, and is short enough: without the requirements with the longest texts."""
    filters, residuals = list(conjunction.filters), list(conjunction.residuals)
    while len((found := filter_of(Conjunction(tuple(filters), tuple(residuals)))).text) > characters_max:
        if residuals:
            residuals.pop(_longest([Conjunction((), (each,)) for each in residuals]))
        else:
            filters.pop(_longest([Conjunction((each,)) for each in filters]))
    return found


def _longest(several: list[Conjunction]) -> int:
    return max(range(len(several)), key=lambda at: len(filter_of(several[at]).text))
