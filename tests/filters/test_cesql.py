"""CESQL read, written and evaluated, section by section of the specification (SPEC U-04; CESQL 1.0.0)."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.filters.cesql_trees import random_expression
from wanderbus import limits
from wanderbus.errors import FilterError
from wanderbus.filters.cesql import canonical, casting, evaluate, patterns
from wanderbus.filters.cesql.evaluating import result
from wanderbus.filters.cesql.reading import read
from wanderbus.filters.cesql.writing import write

EVENT = {
    "id": "1", "hop": 5, "ttl": "7", "on": True, "firstname": "Francesco", "subject": "x_y%z\\", "Price": 25.5,
    "list": ["x", 5, True], "none": [], "far": 2**40, "two": 2.0,
    "time": datetime(2018, 4, 26, 14, 48, 9, tzinfo=timezone(timedelta(hours=2))),
    "noon": datetime(2026, 11, 21, 12, tzinfo=UTC),
}  # fmt: skip


def gives(expression: str) -> tuple[Any, str | None]:
    value, error = evaluate(expression, EVENT)
    return (value, error)


def check(expression: str, value: Any, error: str | None = None) -> None:
    found = gives(expression)
    assert (type(found[0]), *found) == (type(value), value, error)


# Reading (2) ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a OR b AND c", "(a OR b) AND c"),
        ("a XOR b OR c", "(a XOR b) OR c"),
        ("a = b AND c", "(a = b) AND c"),
        ("1 + 2 * 3 = 7", "(1 + (2 * 3)) = 7"),
        ("1 < 2 < 3", "(1 < 2) < 3"),
        ("NOT a = b", "(NOT a) = b"),
        ("NOT a LIKE 'x'", "(NOT a) LIKE 'x'"),
        ("NOT EXISTS a", "NOT (EXISTS a)"),
        ("- a * b", "(-a) * b"),
        ("1 + a IN (1)", "1 + (a IN (1))"),
        ("a IN (b) LIKE 'x'", "(a IN (b)) LIKE 'x'"),
        ("4-1", "4 - 1"),
        ("4 -1", "4 - 1"),
        ("4--1", "4 - -1"),
        ("4 + +1", "4 + 1"),
        ("a <> b", "a != b"),
        ("concat ( a , b )", "CONCAT(a, b)"),
        ("not a aNd tRuE", "NOT a AND TRUE"),
        ("\ta\r\n=\n1 ", "a = 1"),
        ("'a'='b'", "'a' = 'b'"),
        ('"it\'s"', r"'it\'s'"),
    ],
)
def test_two_texts_are_one_tree(text: str, same: str) -> None:
    assert read(text) == read(same)
    assert read(write(read(text))) == read(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("((a))", "a"),
        ("(a and b) and c", "a AND b AND c"),
        ("a and (b and c)", "a AND (b AND c)"),
        ("(a + b) * c", "(a + b) * c"),
        ("- 10", "- 10"),
        ("-(-10)", "--10"),
        ("- 2x", "- 2x"),
        ("(a like 'x') not in (1)", "a LIKE 'x' NOT IN (1)"),
        ("-(a like '%')", "-(a LIKE '%')"),
        (r"'\'\"\n'", r"'\'\"\n'"),
        (r'''"\'"''', r'''"\'"'''),
        ("f()", "F()"),
        ("+7", "7"),
    ],
)
def test_canonical_text(text: str, written: str) -> None:
    assert canonical(text) == written


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", 0), ("  ", 2), ("a =", 3), ("= 1", 0), ("a b", 2), ("(a", 0), ("a)", 1), ("a IN ()", 6), ("a IN 1", 5),
        ("a IN (1,)", 8), ("a LIKE b", 7), ("a LIKE 1", 7), ("a LIKE", 6), ("a NOT b", 6), ("EXISTS", 6),
        ("EXISTS 12", 7), ("EXISTS (a)", 7), ("EXISTS true", 7), ("2147483648", 0), ("1 = -2147483649", 4), ("a_b", 0),
        ("f2(a)", 0), ("_f(a)", 0), ("f(a", 1), ("f(,a)", 2), ("'abc", 0), ('a = "abc', 4), ("a == 1", 3), ("+a", 0),
        ("a & b", 2), ("a\x0cb", 1), ("a\xa0= 1", 1), ("ação", 1), ("'a''b'", 3), ("a; b", 1), ("'\ud800'", 1),
        ("TRUE FALSE", 5), ("1abc(2)", 0), ("- 2147483648", 2), ("1" * 5000, 0),
    ],
)  # fmt: skip
def test_syntax_errors_name_their_position(text: str, at: int) -> None:
    with pytest.raises(FilterError) as caught:
        read(text)
    assert caught.value.position == at
    check(text, False, "parse")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 8000, "(" * 65 + "a" + ")" * 65, "NOT " * 4000 + "a", "-" * 16000 + "a", "a" + " LIKE 'x'" * 1600,
        "f(" * 65 + "a" + ")" * 65, "a" * 17000, "a = " * 4000, "'" + "\\'" * 8000, "a LIKE '%" + "x_" * 600 + "%'",
    ],
)  # fmt: skip
def test_bounds(text: str) -> None:
    with pytest.raises(FilterError):
        read(text)


def test_a_chain_may_be_as_long_as_the_text() -> None:
    half = limits.EXPRESSION_CHARACTERS_MAX // 2
    assert gives("1+" * (half - 1) + "1") == (half, None)
    deepest = limits.EXPRESSION_DEPTH_MAX - 1
    assert gives("(" * deepest + "1" + ")" * deepest) == (1, None)


WORDS = [*"ab12'\"\\()=<>!+-*/%_, \n", " NOT ", " AND ", " LIKE ", " IN (", " EXISTS ", "concat("]


@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join) | st.text(max_size=40))
@example("1_1(")
def test_garbage_is_read_or_refused(text: str) -> None:
    try:
        root = read(text)
    except FilterError as error:
        refused: FilterError | None = error
    else:
        refused = None
        assert read(write(root)) == root
    value, error_kind = evaluate(text, EVENT)
    assert isinstance(value, str | int)
    assert (error_kind == "parse") is (refused is not None)
    if refused is not None:
        assert 0 <= (refused.position or 0) <= len(text)


@given(st.randoms(use_true_random=False))
def test_the_canonical_text_reads_to_the_same_tree(rng: random.Random) -> None:
    root = random_expression(rng, 4)
    text = write(root)
    assert read(text) == root
    assert canonical(text) == text


# Values (3.1, 3.2, 3.7) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("hop", 5), ("on", True), ("firstname", "Francesco"), ("Price", "25.5"), ("two", "2.0"),
        ("far", "1099511627776"), ("noon", "2026-11-21T12:00:00Z"), ("time", "2018-04-26T12:48:09Z"),
        ("list", '["x",5,true]'), ("none", "[]"), ("ID", "1"), ("Subject", "x_y%z\\"),
    ],
)  # fmt: skip
def test_types_of_attributes(expression: str, value: Any) -> None:
    check(expression, value)


@pytest.mark.parametrize(
    ("expression", "value", "error"),
    [
        ("missing", False, "missingAttribute"), ("price", False, "missingAttribute"),
        ("missing * 5", 0, "missingAttribute"), ("1 / missing", 0, "missingAttribute"),
        ("true AND (missing = '')", False, "missingAttribute"), ("CONCAT('a', missing)", "", "missingAttribute"),
        ("ABS(missing)", 0, "missingAttribute"), ("missing NOT LIKE 'a'", False, "missingAttribute"),
        ("missing NOT IN (1)", False, "missingAttribute"), ("1 IN (1, missing)", False, "missingAttribute"),
        ("missing = 1 OR true", False, "missingAttribute"), ("false AND missing", False, None),
        ("true OR missing", True, None), ("EXISTS missing", False, None), ("EXISTS type", True, None),
        ("EXISTS Type AND EXISTS ID", True, None), ("EXISTS TIME", True, None), ("EXISTS dataschema", False, None),
        ("EXISTS price", False, None),
    ],
)  # fmt: skip
def test_missing_attributes(expression: str, value: Any, error: str | None) -> None:
    check(expression, value, error)


@pytest.mark.parametrize(
    ("expression", "value", "error"),
    [
        ("INT('+0012')", 12, None), ("INT('-2147483648')", -(2**31), None), ("INT('2147483648')", 0, "cast"),
        ("INT('')", 0, "cast"), ("INT(' 1')", 0, "cast"), ("INT('1.0')", 0, "cast"), ("INT('\u0661')", 0, "cast"),
        ("BOOL('tRuE')", True, None), ("BOOL('1')", False, "cast"), ("BOOL(-1)", True, None), ("BOOL(0)", False, None),
        ("STRING(-7)", "-7", None), ("STRING(true)", "true", None), ("INT(true)", 1, None), ("INT(far)", 0, "cast"),
        ("TRUE = \"true\" AND FALSE = \"false\"", True, None), ("TRUE = \"TRUE\" OR FALSE = \"FALSE\"", False, None),
        ("hop = '5'", True, None), ("hop = '05'", False, None), ("ttl = 7", True, None), ("'07' = 7", True, None),
        ("5 = TRUE", True, None), ("TRUE = 5", False, None), ("TRUE = 1", True, None), ("'x' = 0", False, "cast"),
        ("'x' != 1", False, "cast"), ("1 AND TRUE", True, None), ("'no' AND TRUE", False, "cast"),
        ("TRUE XOR 'TRUE'", False, None), ("NOT 'no'", True, "cast"), ("NOT (NOT 10)", False, "cast"),
        ("'x' < 5", False, "cast"), ("5 > 'x'", False, "cast"), ("'x' + 5", 0, "cast"), ("hop < ttl", True, None),
        ("LENGTH(sequence + 10)", 0, "missingAttribute"), ("LENGTH(hop + 10)", 2, None), ("Price < 30", False, "cast"),
    ],
)  # fmt: skip
def test_casts(expression: str, value: Any, error: str | None) -> None:
    check(expression, value, error)


@pytest.mark.parametrize(
    ("expression", "value", "error"),
    [
        ("list = 'x'", True, None), ("list = 5", True, None), ("list != 'x'", False, None),
        ("list != 'y'", True, None), ("list = 'y'", False, None), ("list = 6", False, "cast"),
        ("list LIKE 'tr%'", True, None), ("list IN ('q', 'x')", True, None), ("list IN (TRUE)", True, None),
        ("none = 'x'", False, None), ("none != 'x'", True, None), ("none LIKE '%'", False, None),
        ("'[]' = none", True, None), ("LENGTH(list)", 12, None), ("list AND TRUE", False, "cast"),
    ],
)  # fmt: skip
def test_lists(expression: str, value: Any, error: str | None) -> None:
    check(expression, value, error)


# Operators (3.3, 3.4, 3.6) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value", "error"),
    [
        ("-7 / 2", -3, None), ("7 / -2", -3, None), ("-7 % 2", -1, None), ("7 % -2", 1, None), ("-7 / -2", 3, None),
        ("2147483647 + 1", 0, "math"), ("-2147483648 - 1", 0, "math"), ("65536 * 65536", 0, "math"),
        ("--2147483648", 0, "math"), ("-2147483648 / -1", 0, "math"), ("-2147483648 % -1", 0, None),
        ("8 / 4 / 2", 1, None), ("8 - 4 - 2", 2, None), ("1 / 0 = 0", False, "math"),
        ("NOT (1 / 0 = 0)", False, "math"),
        ("-(1 / 0)", 0, "math"), ("'x' / 0", 0, "cast"), ("LENGTH(ABS(-2147483648))", 0, "math"),
        ("false AND true OR true", True, None), ("true OR true AND false", False, None),
        ("true OR true XOR true", False, None), ("false AND (1 / 0) XOR true", True, None),
        ("1 < 2 < 2", True, None), ("2 <= 1", False, None), ("'3' >= 3", True, None),
    ],
)  # fmt: skip
def test_operators(expression: str, value: Any, error: str | None) -> None:
    check(expression, value, error)


@pytest.mark.parametrize(
    ("value", "pattern", "matches"),
    [
        ("abc", "abc", True), ("abc", "a_c", True), ("abc", "a%", True), ("abc", "%c", True), ("abc", "%", True),
        ("", "%", True), ("", "", True), ("", "_", False), ("abc", "", False), ("aBc", "_b%", False),
        ("abcd1", "_b%", True), ("b", "_b%", False), ("abc%", r"abc\%", True), ("abcd", r"abc\%", False),
        ("a_c", r"a\_c", True), ("abc", r"a\_c", False), ("a.c", "a.c", True), ("abc", "a.c", False),
        ("ab*", "_b*", True), ("a\nb", "a%b", True), ("a\nb", "a_b", True), (r"a\b", r"a\b", True),
        ("abab", "%ab%ab%", True), ("aba", "%ab%ab%", False), ("aba", "ab%ba", False), ("abba", "ab%ba", True),
        ("xaxb", "%a%b", True), ("ab", "%a_b", False), ("aaab", "%a_b", True), ("aabb", "%a_b%", True),
        ("abc", "%%c%%", True), ("[", "[", True),
    ],
)  # fmt: skip
def test_like(value: str, pattern: str, matches: bool) -> None:
    event = {"x": value}
    quoted = "'" + pattern + "'"
    assert evaluate(f"x LIKE {quoted}", event) == (matches, None)
    assert evaluate(f"x NOT LIKE {quoted}", event) == (not matches, None)


@pytest.mark.parametrize(
    ("expression", "value", "error"),
    [
        ("hop LIKE '5'", True, None), ("TRUE LIKE 'tr__'", True, None), ("'1' IN (1, 2)", True, None),
        ("'01' IN (1, 2)", False, None), ("1 IN ('01')", True, None), ("TRUE IN ('TRUE')", True, None),
        ("TRUE IN (7)", True, None), ("1 NOT IN (2, 3)", True, None), ("1 IN (1, 'x')", True, None),
        ("1 IN ('x', 1)", True, None), ("1 IN ('x', 2)", False, "cast"), ("1 NOT IN ('x', 2)", False, "cast"),
        ("hop + 1 IN (6)", 5, None), ("(hop + 1) IN (hop, 5 + 1)", True, None), ("'a' IN ('A')", False, None),
    ],
)  # fmt: skip
def test_like_and_in_cast(expression: str, value: Any, error: str | None) -> None:
    check(expression, value, error)


# Functions (3.5) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value", "error"),
    [
        ("LENGTH('')", 0, None), ("LENGTH('ação\U0001f600')", 5, None), ("length(123)", 3, None),
        ("CONCAT()", "", None),
        ("CONCAT('a', 1, TRUE)", "a1true", None), ("CONCAT_WS(',')", "", None), ("CONCAT_WS(',', 'a')", "a", None),
        ("CONCAT_WS(',', 'a', '', 'b')", "a,,b", None), ("LOWER('AÇ')", "aç", None), ("UPPER('aç')", "AÇ", None),
        ("TRIM(' \u2003\ta b\x85\n')", "a b", None), ("TRIM('\x1fa\x1c')", "\x1fa\x1c", None),
        ("LEFT('abc', 2)", "ab", None), ("LEFT('abc', 9)", "abc", None), ("LEFT('abc', 0)", "", None),
        ("LEFT('abc', -1)", "abc", "functionEvaluation"), ("RIGHT('abc', 2)", "bc", None),
        ("RIGHT('abc', 9)", "abc", None), ("RIGHT('abc', 0)", "", None),
        ("RIGHT('abc', -1)", "abc", "functionEvaluation"),
        ("SUBSTRING('abc', 2)", "bc", None), ("SUBSTRING('abc', -2)", "bc", None), ("SUBSTRING('abc', 0)", "", None),
        ("SUBSTRING('abc', 3)", "c", None), ("SUBSTRING('abc', 4)", "", "functionEvaluation"),
        ("SUBSTRING('abc', -3)", "abc", None), ("SUBSTRING('abc', -4)", "", "functionEvaluation"),
        ("SUBSTRING('abc', 2, 1)", "b", None), ("SUBSTRING('abc', -3, 2)", "ab", None),
        ("SUBSTRING('abc', 2, 9)", "bc", None), ("SUBSTRING('abc', 1, 0)", "", None), ("SUBSTRING('', 0)", "", None),
        ("SUBSTRING('abc', 1, -1)", "", "functionEvaluation"), ("SUBSTRING('', 1)", "", "functionEvaluation"),
        ("LEFT('abc', 'x')", "", "cast"), ("LEFT('abc', '1')", "a", None), ("ABS('-3')", 3, None),
        ("LENGTH(LEFT('abc', -1))", 0, "functionEvaluation"), ("NO_SUCH(1)", False, "missingFunction"),
        ("ABS(1, 2)", False, "missingFunction"), ("CONCAT_WS()", False, "missingFunction"),
        ("LENGTH()", False, "missingFunction"), ("NO_SUCH(missing)", False, "missingFunction"),
        ("1 + NO_SUCH()", 0, "missingFunction"), ("ABS(-2147483648)", 2**31 - 1, "math"),
    ],
)  # fmt: skip
def test_functions(expression: str, value: Any, error: str | None) -> None:
    check(expression, value, error)


def test_texts_put_together_are_bounded() -> None:
    event = {"x": "x" * (limits.CESQL_TEXT_CHARACTERS_MAX // 2)}
    assert evaluate("LENGTH(CONCAT(x, x))", event) == (limits.CESQL_TEXT_CHARACTERS_MAX, None)
    assert evaluate("CONCAT(x, x, 'y')", event) == ("", "functionEvaluation")


def test_the_work_of_in_grows_with_both_sides_and_not_with_their_product(monkeypatch: pytest.MonkeyPatch) -> None:
    casts: list[Any] = []
    cast = casting.cast

    def counted(value: Any, wanted: type[Any]) -> Any:
        casts.append(value)
        return cast(value, wanted)

    monkeypatch.setattr(casting, "cast", counted)
    tags = [f"{number}x" for number in range(limits.EVENT_LIST_ITEMS_MAX)]
    assert evaluate(f"tags IN ({', '.join(['0'] * 500)})", {"tags": tags}) == (False, None)
    assert evaluate(f"tags IN ({', '.join(['x'] * 500)})", {"tags": [*range(500)], "x": "y"}) == (False, "cast")
    assert len(casts) == 1_000


def test_a_list_is_made_a_text_once_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    dumps = json.dumps

    def counted(value: Any, **how: Any) -> str:
        made.append(value)
        return dumps(value, **how)

    monkeypatch.setattr(json, "dumps", counted)
    assert evaluate("'[1,2]' IN (x, x) AND STRING(x) = '[1,2]'", {"x": [1, 2]}) == (True, None)
    assert len(made) == 1


def test_a_pattern_is_compiled_once_however_many_others_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    compiled = patterns.compiled

    def counted(pattern: str) -> re.Pattern[str]:
        made.append(pattern)
        return compiled(pattern)

    monkeypatch.setattr(patterns, "compiled", counted)
    expressions = [read(f"UPPER(x) LIKE '{number}_%'") for number in range(1_100)]
    for _ in range(2):
        assert all(result(each, {"x": "y"}) == (False, None) for each in expressions)
    assert len(made) == 1_100
