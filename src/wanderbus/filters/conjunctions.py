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
from typing import Final, Literal

from wanderbus import limits
from wanderbus.filters import clauses
from wanderbus.filters.ast import Node, Not
from wanderbus.filters.clauses import EVERY_VALUE, Terms, TooLarge
from wanderbus.filters.normal import AttributeFilter, Conjunction
from wanderbus.filters.unfolding import filter_node
from wanderbus.work import UNCOUNTED, WorkBudget

_TOPICS: Final = 10
"""Units of the comparison of the attributes of two conjunctions."""

_TERM: Final = 250
"""Units for each part of a term that is written to be sorted."""

OPERATION: Final = 60
"""Units of the comparison of two conjunctions, and of each of their attribute filters."""


def attribute_filter(attribute: str, quantifier: Literal["any", "all"], terms: Terms) -> AttributeFilter:
    """Return the filter for ``terms`` of ``attribute``; if all items may be anything, only that it exists."""
    if quantifier == "all" and terms == EVERY_VALUE:
        return AttributeFilter(attribute, "exists")
    return AttributeFilter(attribute, quantifier, terms)


def conjunction(
    filters: Iterable[AttributeFilter], residuals: Iterable[Node] = (), work: WorkBudget = UNCOUNTED
) -> Conjunction | None:
    """Return the conjunction without filters that the others imply; None if no event can match it.

    Residuals are compared by identity: comparing large trees would take too long. Raises :class:`WorkExceeded` beyond
    the units of ``work``.
    """
    asked: dict[str, list[AttributeFilter]] = {}
    for each in filters:
        asked.setdefault(each.attribute, []).append(each)
    found: list[AttributeFilter] = []
    for attribute in sorted(asked):
        work.spend(OPERATION * len(asked[attribute]))
        simplified = _simplified(asked[attribute], work)
        if simplified is None:
            return None
        found += simplified
    opaque = {id(node): node for node in residuals}
    if any(isinstance(node, Not) and id(node.operand) in opaque for node in opaque.values()):
        return None
    spilt = map(filter_node, found[limits.CONJUNCTION_FILTERS_MAX :])
    return Conjunction(tuple(found[: limits.CONJUNCTION_FILTERS_MAX]), (*opaque.values(), *spilt))


def both(one: Conjunction, other: Conjunction, work: WorkBudget = UNCOUNTED) -> Conjunction | None:
    """Return the conjunction of both; None if no event can match it."""
    return conjunction(one.filters + other.filters, one.residuals + other.residuals, work)


def uncovered(form: tuple[Conjunction, ...], work: WorkBudget = UNCOUNTED) -> tuple[Conjunction, ...]:
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
        work.spend(len(asked) * OPERATION + len(kept) * _TOPICS)
        if not any(not its & ~topics and covers(other, each, work) for its, other in kept):
            kept = [(its, other) for its, other in kept if topics & ~its or not covers(each, other, work)]
            kept.append((topics, each))
    return tuple([each for _, each in kept])


def covers(one: Conjunction, other: Conjunction, work: WorkBudget = UNCOUNTED) -> bool:
    """Return whether ``one`` is proved to hold wherever ``other`` does: never wrong, and exact without patterns.

    Residuals are only compared for equality. Raises :class:`WorkExceeded` beyond the units of ``work``.
    """
    work.spend(OPERATION * (1 + len(one.filters) + len(one.residuals) * len(other.residuals)))
    if not all(_has(other.residuals, node) for node in one.residuals):
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
        if not _is_implied(asked, given[at:end], work):
            return False
    return True


def _has(residuals: Sequence[Node], node: Node) -> bool:
    # Different trees may be equal for long; their hashes are not.
    return any(each is node or (hash(each) == hash(node) and each == node) for each in residuals)


def filter_covers(one: AttributeFilter, other: AttributeFilter) -> bool:
    """Return whether attribute filter ``one`` is proved to hold wherever ``other`` does."""
    return one.attribute == other.attribute and _is_implied(one, (other,), UNCOUNTED)


def _is_implied(asked: AttributeFilter, given: Sequence[AttributeFilter], work: WorkBudget) -> bool:
    """Return whether ``asked`` follows from ``given``, all of the same attribute."""
    if len(given) > 1:
        work.spend(OPERATION * len(given))
    match asked.quantifier:
        case "exists":
            return any(other.quantifier != "absent" for other in given)
        case "absent":
            return any(other.quantifier == "absent" for other in given)
        case quantifier:
            if any(o.quantifier == quantifier and clauses.covers(asked.terms, o.terms, work) for o in given):
                return True
    if quantifier == "all" or len(given) < 2:
        return False
    every = [other.terms for other in given if other.quantifier == "all"]
    return bool(every) and any(
        other.quantifier == "any" and clauses.covers(asked.terms, _narrowed(other.terms, every, work), work)
        for other in given
    )


def _narrowed(terms: Terms, every: Sequence[Terms], work: WorkBudget) -> Terms:
    """Return what remains of ``terms`` for an item of a list all of whose items fit ``every``."""
    try:
        return clauses.intersection((terms, *every), work)
    except TooLarge:
        return terms


def _simplified(asked: list[AttributeFilter], work: WorkBudget) -> list[AttributeFilter] | None:
    """Return an equivalent shorter list of filters of one attribute; None if nothing satisfies them."""
    if len(asked) == 1:
        return None if asked[0].quantifier == "any" and not asked[0].terms else asked
    distinct = list(dict.fromkeys(asked))
    quantifiers = {each.quantifier for each in distinct}
    if "absent" in quantifiers:
        return distinct if len(quantifiers) == 1 else None
    every = _joined([each for each in distinct if each.quantifier == "all"], work)
    kept: list[tuple[AttributeFilter, Terms]] = []
    some = [each for each in distinct if each.quantifier == "any"]
    for each in some[: limits.CONJUNCTION_FILTERS_MAX]:
        narrowed = _narrowed(each.terms, [other.terms for other in every], work) if every else each.terms
        if not narrowed:
            return None
        work.spend(OPERATION * (1 + len(kept)))
        if not any(clauses.covers(each.terms, other, work) for _, other in kept):
            kept = [(other, its) for other, its in kept if not clauses.covers(other.terms, narrowed, work)]
            kept.append((each, narrowed))
    some[: limits.CONJUNCTION_FILTERS_MAX] = [each for each, _ in kept]
    if len(some) > 1:
        work.spend(sum(_TERM * (1 + len(term.region) + len(term.patterns)) for each in some for term in each.terms))
        some.sort(key=repr)
    return [*every, *some] or distinct


def _joined(every: list[AttributeFilter], work: WorkBudget) -> list[AttributeFilter]:
    """Return one filter of all items that is equivalent to ``every``, unless it would be too large."""
    if len(every) < 2:
        return every
    try:
        terms = clauses.intersection((each.terms for each in every), work)
    except TooLarge:
        return every
    return [AttributeFilter(every[0].attribute, "all", terms)]
