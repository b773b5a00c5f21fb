"""Normal form of a filter as servers compare, merge and send it: small enough for each of these (SPEC B-10, U-02)."""

from __future__ import annotations

from wanderbus import limits
from wanderbus.filters.ast import Node, Rooted
from wanderbus.filters.normal import NormalForm
from wanderbus.filters.normalising import normal_form, tree_of, unexpanded
from wanderbus.filters.weights import weight_of, weight_of_node
from wanderbus.work import UNCOUNTED, WorkBudget


def interest_form(of: Node | Rooted, work: WorkBudget = UNCOUNTED) -> NormalForm:
    """Return the conjunctions of ``of``; the filter as it was if they are too large, or take too many units of work."""
    form = normal_form(of, limits.INTEREST_CONJUNCTIONS_MAX, work)
    return form if len(form) < 2 or _weight(form) <= limits.INTEREST_WEIGHT_MAX else unexpanded(tree_of(of))


def _weight(form: NormalForm) -> int:
    residuals = {id(node): node for each in form for node in each.residuals}
    weights = {identity: weight_of_node(node) for identity, node in residuals.items()}
    return sum(weight_of(each) + sum(weights[id(node)] for node in each.residuals) for each in form)
