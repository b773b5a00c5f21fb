"""Reading and writing the subscription language (SPEC A-06, X3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters import parse
from wanderbus.filters.ast import And, Comparison, Node, Not, Or
from wanderbus.filters.language import read, write

A, B, C = (Comparison(name, "==", 1) for name in "abc")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (
            "(Stock == PETR4) and (Price < 25)",
            And((Comparison("Stock", "==", "PETR4"), Comparison("Price", "<", 25))),
        ),
        ("a == 1 or b == 1 and c == 1", Or((A, And((B, C))))),
        ("(a == 1 or b == 1) and c == 1", And((Or((A, B)), C))),
        ("a == 1 and (b == 1 and c == 1)", And((A, B, C))),
        ("((a == 1 or b == 1) or c == 1)", Or((A, B, C))),
        ("not a == 1 and b == 1", And((Not(A), B))),
        ("NOT not (a == 1 AND b == 1)", Not(Not(And((A, B))))),
        ("(a==1)and(b==1)", And((A, B))),
        ("  a\n==\t1 ", A),
        ("", And(())),
    ],
)
def test_trees(text: str, tree: Node) -> None:
    assert parse(text).root == tree


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("25", 25),
        ("-25", -25),
        ("+007", 7),
        ("0" * 5000 + "1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("2.5", 2.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5e-3", -0.0015),
        ("1E3", 1000.0),
        ("true", True),
        ("False", False),
        ("PETR4", "PETR4"),
        ("sip:alice@lac.inf.puc-rio.br", "sip:alice@lac.inf.puc-rio.br"),
        ("São_Paulo/GRU", "São_Paulo/GRU"),
        ("inf", "inf"),
        ("nan", "nan"),
        ("truest", "truest"),
        ('"two words"', "two words"),
        ("'two words'", "two words"),
        ('"and"', "and"),
        ('"it\'s"', "it's"),
        (r'"\"\\\n\r\t\'"', "\"\\\n\r\t'"),
        (r"'\'(or)'", "'(or)"),
        ('"a\nb"', "a\nb"),
        ('""', ""),
    ],
)
def test_literals(literal: str, value: Any) -> None:
    node = parse(f"A == {literal}").root
    assert isinstance(node, Comparison)
    assert (node.value, type(node.value)) == (value, type(value))


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("space", ["", " "])
def test_operators(sign: str, space: str) -> None:
    assert parse(f"A{space}{sign}{space}-1").root == Comparison("A", sign, -1)  # type: ignore[arg-type]  # parametrised


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("Price", 5, "expected a comparison"),
        ("Price ==", 8, "expected a value after '=='"),
        ("Price = 25", 6, "write '=='"),
        ("Price == 25 Stock == X", 12, "expected 'and', 'or' or the end"),
        ("Price == 25)", 11, "closes nothing"),
        ("a == 1 and (Price == 25", 11, "never closed"),
        ("a == 1 and (Price == 25 b", 24, "expected 'and', 'or' or ')'"),
        ("()", 1, "attribute's name"),
        ("Price == 25 and", 15, "found the end"),
        ("Price == 25 && a == 1", 12, "write 'and'"),
        ("Price == 25 || a == 1", 12, "write 'or'"),
        ("!(Price == 25)", 0, "write 'not'"),
        ("Stock == or", 9, "is a keyword"),
        ("25 > Price", 0, "attribute's name"),
        ('"Stock" == PETR4', 0, "attribute's name"),
        ("and == 1", 0, "attribute's name"),
        ('Stock == "PETR4', 9, "never closed"),
        (r'Stock == "a\qb"', 11, "unknown escape"),
        ("Day == 2009-06-01", 7, "is not a number"),
        ("Price == 1..2", 9, "is not a number"),
        ("Price == 9223372036854775808", 9, "beyond 64 bits"),
        ("Price == " + "9" * 5000, 9, "beyond 64 bits"),
        ("Price == 1e999", 9, "too large"),
        ("Open < true", 5, "no order"),
        ("Price == -", 9, "unexpected character"),
        ("Stock == caf\u00e9 and ¿ == 1", 18, "unexpected character"),
        ("Stock == \ud800", 9, "surrogate"),
        ("a == 1\x00", 6, "unexpected character"),
    ],
)
def test_errors_point_at_the_fault(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError, match=r" at character ") as caught:
        parse(text)
    assert reason in caught.value.reason
    assert caught.value.position == position
    assert caught.value.text == text


def test_error_shows_a_caret_on_the_right_line() -> None:
    with pytest.raises(FilterError, match="at character 14") as caught:
        parse("a == 1\nand b = 2")
    assert caught.value.pointed().splitlines()[1:] == ["  and b = 2", "        ^"]


def test_unknown_language_is_refused() -> None:
    with pytest.raises(FilterError, match="cesql"):
        parse("a == 1", language="cesql")


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("not(", ")")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    levels = limits.EXPRESSION_DEPTH_MAX // (2 if opening == "not(" else 1)
    parse(opening * levels + "a == 1" + closing * levels)
    with pytest.raises(FilterError, match="deep") as caught:
        parse(opening * (levels + 1) + "a == 1" + closing * (levels + 1))
    assert caught.value.position == len(opening) * levels


def test_far_too_deep_is_a_filter_error() -> None:
    with pytest.raises(FilterError, match="deep"):
        parse("(" * limits.EXPRESSION_CHARACTERS_MAX)


def test_length_is_bounded() -> None:
    longest = limits.EXPRESSION_CHARACTERS_MAX
    parse("a == 1".ljust(longest))
    with pytest.raises(FilterError, match="at most"):
        parse("a == 1".ljust(longest + 1))


def test_length_is_bounded_as_written_in_full() -> None:
    text = " or ".join(["a<9e15"] * 1500)
    assert len(text) < limits.EXPRESSION_CHARACTERS_MAX
    with pytest.raises(FilterError, match="in full"):
        parse(text)


def test_wide_expressions_are_not_deep() -> None:
    assert isinstance(parse(" or ".join(["a == 1"] * 1000)).root, Or)


def test_booleans_are_not_numbers_in_trees() -> None:
    assert Comparison("a", "==", True) != Comparison("a", "==", 1)
    assert len({Comparison("a", "==", True), Comparison("a", "==", 1), Comparison("a", "==", 1)}) == 2


def test_canonical_text() -> None:
    text = "((Stock == PETR4)) AND ( Price<25 or not(Price >= 1e3) )"
    assert str(parse(text)) == 'Stock == "PETR4" and (Price < 25 or not Price >= 1000.0)'
    assert parse(text).text == text


@settings(max_examples=300)
@given(data=st.data())
def test_canonical_text_round_trips(data: st.DataObject, any_tree: Any, any_event: Any) -> None:
    """parse(str(f)) has the tree of f, is a fixed point, and decides events alike, whatever tree was written."""
    node = data.draw(any_tree)
    once = parse(write(node))
    again = parse(str(once))
    assert again.root == once.root
    assert str(again) == str(once)
    event = data.draw(any_event)
    assert parse(write(node)).evaluate(event) is again.evaluate(event)


PIECES = st.sampled_from(
    ["(", ")", " and ", " or ", "not ", "a", "Price", "==", "<", ">=", "=", "25", "-1.5e3", '"', "'", "\\", " ", "true"]
)


@settings(max_examples=500)
@example("\x1c")
@example("'\\")
@given(st.text(max_size=60) | st.lists(PIECES, max_size=25).map("".join))
def test_any_text_gives_a_tree_or_a_filter_error(text: str) -> None:
    try:
        node = read(text)
    except FilterError as raised:
        error = raised
    else:
        assert read(write(node)) == node
        return
    assert 0 <= error.position <= len(text)
    assert error.pointed().endswith("^")
