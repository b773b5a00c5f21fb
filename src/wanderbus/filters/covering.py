"""Covering: whether one filter matches wherever another one does (DESIGN 7.3; SPEC B-02, B-03, B-09).

The test is always sound: if it reports covering, it is true. It is complete between conjunctions whose clauses compare
by order, equality, prefixes and sets; suffixes and contained texts, disjunctions across attributes and residuals may
hide that one covers the other. The time grows with the product of the sizes of the two forms.

To compare the same filter again and again, pass its normal form: then its tree is not normalised each time.
"""

from __future__ import annotations

from collections.abc import Iterator

from wanderbus.filters import clauses, conjunctions
from wanderbus.filters.ast import EVERYTHING, And, Clause, Node, Residual, Rooted
from wanderbus.filters.clauses import TooLarge
from wanderbus.filters.normal import Conjunction, NormalForm
from wanderbus.filters.normalising import normal_form, tree_of
from wanderbus.filters.unfolding import conjunction_node
from wanderbus.work import UNCOUNTED, WorkBudget

Comparable = Node | Rooted | NormalForm
"""A filter, its tree or its normal form."""


def covers(one: Comparable, other: Comparable, work: WorkBudget = UNCOUNTED) -> bool:
    """Return whether ``one`` is proved to match every event that ``other`` matches.

    Raises :class:`WorkExceeded` beyond the units of ``work``: then nothing is known.
    """
    if one is other:
        return True
    mine, its = form_of(one, work), form_of(other, work)
    return all(_is_covered(each, mine, work) for each in its) or (
        not isinstance(one, tuple) and not isinstance(other, tuple) and tree_of(one) == tree_of(other)
    )


def clause_covers(one: Clause, other: Clause) -> bool:
    """Return whether clause ``one``, or a predicate, is proved true for every value for which ``other`` is true."""
    try:
        return clauses.covers(clauses.terms_of(one), clauses.terms_of(other))
    except TooLarge:
        return one == other


def form_of(of: Comparable, work: WorkBudget = UNCOUNTED) -> NormalForm:
    """Return the normal form of a filter or a tree; a normal form is returned as it is."""
    return of if isinstance(of, tuple) else normal_form(of, work=work)


def strengthened(conjunction: Conjunction, work: WorkBudget = UNCOUNTED) -> NormalForm:
    """Return an equivalent form that also contains what its residuals need."""
    needed = list(_needed(conjunction))
    return normal_form(And((conjunction_node(conjunction), *needed)), work=work) if needed else (conjunction,)


def is_strengthened(conjunction: Conjunction) -> bool:
    """Return whether its residuals need more than they say, so that others than those with fewer may cover it."""
    return next(_needed(conjunction), None) is not None


def _is_covered(conjunction: Conjunction, form: NormalForm, work: WorkBudget) -> bool:
    if any(conjunctions.covers(each, conjunction, work) for each in form):
        return True
    if not is_strengthened(conjunction):
        return False
    stronger = strengthened(conjunction, work)
    return stronger != (conjunction,) and all(
        any(conjunctions.covers(each, piece, work) for each in form) for piece in stronger
    )


def _needed(conjunction: Conjunction) -> Iterator[Node]:
    for node in conjunction.residuals:
        if isinstance(node, Residual) and node.needed != EVERYTHING:
            yield node.needed
