"""What expressions mean: the truth tables and the type rules of DESIGN 7.1."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.ast import And, Comparison, Or
from wanderbus.filters.compiled import compile_node
from wanderbus.filters.evaluate import conjunction, disjunction, evaluate, negation

T, F, U = True, False, None
TRUTHS = [T, F, U]


def value_of(text: str, **attributes: Any) -> bool | None:
    return parse(text).evaluate(Event("S", attributes))


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, T, T),
        (T, F, F, T),
        (T, U, U, T),
        (F, T, F, T),
        (F, F, F, F),
        (F, U, F, U),
        (U, T, U, T),
        (U, F, F, U),
        (U, U, U, U),
    ],
)
def test_kleene_tables(left: bool | None, right: bool | None, both: bool | None, either: bool | None) -> None:
    """DESIGN 7.1: `and` and `or` over True, False and unknown, as functions and as expressions."""
    assert conjunction([left, right]) is both
    assert disjunction([left, right]) is either
    attributes = {name: truth for name, truth in (("l", left), ("r", right)) if truth is not None}
    assert value_of("l == true and r == true", **attributes) is both
    assert value_of("l == true or r == true", **attributes) is either


@pytest.mark.parametrize(("truth", "negated"), [(T, F), (F, T), (U, U)])
def test_not_of_unknown_is_unknown(truth: bool | None, negated: bool | None) -> None:
    assert negation(truth) is negated


def test_empty_conjunction_and_disjunction() -> None:
    event = Event("S", {})
    assert evaluate(And(()), event) is True
    assert evaluate(Or(()), event) is False


def test_published_expression_matches_24_and_not_25() -> None:
    """SPEC A-06: the published text, verbatim."""
    interest = parse("(Stock == PETR4) and (Price < 25)")
    assert interest.matches(Event("StockExchange", {"Stock": "PETR4", "Price": 24}))
    assert interest.matches(Event("StockExchange", {"Stock": "PETR4", "Price": 24.99}))
    assert not interest.matches(Event("StockExchange", {"Stock": "PETR4", "Price": 25}))
    assert not interest.matches(Event("StockExchange", {"Stock": "VALE5", "Price": 24}))
    assert not interest.matches(Event("StockExchange", {"Price": 24}))


@pytest.mark.parametrize("text", ["Price < 25", "not (Price < 25)", "Price != 25", "Price == Price"])
def test_missing_attribute_never_matches(text: str) -> None:
    assert value_of(text) is None


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("25", "25"),
        (25, '"25"'),
        (True, "1"),
        (False, "0"),
        (1, "true"),
        ("true", "true"),
        (True, '"true"'),
        (datetime(2009, 6, 1, tzinfo=UTC), '"2009-06-01"'),
        (float("nan"), "1"),
        ("x", "1.5"),
        (["x", True], "1"),
    ],
)
@pytest.mark.parametrize("sign", ["==", "!=", "<", ">="])
def test_mistyped_attribute_is_unknown(value: Any, literal: str, sign: str) -> None:
    """SPEC A-13: a type mismatch never matches, and neither does its negation."""
    if literal == "true" and sign in ("<", ">="):
        return
    assert value_of(f"A {sign} {literal}", A=value) is None
    assert value_of(f"not A {sign} {literal}", A=value) is None


@pytest.mark.parametrize(
    ("sign", "less", "same", "more"),
    [
        ("==", F, T, F),
        ("!=", T, F, T),
        ("<", T, F, F),
        ("<=", T, T, F),
        (">", F, F, T),
        (">=", F, T, T),
    ],
)
@pytest.mark.parametrize(
    ("values", "literal"),
    [
        ((24, 25, 26), "25"),
        ((24.5, 25.0, 25.5), "25"),
        ((24, 25, 26), "25.0"),
        ((2**53, 2**53 + 1, 2**53 + 2), str(2**53 + 1)),
        (("Z", "a", "b"), '"a"'),
        (("a", "aa", "é"), "aa"),
    ],
)
def test_comparison_matrix(
    sign: str, less: bool, same: bool, more: bool, values: tuple[Any, Any, Any], literal: str
) -> None:
    """SPEC A-15: numbers by value, whichever their type; strings by code point."""
    assert [value_of(f"A {sign} {literal}", A=value) for value in values] == [less, same, more]


@pytest.mark.parametrize(("value", "same", "other"), [(True, T, F), (False, F, T)])
def test_boolean_equality(value: bool, same: bool, other: bool) -> None:
    assert value_of("Open == true", Open=value) is same
    assert value_of("Open != TRUE", Open=value) is other


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        (["x", "y"], T),
        (["y", 3, "x"], T),
        (["y"], F),
        (["y", 3], U),
        ([], F),
    ],
)
def test_list_holds_for_some_item(value: list[Any], truth: bool | None) -> None:
    """SPEC A-16, X4: existential over a list; of no item at all it is false, of a mistyped one unknown."""
    assert value_of("Tag == x", Tag=value) is truth
    assert value_of("not Tag == x", Tag=value) is negation(truth)


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_blank_matches_everything(text: str) -> None:
    assert parse(text).matches(Event("S", {}))


def test_boolean_order_built_by_hand_is_unknown() -> None:
    """The language refuses `Open < true`; a tree from elsewhere must not compare bools as numbers."""
    node = Comparison("Open", "<", True)
    for value, truth in ((False, None), ([False], None), ([], False)):
        event = Event("S", {"Open": value})
        assert evaluate(node, event) is truth
        assert compile_node(node)(event.attributes) is truth


@settings(max_examples=300)
@given(data=st.data())
def test_compiled_equals_evaluate(data: st.DataObject, any_tree: Any, any_event: Any) -> None:
    """DESIGN 2.4: the fast form says what the reference says."""
    node, event = data.draw(any_tree), data.draw(any_event)
    assert compile_node(node)(event.attributes) is evaluate(node, event)
