"""Interest in a subject before and after covering and merging (SPEC B-04, J-10, T-10)."""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.errors import FilterError
from wanderbus.filters import parse
from wanderbus.filters.merging import merge_conjunctions, uncovered_conjunctions
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.normalising import normal_form
from wanderbus.planning.loads import SubjectInterest


def interest_of(subscriptions: Iterable[tuple[str, str, int]]) -> SubjectInterest:
    """Return the interest of ``subscriptions`` to one subject: expression, language, and how many have both."""
    conjunctions: dict[Conjunction, None] = {}
    count = rejected = 0
    for expression, language, several in subscriptions:
        try:
            form = normal_form(parse(expression, language))
        except FilterError:
            rejected += several
            continue
        count += several
        conjunctions |= dict.fromkeys(form)
    return SubjectInterest(
        subscriptions=count,
        filters=len(conjunctions),
        uncovered=len(uncovered_conjunctions(conjunctions)),
        merged=len(merge_conjunctions(conjunctions)),
        rejected=rejected,
    )
