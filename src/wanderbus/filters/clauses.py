"""Clauses as sets of values of any kind: disjunctions of terms, and operations on them (SPEC A-14, B-02).

A clause is represented by the set of values for which it is *true*. Three truth values need two sets, because a clause
that is not true need not be false: `not` is pushed inwards to the predicates, each of which is false only for values of
its own kind.

Terms without patterns are exact, at most one for each kind, and no larger than the clause. Patterns multiply; beyond
:data:`wanderbus.limits.CLAUSE_TERMS_MAX` terms, :class:`TooLarge` is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

from wanderbus import limits
from wanderbus.filters import regions, text_implications
from wanderbus.filters.ast import And, Clause, Not, Operand, Or, Predicate
from wanderbus.filters.evaluate import OF_KIND, kind_of
from wanderbus.filters.normal import Interval, Kind, Term, TextPattern
from wanderbus.filters.regions import Region
from wanderbus.work import UNCOUNTED, WorkBudget

Terms = tuple[Term, ...]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
EVERY_VALUE: Final[Terms] = tuple(Term(kind, regions.WHOLE) for kind in KINDS)
NO_VALUE: Final[Terms] = ()

OPERATION: Final = 40
"""Units of one comparison of two terms."""

INTERVAL: Final = 100
"""Units for each interval of a region that is united, intersected or complemented."""


class TooLarge(Exception):
    """The result would exceed a bound of :mod:`wanderbus.limits`; the caller keeps the original instead."""


def terms_of(clause: Clause, wanted: bool = True, work: WorkBudget = UNCOUNTED) -> Terms:
    """Return the values for which ``clause`` is true, or with ``wanted`` False those for which it is false.

    Raises :class:`TooLarge`, and :class:`WorkExceeded` beyond the units of ``work``.
    """
    work.spend(INTERVAL)
    match clause:
        case Predicate(operator="in"):
            work.spend(INTERVAL * len(clause.operand))  # type: ignore[arg-type]
            return _of_set(clause.operand, wanted)  # type: ignore[arg-type]
        case Predicate():
            return _of_comparison(clause.operator, clause.operand, wanted)
        case Not(operand=operand):
            return terms_of(operand, not wanted, work)
        case And(operands=operands) | Or(operands=operands):
            parts = [terms_of(operand, wanted, work) for operand in operands]
            return intersection(parts, work) if isinstance(clause, And) == wanted else union(parts, work)


def union(clauses: Iterable[Terms], work: WorkBudget = UNCOUNTED) -> Terms:
    """Return the values for which at least one of ``clauses`` holds; raise :class:`TooLarge` above the bound."""
    several = [clause for clause in clauses if clause]
    if len(several) < 2:
        return several[0] if several else NO_VALUE
    alike: dict[tuple[Kind, tuple[TextPattern, ...]], list[Region]] = {}
    for clause in several:
        for term in clause:
            work.spend(OPERATION + INTERVAL * len(term.region))
            alike.setdefault((term.kind, term.patterns), []).append(term.region)
    found = tuple(Term(kind, regions.union(*alike[kind, wanted]), wanted) for kind, wanted in sorted(alike))
    return _without_covered(_bounded(found), work) if any(term.patterns for term in found) else found


def intersection(clauses: Iterable[Terms], work: WorkBudget = UNCOUNTED) -> Terms:
    """Return the values for which all of ``clauses`` hold; raise :class:`TooLarge` above the bound."""
    left = list(clauses)
    if not left:
        return EVERY_VALUE
    while len(left) > 1:
        # In pairs: one by one, the first clause would be processed again for each of the others.
        left = [
            _both(left[at], left[at + 1], work) if at + 1 < len(left) else left[at] for at in range(0, len(left), 2)
        ]
    return left[0]


def complement(clause: Terms, work: WorkBudget = UNCOUNTED) -> Terms:
    """Return every value, of any kind, for which ``clause`` does not hold; raise :class:`TooLarge` above the bound."""
    return intersection((_outside(term, work) for term in clause), work)


def holds(clause: Terms, value: Any) -> bool:
    """Return whether ``clause`` holds for ``value``."""
    kind = kind_of(value)
    return any(
        term.kind == kind and regions.has(term.region, value) and text_implications.fits(value, term.patterns)
        for term in clause
    )


def covers(one: Terms, other: Terms, work: WorkBudget = UNCOUNTED) -> bool:
    """Return whether ``one`` is proved to hold wherever ``other`` does. Never wrong; exact without patterns.

    Raises :class:`WorkExceeded` beyond the units of ``work``.
    """
    return one == other or all(_is_covered(term, one, work) for term in other)


def _of_set(operands: tuple[Operand, ...], wanted: bool) -> Terms:
    """Return the terms of ``in``: Kleene's `or` of equalities, which is false only if every one of them is."""
    among: dict[Any, list[Region]] = {}
    for operand in operands:
        among.setdefault(kind_of(operand), []).append(regions.point(regions.canonical(operand)))
    if wanted:
        return tuple(Term(kind, regions.union(*among[kind])) for kind in KINDS if kind in among)
    if not among:
        return EVERY_VALUE
    (kind, excluded), *others = among.items()
    return NO_VALUE if others or kind is None else _term(kind, regions.complement(regions.union(*excluded)))


