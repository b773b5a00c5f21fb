"""Interest in a subject before and after covering and merging (SPEC B-04, T-10)."""

from __future__ import annotations

from wanderbus.filters import parse
from wanderbus.filters.conjunctions import covers
from wanderbus.filters.merging import merge, uncovered_conjunctions
from wanderbus.filters.normalising import normal_form
from wanderbus.planning import SubjectInterest
from wanderbus.planning.interest import interest_of


def test_equal_filters_count_once_and_covered_and_merged_ones_not_at_all() -> None:
    given = [
        ("Delay > 10", "eci", 3),
        ("(Delay > 10)", "eci", 2),
        ("Delay > 20", "eci", 1),
        ("Delay < 5", "eci", 1),
        ("Dest == IAH", "eci", 1),
        ("Dest == SFO or Gate == 7", "eci", 1),
    ]
    # Uncovered: > 10, < 5, IAH, SFO, Gate. Merged: both of Delay become one, and so do both of Dest.
    assert interest_of(given) == SubjectInterest(subscriptions=9, filters=6, uncovered=5, merged=3)


def test_an_expression_that_cannot_be_parsed_is_counted_and_nothing_else() -> None:
    assert interest_of([("Delay >", "eci", 2), ("Delay > 1", "eci", 1)]) == SubjectInterest(1, 1, 1, 1, rejected=2)
    assert interest_of([("Delay > 1", "klingon", 1)]) == SubjectInterest(rejected=1)


def test_uncovered_conjunctions_are_those_that_a_comparison_of_all_pairs_leaves() -> None:
    texts = [f"A > {n % 7} and B < {n % 5}" for n in range(40)] + [f"A > {n}" for n in range(5)]
    conjunctions = list(dict.fromkeys(normal_form(parse(each))[0] for each in texts))
    left = uncovered_conjunctions(conjunctions)
    alike = [[each for each in conjunctions if len(each.filters) == size] for size in (1, 2)]
    expected = [
        one for group in alike for one in group if not any(other != one and covers(other, one) for other in group)
    ]
    assert set(left) == set(expected)
    assert len(left) >= len(merge([parse(each) for each in texts]))
