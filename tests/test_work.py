"""Counted work and its bound."""

from __future__ import annotations

import math

import pytest

from wanderbus.errors import LimitExceeded
from wanderbus.work import WorkBudget, WorkExceeded


def test_work_up_to_the_bound_is_done_and_counted() -> None:
    budget = WorkBudget(10, "merge_work_max")
    budget.spend(4)
    assert (budget.done, budget.left) == (4, 6)
    budget.spend(6)
    assert (budget.done, budget.left) == (10, 0)


def test_work_beyond_the_bound_raises_an_error_that_names_it() -> None:
    budget = WorkBudget(1_000, "merge_work_max")
    budget.spend(1_000)
    with pytest.raises(WorkExceeded, match="more than 1,000 units of work") as found:
        budget.spend()
    assert isinstance(found.value, LimitExceeded)
    assert found.value.limit == "merge_work_max"
    assert budget.left == 0


def test_work_without_a_bound_is_counted() -> None:
    budget = WorkBudget()
    budget.spend(10**12)
    assert (budget.done, budget.left) == (10**12, math.inf)
