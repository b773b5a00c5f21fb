"""Generated events and trees for the tests of filters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from wanderbus.event import Event
from wanderbus.filters.ast import And, Comparison, Node, Not, Or

NAMES = ["a", "b", "Price", "x-y.z:1", "ação"]
INTEGERS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.5, 1.0, -2.0])
STRINGS = st.sampled_from(["", "x", "and", "\"\\'\n", "PETR4"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)


def comparisons() -> st.SearchStrategy[Node]:
    ordered = st.builds(
        Comparison,
        st.sampled_from(NAMES),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        INTEGERS | FLOATS | STRINGS,
    )
    boolean = st.builds(Comparison, st.sampled_from(NAMES), st.sampled_from(["==", "!="]), st.booleans())
    return ordered | boolean


def trees() -> st.SearchStrategy[Node]:
    def grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(And, several) | st.builds(Or, several)

    return st.recursive(comparisons(), grow, max_leaves=8)


def events() -> st.SearchStrategy[Event]:
    date = st.just(datetime(2009, 6, 1, tzinfo=UTC))
    scalars: st.SearchStrategy[Any] = INTEGERS | FLOATS | STRINGS | st.booleans() | date | st.just(float("nan"))
    values = scalars | st.lists(scalars, max_size=3)
    return st.builds(Event, st.just("S"), st.dictionaries(st.sampled_from(NAMES), values, max_size=4))


@pytest.fixture(scope="session")
def any_tree() -> st.SearchStrategy[Node]:
    return trees()


@pytest.fixture(scope="session")
def any_event() -> st.SearchStrategy[Event]:
    return events()
