"""Reading and writing the subscription language (SPEC A-06, X3)."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime
from time import thread_time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.filters.trees import question
from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters import parse
from wanderbus.filters.ast import (
    EVERYTHING,
    NOTHING,
    And,
    Clause,
    Exists,
    Node,
    Not,
    Or,
    Predicate,
    Quantified,
)
from wanderbus.filters.eci import read, write

A, B, C = (question(name, "==", 1) for name in "abc")
ABOVE, BELOW = Predicate(">", 5), Predicate("<", 10)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (
            "(Stock == PETR4) and (Price < 25)",
            And((question("Stock", "==", "PETR4"), question("Price", "<", 25))),
        ),
        ("a == 1 or b == 1 and c == 1", Or((A, And((B, C))))),
        ("(a == 1 or b == 1) and c == 1", And((Or((A, B)), C))),
        ("a == 1 and (b == 1 and c == 1)", And((A, B, C))),
        ("((a == 1 or b == 1) or c == 1)", Or((A, B, C))),
        ("not a == 1 and b == 1", And((Not(A), B))),
        ("NOT not (a == 1 AND b == 1)", Not(Not(And((A, B))))),
        ("(a==1)and(b==1)", And((A, B))),
        ("  a\n==\t1 ", A),
        ("", EVERYTHING),
        ("everything", EVERYTHING),
        ("Nothing or a == 1", Or((NOTHING, A))),
        ("exists a and not EXISTS `b`", And((Exists("a"), Not(Exists("b"))))),
    ],
)
def test_trees(text: str, tree: Node) -> None:
    assert parse(text).root == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("Price > 5 and Price < 10", Quantified("any", "Price", And((ABOVE, BELOW)))),
        ("(Price > 5) and (((Price < 10)))", Quantified("any", "Price", And((ABOVE, BELOW)))),
        ("Price > 5 and (Price < 10 and a == 1)", And((Quantified("any", "Price", And((ABOVE, BELOW))), A))),
        ("Price > 5 and a == 1 and Price < 10", And((Quantified("any", "Price", And((ABOVE, BELOW))), A))),
        ("Price > 5 and any Price < 10", And((question("Price", ">", 5), question("Price", "<", 10)))),
        ("any Price > 5 and any Price < 10", And((question("Price", ">", 5), question("Price", "<", 10)))),
        ("Price > 5 or Price < 10", Or((question("Price", ">", 5), question("Price", "<", 10)))),
        ("Price > 5 and not Price < 10", And((question("Price", ">", 5), Not(question("Price", "<", 10))))),
        ("not (Price > 5 and Price < 10)", Not(Quantified("any", "Price", And((ABOVE, BELOW))))),
        (
            "Price > 5 and (Price < 10 or a == 1)",
            And((question("Price", ">", 5), Or((question("Price", "<", 10), A)))),
        ),
    ],
)
def test_comparisons_of_one_and_are_one_clause(text: str, tree: Node) -> None:
    """DESIGN 7.2: satisfied by one value, unless each has its own ``any``."""
    assert parse(text).root == tree


@pytest.mark.parametrize(
    ("condition", "clause"),
    [
        ("> 5", ABOVE),
        ("(> 5)", ABOVE),
        ("(> 5 and < 10)", And((ABOVE, BELOW))),
        ("(> 5 and (< 10 or == 100))", And((ABOVE, Or((BELOW, Predicate("==", 100)))))),
        ("(> 5 and (< 10 and (> 5)))", And((ABOVE, BELOW, ABOVE))),
        ("(not > 5 or not (< 10))", Or((Not(ABOVE), Not(BELOW)))),
        ("(not in (1) and not not in (1))", And((Not(Predicate("in", (1,))), Not(Not(Predicate("in", (1,))))))),
        ("in (1, 2.5, x, 'y z', TRUE)", Predicate("in", (1, 2.5, "x", "y z", True))),
        ("in ()", Predicate("in", ())),
        ("not in (1)", Not(Predicate("in", (1,)))),
        ("prefix PE", Predicate("prefix", "PE")),
        ("Suffix '4'", Predicate("suffix", "4")),
        ("CONTAINS and", None),
        ("contains any", Predicate("contains", "any")),
        ("(everything)", And(())),
        ("(nothing or > 5)", Or((Or(()), ABOVE))),
    ],
)
def test_clauses(condition: str, clause: Clause | None) -> None:
    if clause is None:
        with pytest.raises(FilterError, match="keyword"):
            parse(f"all a {condition}")
        return
    assert parse(f"all a {condition}").root == Quantified("all", "a", clause)
    assert parse(f"ANY a {condition}").root == Quantified("any", "a", clause)
    if condition[0] != "(":
        assert parse(f"a {condition}").root == Quantified("any", "a", clause)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("any == 1", "any"),
        ("exists == 1", "exists"),
        ("everything == 1", "everything"),
        ("in == 1", "in"),
        ("prefix == 1", "prefix"),
        ("cesql == 1", "cesql"),
        ("any any == 1", "any"),
        ("any `in` == 1", "in"),
        ("any `and` == 1", "and"),
        (r"`my \` name\u0021\n` == 1", "my ` name!\n"),
        ("`` == 1", ""),
    ],
)
def test_names_that_are_words(text: str, name: str) -> None:
    """Those that the grammar does not expect are names; in backquotes every name can be written."""
    assert parse(text).root == question(name, "==", 1)


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
        ("in", "in"),
        (r"'\u00e9\u2028'", "é\u2028"),
        ("+inf", math.inf),
        ("-inf", -math.inf),
        ("2026-11-21T10:00:00Z", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21t10:00:00.25z", datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)),
        ("2026-11-21T12:00:00+02:00", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2026-11-21T07:30:00.000001-02:30", datetime(2026, 11, 21, 10, 0, 0, 1, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
    ],
)
def test_literals(literal: str, value: Any) -> None:
    node = parse(f"A == {literal}").root
    assert node == question("A", "==", value)


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("space", ["", " "])
def test_operators(sign: str, space: str) -> None:
    assert parse(f"A{space}{sign}{space}-1").root == question("A", sign, -1)


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
        ("Day == 2009-06-31", 7, "there is no date"),
        ("Day == 2009-06-01T10:00:00", 26, "needs its offset"),
        ("Day == 2009-06-01T10:00:00.1234567Z", 33, "six digits of a second"),
        ("Day == 2009-06-01T10:00Z", 7, "is not a date"),
        ("Day == 2009-6-1", 7, "is not a date"),
        ("Day == 2009-06-01T24:00:00Z", 7, "there is no date"),
        ("Day == 2009-06-01T10:00:00+24:00", 7, "there is no date"),
        ("Day == 1.6.2009", 7, "is not a number"),
        ("Price == 1..2", 9, "is not a number"),
        ("Price == 9223372036854775808", 9, "beyond 64 bits"),
        ("Price == " + "9" * 5000, 9, "beyond 64 bits"),
        ("Price == 1e999", 9, "too large"),
        ("Open < true", 5, "no order"),
        ("Price == -", 9, "unexpected character"),
        ("Stock == caf\u00e9 and ¿ == 1", 18, "unexpected character"),
        ("Stock == \ud800", 9, "surrogate"),
        ("a == 1\x00", 6, "unexpected character"),
        ("a <> 1", 2, "write '!='"),
        ("any", 3, "expected a comparison"),
        ("exists", 6, "expected a comparison"),
        ("exists and", 7, "expected a comparison"),
        ("any a", 5, "expected a comparison such as '==' after 'a'"),
        ("any a (5)", 7, "expected a comparison such as '=='"),
        ("any a (> 5 and a == 1)", 15, "expected a comparison such as '=='"),
        ("any a (> 5", 6, "never closed"),
        ("a in 1", 5, "a list such as (1, 2)"),
        ("a in (1 2)", 8, "expected ',' or ')'"),
        ("a in (1,)", 8, "expected a value after ','"),
        ("a in (", 6, "expected a value after '('"),
        ("a in (1", 5, "never closed"),
        ("a not == 1", 2, "expected a comparison"),
        ("a prefix 5", 9, "compares text only; put '5' in quotes"),
        ("a contains true", 11, "compares text only"),
        ("a prefix", 8, "expected a value after 'prefix'"),
        ("and(a == 1", 3, "never closed"),
        ("and(a == 1 b", 11, "expected 'and', 'or', ',' or ')'"),
        ("`a == 1", 0, "backquote is never closed"),
        (r"a == '\u12'", 6, "four hexadecimal digits"),
        (r"a == '\ud800'", 6, "surrogate"),
        ('a == "' + r"\"" * 8_000, 5, "never closed"),
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
    with pytest.raises(FilterError, match=r"no filter language 'sql'; use one of eci, cesql, xml$") as caught:
        parse("a == 1", language="sql")
    assert caught.value.position is None
    assert caught.value.pointed() == str(caught.value)


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("not(", ")"), ("and(", ")")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    levels = limits.EXPRESSION_DEPTH_MAX // (2 if opening == "not(" else 1)
    parse(opening * levels + "a == 1" + closing * levels)
    with pytest.raises(FilterError, match="deep") as caught:
        parse(opening * (levels + 1) + "a == 1" + closing * (levels + 1))
    assert caught.value.position == len(opening) * levels


def test_depth_counts_clauses_too() -> None:
    levels = limits.EXPRESSION_DEPTH_MAX // 2
    parse("(" * levels + "any a " + "(" * levels + "> 5" + ")" * 2 * levels)
    with pytest.raises(FilterError, match="deep"):
        parse("(" * levels + "any a " + "(" * (levels + 1) + "> 5" + ")" * (2 * levels + 1))


def test_depth_does_not_count_not_in() -> None:
    levels = limits.EXPRESSION_DEPTH_MAX - 1
    parse("(" * levels + "any a (not in (1))" + ")" * levels)


def test_far_too_deep_is_a_filter_error() -> None:
    with pytest.raises(FilterError, match="deep"):
        parse("(" * limits.EXPRESSION_CHARACTERS_MAX)


def test_length_is_bounded() -> None:
    longest = limits.EXPRESSION_CHARACTERS_MAX
    parse("a == 1".ljust(longest))
    with pytest.raises(FilterError, match="at most"):
        parse("a == 1".ljust(longest + 1))


@pytest.mark.parametrize(
    "text",
    [
        "a == 1".ljust(limits.EXPRESSION_CHARACTERS_MAX),
        "a == " + "1" * 16_000 + "x",
        "a == 1." + "1" * 16_000 + "x",
        'a == "' + r"\"" * 8_000,
        "a == 1 " + "`" * 16_001,
        "(" * 16_000,
        "not in " * 2_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    """In time that is linear in the text: a quadratic reader takes seconds for these, in place of milliseconds."""
    began = thread_time()
    with suppress(FilterError):
        parse(text)
    assert thread_time() - began < 0.5


def test_wide_expressions_are_not_deep() -> None:
    assert isinstance(parse(" or ".join(["a == 1"] * 1000)).root, Or)


def test_booleans_are_not_numbers_in_trees() -> None:
    assert question("a", "==", True) != question("a", "==", 1)
    assert len({question("a", "==", True), question("a", "==", 1), question("a", "==", 1)}) == 2


@pytest.mark.parametrize(("text", "position"), [("b == 1 and cesql 'a = '", 22), (r"cesql 'a = \'x'", 6)])
def test_faults_in_quoted_cesql_are_pointed_at(text: str, position: int) -> None:
    with pytest.raises(FilterError, match="cesql") as caught:
        parse(text)
    assert caught.value.position == position


WORDS = ("any ", " all", " in ", "exists ", " prefix ", "and(", "or(", "everything", "2026-11-21", "T10:00:00Z", "true")
SIGNS = ("(", ")", ",", "==", "<", ">=", "=", '"', "'", "`", "\\", " ")
PIECES = st.sampled_from((*WORDS, *SIGNS, " and ", " or ", "not ", "a", "Price", "25", "-1.5e3"))


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
    assert error.position is not None
    assert 0 <= error.position <= len(text)
    assert error.pointed().endswith("^")
