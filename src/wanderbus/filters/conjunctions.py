"""Conjunctions of attribute filters: simplified, compared and multiplied (DESIGN 7.2, 7.3; SPEC A-14, B-02, B-03).

Conditions on one attribute are independent of other attributes. So a conjunction implies an attribute filter if its own
filters of that attribute imply it. A value may be a list, of which all items satisfy the filters of ``all``, and for
each ``any`` there is some item; the empty list satisfies every ``all`` and no ``any``. Hence, for one attribute:

- an ``any`` follows from an ``any`` that is at least as strict, once the filters of ``all`` are taken into account;
- an ``all`` follows only from the filters of ``all``;
- ``exists`` follows from any of the two, and ``absent`` from itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from wanderbus import limits
from wanderbus.filters import clauses
from wanderbus.filters.ast import Node, Not
from wanderbus.filters.clauses import EVERY_VALUE, Terms, TooLarge
from wanderbus.filters.normal import AttributeFilter, Conjunction
from wanderbus.filters.unfolding import filter_node


def attribute_filter(attribute: str, quantifier: Literal["any", "all"], terms: Terms) -> AttributeFilter:
    """Return the filter for ``terms`` of ``attribute``; if all items may be anything, only that it exists."""
    if quantifier == "all" and terms == EVERY_VALUE:
        return AttributeFilter(attribute, "exists")
    return AttributeFilter(attribute, quantifier, terms)


def conjunction(filters: Iterable[AttributeFilter], residuals: Iterable[Node] = ()) -> Conjunction | None:
    """Return the conjunction without filters that the others imply; None if no event can match it.

    Residuals are compared by identity: comparing large trees would take too long.
    """
    asked: dict[str, list[AttributeFilter]] = {}
    for each in filters:
        asked.setdefault(each.attribute, []).append(each)
    found: list[AttributeFilter] = []
    for attribute in sorted(asked):
        simplified = _simplified(asked[attribute])
        if simplified is None:
            return None
        found += simplified
    opaque = {id(node): node for node in residuals}
    if any(isinstance(node, Not) and id(node.operand) in opaque for node in opaque.values()):
        return None
    spilt = map(filter_node, found[limits.CONJUNCTION_FILTERS_MAX :])
    return Conjunction(tuple(found[: limits.CONJUNCTION_FILTERS_MAX]), (*opaque.values(), *spilt))


def both(one: Conjunction, other: Conjunction) -> Conjunction | None:
    """Return the conjunction of both; None if no event can match it."""
    return conjunction(one.filters + other.filters, one.residuals + other.residuals)


def uncovered(form: tuple[Conjunction, ...]) -> tuple[Conjunction, ...]:
    """Return ``form`` without the conjunctions that another of its conjunctions covers.

    Residuals are equal here only if they are the same object.
    """
    if len(form) < 2:
        return form
    numbers: dict[str | int, int] = {}
    kept: list[tuple[int, Conjunction]] = []
    for each in form:
        # The attributes and residuals, as bits: a conjunction with more of them than another does not cover that one.
        topics = 0
        asked: list[str | int] = [*(one.attribute for one in each.filters), *map(id, each.residuals)]
        for topic in asked:
            topics |= 1 << numbers.setdefault(topic, len(numbers))
        if not any(not its & ~topics and covers(other, each) for its, other in kept):
            kept = [(its, other) for its, other in kept if topics & ~its or not covers(each, other)]
            kept.append((topics, each))
    return tuple([each for _, each in kept])


def covers(one: Conjunction, other: Conjunction) -> bool:
    """Return whether ``one`` is proved to hold wherever ``other`` does: never wrong, and exact without patterns.

    Residuals are only compared for equality.
    """
    if one.residuals != other.residuals and not all(node in other.residuals for node in one.residuals):
        return False
    given = other.filters
    at = 0
    for asked in one.filters:
        while at < len(given) and given[at].attribute < asked.attribute:
            at += 1
        if at == len(given) or given[at].attribute != asked.attribute:
            return False
        end = at + 1
        while end < len(given) and given[end].attribute == asked.attribute:
            end += 1
        if not _is_implied(asked, given[at:end]):
            return False
    return True


def filter_covers(one: AttributeFilter, other: AttributeFilter) -> bool:
    """Return whether attribute filter ``one`` is proved to hold wherever ``other`` does."""
    return one.attribute == other.attribute and _is_implied(one, (other,))


def _is_implied(asked: AttributeFilter, given: Sequence[AttributeFilter]) -> bool:
    """Return whether ``asked`` follows from ``given``, all of the same attribute."""
    match asked.quantifier:
        case "exists":
            return any(other.quantifier != "absent" for other in given)
        case "absent":
            return any(other.quantifier == "absent" for other in given)
        case quantifier:
            if any(o.quantifier == quantifier and clauses.covers(asked.terms, o.terms) for o in given):
                return True
    if quantifier == "all" or len(given) < 2:
        return False
    every = [other.terms for other in given if other.quantifier == "all"]
    return bool(every) and any(
        other.quantifier == "any" and clauses.covers(asked.terms, _narrowed(other.terms, every)) for other in given
    )


def _narrowed(terms: Terms, every: Sequence[Terms]) -> Terms:
    """Return what remains of ``terms`` for an item of a list all of whose items fit ``every``."""
    try:
        return clauses.intersection((terms, *every))
    except TooLarge:
        return terms


def _simplified(asked: list[AttributeFilter]) -> list[AttributeFilter] | None:
    """Return an equivalent shorter list of filters of one attribute; None if nothing satisfies them."""
    if len(asked) == 1:
        return None if asked[0].quantifier == "any" and not asked[0].terms else asked
    distinct = list(dict.fromkeys(asked))
    quantifiers = {each.quantifier for each in distinct}
    if "absent" in quantifiers:
        return distinct if len(quantifiers) == 1 else None
    every = _joined([each for each in distinct if each.quantifier == "all"])
    kept: list[tuple[AttributeFilter, Terms]] = []
    some = [each for each in distinct if each.quantifier == "any"]
    for each in some[: limits.CONJUNCTION_FILTERS_MAX]:
        narrowed = _narrowed(each.terms, [other.terms for other in every]) if every else each.terms
        if not narrowed:
            return None
        if not any(clauses.covers(each.terms, other) for _, other in kept):
            kept = [(other, its) for other, its in kept if not clauses.covers(other.terms, narrowed)]
            kept.append((each, narrowed))
    some[: limits.CONJUNCTION_FILTERS_MAX] = [each for each, _ in kept]
    if len(some) > 1:
        some.sort(key=repr)
    return [*every, *some] or distinct


def _joined(every: list[AttributeFilter]) -> list[AttributeFilter]:
    """Return one filter of all items that is equivalent to ``every``, unless it would be too large."""
    if len(every) < 2:
        return every
    try:
        terms = clauses.intersection(each.terms for each in every)
    except TooLarge:
        return every
    return [AttributeFilter(every[0].attribute, "all", terms)]
