"""Meaning of expressions: the truth tables and the type rules of DESIGN 7.1."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings

from tests.filters import trees
from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.ast import And, Node, Or, Predicate, Quantified
from wanderbus.filters.compiled import compile_node
from wanderbus.filters.evaluate import COMPARE, OF_KIND, conjunction, disjunction, evaluate, holds, negation

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


DAY, NEXT = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
ALIKE = datetime(2026, 11, 21, 2, tzinfo=timezone(timedelta(hours=2)))
VALUES: dict[str, tuple[Any, Any, str]] = {
    "number": (1, 2.5, "2.5"),
    "string": ("PETR", "PETR4", "PETR4"),
    "boolean": (False, True, "true"),
    "date": (DAY, NEXT, "2026-11-22"),
}
"""Values by kind: one value, a greater one where the kind is ordered, and the latter as a literal."""

ON_ONE_AND_OTHER: dict[str, tuple[bool, bool]] = {
    "==": (F, T),
    "!=": (T, F),
    "<": (T, F),
    "<=": (T, T),
    ">": (F, F),
    ">=": (F, T),
    "in": (F, T),
    "not in": (T, F),
    "prefix": (F, T),
    "suffix": (F, T),
    "contains": (F, T),
}


@pytest.mark.parametrize("sign", ON_ONE_AND_OTHER)
@pytest.mark.parametrize("kind", VALUES)
def test_type_times_predicate_matrix(kind: str, sign: str) -> None:
    """SPEC A-15: every kind with every predicate, and with values of every other kind."""
    one, other, literal = VALUES[kind]
    text = f"A {sign} ({literal})" if sign.endswith("in") else f"A {sign} {literal}"
    if sign.removeprefix("not ") not in OF_KIND[kind]:
        with pytest.raises(
            FilterError, match="no order" if kind == "boolean" and sign[0] in "<>" else "compares text only"
        ):
            parse(text)
        return
    assert (value_of(text, A=one), value_of(text, A=other)) == ON_ONE_AND_OTHER[sign]
    for another in VALUES.keys() - {kind}:
        assert value_of(text, A=VALUES[another][1]) is None
    assert value_of(text, A=float("nan")) is None
    assert value_of(text) is None


@pytest.mark.parametrize(
    ("text", "value", "truth"),
    [
        ("A prefix PE", "PETR4", T),
        ("A prefix ETR", "PETR4", F),
        ("A suffix R4", "PETR4", T),
        ("A suffix R", "PETR4", F),
        ("A contains ETR", "PETR4", T),
        ("A contains etr", "PETR4", F),
        ("A contains ''", "", T),
        ("A in (1, 2)", 2.0, T),
        ("A in (1, 2)", 3, F),
        ("A in (1, x)", 1, T),
        ("A in (1, x)", 2, U),
        ("A in (1, x)", True, U),
        ("A in ()", 1, F),
        ("A not in ()", 1, T),
        ("A == 2026-11-21", ALIKE, T),
        ("A == 2026-11-21T02:00:00+02:00", DAY, T),
        ("A < 2026-11-21T00:00:00.000001Z", ALIKE, T),
    ],
)
def test_matching_and_dates(text: str, value: Any, truth: bool | None) -> None:
    assert value_of(text, A=value) is truth


@pytest.mark.parametrize(
    ("text", "value", "truth"),
    [
        ("any A > 5", [1, 9], T),
        ("any A > 5", [1, "x"], U),
        ("any A > 5", [9, "x"], T),
        ("any A > 5", [], F),
        ("any A > 5", 9, T),
        ("all A > 5", [6, 9], T),
        ("all A > 5", [1, 9], F),
        ("all A > 5", [9, "x"], U),
        ("all A > 5", [1, "x"], F),
        ("all A > 5", [], T),
        ("all A > 5", 9, T),
        ("all A > 5", 1, F),
        ("all A (> 5 and (< 10 or == 100))", [6, 100], T),
        ("all A (> 5 and (< 10 or == 100))", [6, 50], F),
        ("any A (> 5 and < 10)", [1, 50], F),
        ("any A > 5 and any A < 10", [1, 50], T),
        ("A > 5 and A < 10", [1, 50], F),
        ("A > 5 and A < 10", [1, 7], T),
        ("A > 5 and B == 1 and A < 10", [1, 50], F),
        ("A not in (1, 2)", [1, 3], T),
        ("all A not in (1, 2)", [1, 3], F),
        ("any A > 5", [[9]], U),
        ("exists A", [], T),
        ("not exists A", 1, F),
    ],
)
def test_quantifiers(text: str, value: Any, truth: bool | None) -> None:
    """SPEC A-16: over lists, the empty one included; a value that is no list is its own only item."""
    assert value_of(text, A=value, B=1) is truth
    assert compile_node(parse(text).root)({"A": value, "B": 1}) is truth


def test_exists_is_never_unknown() -> None:
    assert value_of("exists A") is False
    assert value_of("not exists A") is True
    assert value_of("all A > 5") is None


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_blank_matches_everything(text: str) -> None:
    assert parse(text).matches(Event("S", {}))


def test_boolean_order_built_by_hand_is_unknown() -> None:
    """The language refuses `Open < true`; a tree from elsewhere must not compare bools as numbers."""
    node = Quantified("any", "Open", Predicate("<", True))
    for value, truth in ((False, None), ([False], None), ([], False)):
        event = Event("S", {"Open": value})
        assert evaluate(node, event) is truth
        assert compile_node(node)(event.attributes) is truth


@settings(max_examples=300)
@given(trees.nodes(), trees.events())
def test_compiled_equals_evaluate(node: Node, event: Event) -> None:
    """DESIGN 2.4: the compiled form gives the result of the reference."""
    assert compile_node(node)(event.attributes) is evaluate(node, event)


def test_compiled_equals_evaluate_by_seed() -> None:
    random, seen = Random(3), Counter[bool | None]()
    for _ in range(3_000):
        node = trees.random_node(random, residuals=True)
        event = trees.random_event(random, node)
        truth = evaluate(node, event)
        assert compile_node(node)(event.attributes) is truth, (node, event)
        seen[truth] += 1
    assert min(seen[each] for each in TRUTHS) > 300


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">=", "in"])
def test_dates_compare_by_instant_also_in_the_hour_that_clocks_show_twice(sign: Any) -> None:
    zone = ZoneInfo("Europe/Lisbon")
    first = datetime(2026, 10, 25, 1, 30, tzinfo=zone, fold=0)
    again = first.replace(fold=1)
    operand: Any = (first,) if sign == "in" else first
    node = Quantified("any", "at", Predicate(sign, operand))
    for value, hours in ((first, 0), (again, 1), (first.astimezone(UTC), 0), (again.astimezone(UTC), 1)):
        wanted = hours == 0 if sign == "in" else COMPARE[sign](hours, 0)
        assert holds(node, {"at": value}) is compile_node(node)({"at": value}) is wanted


def test_a_date_without_a_time_zone_and_one_at_the_end_of_time() -> None:
    last = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
    node = Quantified("any", "at", Predicate("<", last))
    for value, wanted in ((datetime(2026, 1, 1), None), (datetime.max.replace(tzinfo=UTC), True), (last, False)):
        assert holds(node, {"at": value}) is compile_node(node)({"at": value}) is wanted
