"""Filters of subscribers are compared with a bounded amount of work; the rest is named (SPEC T-08, U-02)."""

from __future__ import annotations

import string
from random import Random
from typing import Any

import pytest

from wanderbus.pipeline.analytics import coverings
from wanderbus.pipeline.analytics.coverings import FILTER_WORK_MAX, FILTERS_MAX, OneFilter, compare
from wanderbus.work import WorkBudget


def costly(seed: int) -> str:
    """Return a permitted filter whose comparison with another such filter takes minutes."""
    draw = Random(seed)

    def contained() -> str:
        return " or ".join(f'contains "{"".join(draw.choices(string.ascii_lowercase, k=3))}"' for _ in range(50))

    return f"any a ({contained()})" + "".join(f" and (b{each} == 1 or c{each} == 2)" for each in range(8))


def filters(*expressions: str) -> list[OneFilter]:
    return [OneFilter(f"s{number}", each, "eci", 1) for number, each in enumerate(expressions)]


def test_costly_filters_are_compared_within_the_bound_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[WorkBudget] = []

    def budget(*given: Any) -> WorkBudget:
        budgets.append(WorkBudget(*given))
        return budgets[-1]

    monkeypatch.setattr(coverings, "WorkBudget", budget)
    asked = filters(*map(costly, range(6)), "x > 1", "x > 2", "b1 == 1")
    found = compare(asked)
    assert max(each.done for each in budgets) < 1.5 * FILTER_WORK_MAX
    assert [(one.id, other.id) for one, other, _ in found.pairs] == [("s6", "s7")]
    assert {each.id for each in found.uncompared} == {f"s{number}" for number in range(6)}
    assert all(0 < count <= 5 for count in found.uncompared.values())


def test_filters_beyond_the_most_frequent_and_unreadable_ones_are_named() -> None:
    asked = filters("not a filter (", *(f"x > {number}" for number in range(FILTERS_MAX)))
    found = compare(asked)
    assert {each.id: count for each, count in found.uncompared.items()} == {
        "s0": FILTERS_MAX,
        f"s{FILTERS_MAX}": FILTERS_MAX,
    }
    assert len(found.pairs) == (FILTERS_MAX - 1) * (FILTERS_MAX - 2) // 2


def test_equal_filters_are_one_pair() -> None:
    ((one, other, is_equal),) = compare(filters("x > 1 and y == 2", "y == 2 and x > 1")).pairs
    assert (one.id, other.id, is_equal) == ("s0", "s1", True)
