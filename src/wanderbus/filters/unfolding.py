"""Conversion of normal forms back to trees, so that a merged filter has a text (DESIGN 7.2).

The tree is true exactly where the form holds, and is written as a person would write it: holes of single values as
``!=`` or ``not in``, points as ``in``, the strings with a prefix as ``prefix``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, TypeVar

from wanderbus.filters import regions
from wanderbus.filters.ast import And, Clause, Exists, Node, Not, Or, Predicate, Quantified
from wanderbus.filters.clauses import EVERY_VALUE, Terms
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval, NormalForm, Term, TextPattern
from wanderbus.filters.regions import Region

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OF_KIND: Final[dict[str, Clause]] = {
    "boolean": Predicate("in", (False, True)),
    "date": Or((Predicate("<", _EPOCH), Predicate(">=", _EPOCH))),
    "number": Or((Predicate("<", 0), Predicate(">=", 0))),
    "string": Predicate("prefix", ""),
}
"""For each kind, a clause that is true for each of its values."""


def to_node(form: NormalForm) -> Node:
    """Return a tree that is true for the events for which ``form`` holds."""
    return _some([conjunction_node(each) for each in form])


def conjunction_node(conjunction: Conjunction) -> Node:
    """Return a tree that is true where ``conjunction`` holds."""
    parts = [filter_node(each) for each in conjunction.filters]
    return _every([*parts, *conjunction.residuals])


def filter_node(asked: AttributeFilter) -> Node:
    """Return a tree that is true where the attribute filter holds."""
    match asked.quantifier:
        case "exists":
            return Exists(asked.attribute)
        case "absent":
            return Not(Exists(asked.attribute))
        case quantifier:
            return Quantified(quantifier, asked.attribute, clause_of(asked.terms))


def clause_of(terms: Terms) -> Clause:
    """Return a clause that is true for the values of ``terms``."""
    if terms == EVERY_VALUE:
        return And(())
    return _some([part for term in terms for part in _term_parts(term)])


def _term_parts(term: Term) -> list[Clause]:
    """Return clauses of which at least one is true for a value of ``term``."""
    fitting = [_pattern_clause(pattern) for pattern in term.patterns]
    if term.region == regions.WHOLE:
        return [_every(fitting)] if fitting else [_OF_KIND[term.kind]]
    parts = _region_parts(term.region)
    return [_every([_some(parts), *fitting])] if fitting else parts


def _pattern_clause(pattern: TextPattern) -> Clause:
    asked = Predicate(pattern.operator, pattern.text)
    return asked if pattern.wanted else Not(asked)


def _region_parts(region: Region) -> list[Clause]:
    """Return clauses of which at least one is true for a value of ``region``: ranges with holes first, then points."""
    parts: list[Clause] = []
    single: list[Any] = []
    for run in _runs(region):
        if len(run) == 1 and regions.is_point(run[0]):
            single.append(run[0].low)
        else:
            parts.append(_run_clause(run))
    return [*parts, *_among(single)]


def _runs(region: Region) -> list[list[Interval]]:
    """Return runs of intervals between which only a single value, or the strings of one prefix, are missing."""
    runs: list[list[Interval]] = []
    for each in region:
        if runs and _hole(runs[-1][-1], each) is not None:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _hole(before: Interval, after: Interval) -> Predicate | None:
    """Return a predicate that is true exactly for the values between two intervals, if there is one."""
    if before.high_open and after.low_open and before.high == after.low:
        return Predicate("==", before.high)  # type: ignore[arg-type]
    is_text = isinstance(before.high, str) and before.high_open and not after.low_open
    if is_text and after.low == regions.after_prefix(before.high):  # type: ignore[arg-type]
        return Predicate("prefix", before.high)  # type: ignore[arg-type]
    return None


def _run_clause(run: list[Interval]) -> Clause:
    holes = [hole for before, after in pairwise(run) if (hole := _hole(before, after)) is not None]
    single = [hole.operand for hole in holes if hole.operator == "=="]
    others: list[Clause] = [Not(hole) for hole in holes if hole.operator != "=="]
    if len(single) == 1:
        others.insert(0, Predicate("!=", single[0]))
    elif single:
        others.insert(0, Not(Predicate("in", tuple(single))))  # type: ignore[arg-type]
    first, last = run[0], run[-1]
    hull = Interval(first.low, last.high, first.low_open, last.high_open)
    return _every([*_interval_parts(hull), *others])


def _interval_parts(each: Interval) -> list[Clause]:
    """Return clauses that are all true for a value between the ends."""
    low: Any = each.low
    high: Any = each.high
    if isinstance(low, str) and regions.prefixed(low) == (each,):
        return [Predicate("prefix", low)]
    parts: list[Clause] = []
    if low is not None:
        parts.append(Predicate(">" if each.low_open else ">=", low))
    if high is not None:
        parts.append(Predicate("<" if each.high_open else "<=", high))
    return parts


def _among(single: list[Any]) -> list[Clause]:
    if len(single) < 2:
        return [Predicate("==", value) for value in single]
    return [Predicate("in", tuple(single))]


def _every(parts: Iterable[T]) -> T | And[T]:
    several = tuple(parts)
    return several[0] if len(several) == 1 else And(several)


def _some(parts: Iterable[T]) -> T | Or[T]:
    several = tuple(parts)
    return several[0] if len(several) == 1 else Or(several)