def _of_comparison(operator: str, operand: Any, wanted: bool) -> Terms:
    kind: Any = kind_of(operand)
    if kind is None or operator not in OF_KIND[kind]:
        return NO_VALUE
    if operator in ("suffix", "contains"):
        if not operand:
            return (Term(kind, regions.WHOLE),) if wanted else NO_VALUE
        return (Term(kind, regions.WHOLE, (TextPattern(operator, operand, wanted),)),)  # type: ignore[arg-type]
    region = _region_of(operator, regions.canonical(operand))
    return _term(kind, region if wanted else regions.complement(region))


def _region_of(operator: str, operand: Any) -> Region:
    match operator:
        case "==":
            return regions.point(operand)
        case "!=":
            return regions.complement(regions.point(operand))
        case "<":
            return regions.interval(None, operand, False, True)
        case "<=":
            return regions.interval(None, operand)
        case ">":
            return regions.interval(operand, None, True)
        case ">=":
            return regions.interval(operand, None)
        case _:
            return regions.prefixed(operand)


def _term(kind: Kind, region: Region) -> Terms:
    return (Term(kind, region),) if region else NO_VALUE


def _bounded(clause: Terms) -> Terms:
    if len(clause) + sum(len(term.patterns) for term in clause) > limits.CLAUSE_TERMS_MAX:
        raise TooLarge
    return clause


def _both(one: Terms, other: Terms, work: WorkBudget) -> Terms:
    if len(one) * len(other) > limits.CLAUSE_TERMS_MAX:
        raise TooLarge
    found: list[Terms] = []
    for mine in one:
        for yours in other:
            work.spend(OPERATION)
            if mine.kind == yours.kind:
                work.spend(INTERVAL * (len(mine.region) + len(yours.region)))
                region = regions.intersection(mine.region, yours.region)
                found.append(_fitting(mine.kind, region, mine.patterns + yours.patterns, work))
    return _bounded(union(found, work))


def _fitting(kind: Kind, region: Region, wanted: tuple[TextPattern, ...], work: WorkBudget) -> Terms:
    """Return the part of ``region`` that fits the patterns: points are tested, obvious contradictions left out."""
    if not wanted or not region:
        return _term(kind, region)
    wanted = text_implications.reduced(wanted, work)
    work.spend(OPERATION * len(wanted) * len(region))
    single = tuple(each for each in region if regions.is_point(each) and text_implications.fits(each.low, wanted))  # type: ignore[arg-type]
    wide: list[Interval] = []
    needed: set[TextPattern] = set()
    for each in region:
        prefix = "" if regions.is_point(each) else regions.shared_prefix(each)
        if not regions.is_point(each) and not text_implications.are_contradictory(prefix, wanted, work):
            wide.append(each)
            needed.update(pattern for pattern in wanted if not text_implications.follows(pattern, prefix, ()))
    if wide and not needed:
        return _term(kind, regions.union(single, tuple(wide)))
    rest = (Term(kind, tuple(wide), tuple(sorted(needed))),) if wide else NO_VALUE
    return _term(kind, single) + rest


def _outside(term: Term, work: WorkBudget) -> Terms:
    work.spend(INTERVAL * len(term.region))
    others = tuple(Term(kind, regions.WHOLE) for kind in KINDS if kind != term.kind)
    beyond = _term(term.kind, regions.complement(term.region))
    misfits = tuple(Term(term.kind, regions.WHOLE, (text_implications.negated(pattern),)) for pattern in term.patterns)
    return union((others, beyond, misfits), work)


def _without_covered(clause: Terms, work: WorkBudget) -> Terms:
    """Remove each term with patterns that a single other term covers."""
    kept = list(clause)
    for term in clause:
        if term.patterns and any(other is not term and _is_covered(term, (other,), work) for other in kept):
            kept.remove(term)
    return tuple(kept)


def _is_covered(term: Term, clause: Terms, work: WorkBudget) -> bool:
    """Return whether ``clause`` holds wherever ``term`` does."""
    same = [other for other in clause if other.kind == term.kind]
    if len(same) == 1 and not same[0].patterns:
        if len(term.region) > 1:
            work.spend(INTERVAL * len(term.region))
        return regions.is_subset(term.region, same[0].region)
    work.spend(OPERATION * (1 + len(clause)))
    left = term.region
    for other in same:
        if _is_fitted(other, "", term.patterns, work):
            work.spend(INTERVAL * (len(left) + len(other.region)))
            left = regions.difference(left, other.region)
    return all(any(_is_covered_piece(each, term.patterns, other, work) for other in same) for each in left)


def _is_covered_piece(each: Interval, known: tuple[TextPattern, ...], other: Term, work: WorkBudget) -> bool:
    work.spend(OPERATION)
    if not regions.is_subset((each,), other.region):
        return False
    if regions.is_point(each):
        return text_implications.fits(each.low, other.patterns)  # type: ignore[arg-type]
    return _is_fitted(other, regions.shared_prefix(each), known, work)


def _is_fitted(term: Term, prefix: str, known: tuple[TextPattern, ...], work: WorkBudget) -> bool:
    return all(text_implications.follows(pattern, prefix, known, work) for pattern in term.patterns)
