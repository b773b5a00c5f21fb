"""The language of patterns: its documented grammar, and errors that point into the text (SPEC T-07)."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters.ebnf import Grammar
from wanderbus import limits
from wanderbus.errors import FilterError, PatternError
from wanderbus.patterns import compile_pattern
from wanderbus.patterns.scanning import RESERVED

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"
RULES = re.findall(r"```ebnf\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
GRAMMAR = Grammar(RULES, RESERVED)
STEPS = Grammar('steps = "match" choice "within 1 day" ;\n' + RULES, RESERVED)
TOKENS = {
    "NAME": ["A", "B", "C", "D", "`two words`"],
    "WORD": ["arrival", "a/b-c.d"],
    "TEXT": ['"a \\" subject"', "'b'"],
    "COUNT": ["0", "1", "3"],
    "NUMBER": ["1", "2.5"],
    "UNIT": ["seconds", "hour", "weeks"],
    "ECI": ["", "delay > 3"],
    "FILTER": ["delay > 3"],
}
MEANING = (
    *("there is no step", "two steps", "once", "twice", "longest time", "exclude", "cannot", "begin with", "must take"),
    *("never comes", "stands behind", "'and'", "at least one", "at most", "of xml", "of cesql", "n up to m"),
    "parentheses around",
)
"""Parts of the messages about texts that are of the grammar and have no meaning."""


def fault(text: str) -> tuple[str, str]:
    """Return the reason of the error, and the text from its position on."""
    with pytest.raises(PatternError) as caught:
        compile_pattern(text)
    assert caught.value.text == text
    assert caught.value.position is not None
    assert caught.value.pointed().endswith("^")
    return caught.value.reason, text[caught.value.position :]


def error_of(text: str) -> PatternError | None:
    """Return the error of a text; None if it is a pattern."""
    try:
        compile_pattern(text)
    except PatternError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("text", "rest", "reason"),
    [
        ("", "", "expected 'match'"),
        ("by match A: x within 1 hour", "match A: x within 1 hour", "reserved word"),
        ("by T, T match A: x within 1 hour", "T match A: x within 1 hour", "each once"),
        ("match A: x", "", "every pattern has a longest time"),
        ("match A x within 1 hour", "x within 1 hour", "expected ':'"),
        ("match A: (delay >) within 1 hour", ") within 1 hour", "expected"),
        ("match A: (delay > 3 within 1 hour", "(delay > 3 within 1 hour", "never closed"),
        ("match A: (a == 'x) within 1 hour", "'x) within 1 hour", "quote is never closed"),
        ("match A: cesql [[ a = ]] within 1 hour", " ]] within 1 hour", "in this filter of cesql"),
        ("match A: cesql [[ a = 1 within 1 hour", "[[ a = 1 within 1 hour", "never closed by ]]"),
        ("match A: x then B: y then A: z within 1 hour", "A: z within 1 hour", "two steps 'A'"),
        ("match A: x then next not B: y within 1 hour", "next not B: y within 1 hour", "exclude each other"),
        ("match A: x then not B: y then next C: z within 1 hour", "next C: z within 1 hour", "exclude each other"),
        ("match not A: x then B: y within 1 hour", "A: x then B: y within 1 hour", "cannot begin with 'not'"),
        ("match A: x then not B{2}: y within 1 hour", "{2}: y within 1 hour", "cannot be repeated"),
        ("match A{0,2}: x within 1 hour", "A{0,2}: x within 1 hour", "must take an event"),
        ("match A{3,2}: x within 1 hour", "{3,2}: x within 1 hour", "n up to m"),
        ("match A{1,1001}: x within 1 hour", "{1,1001}: x within 1 hour", "n up to m"),
        ("match (A: x then B: y){2} within 1 hour", "{2} within 1 hour", "only a step can be repeated"),
        ("match (A: x within 1 hour", "within 1 hour", "expected ')'"),
        ("match (A: x", "(A: x", "never closed"),
        ("match A: x or B: y and C: z within 1 hour", "and C: z within 1 hour", "parentheses"),
        ("match A: x where A.b > 1 within 1 hour", "A.b > 1 within 1 hour", "in parentheses"),
        ("match A: x where (A.b = 1) within 1 hour", "= 1) within 1 hour", "write '=='"),
        ("match A: x where (A > 1) within 1 hour", "> 1) within 1 hour", "an attribute behind the step"),
        ("match A: x where (B.b > 1) within 1 hour", "B.b > 1) within 1 hour", "no step 'B'"),
        ("match A: x where (abs(A.b) > 1) within 1 hour", "abs(A.b) > 1) within 1 hour", "no function 'abs'"),
        ("match A: x then B: y where (A.b > 1 within 1 hour", "within 1 hour", "expected an operator or ')'"),
        ("match (A: x or B: y where (B.a > A.a)) within 1 hour", "A.a)) within 1 hour", "never comes before 'B'"),
        ("match A: x then not B: y within 1 hour emit e with b = B.c", "B.c", "stands behind 'not'"),
        ("match A: x then (B: y and C{0,1}: z) within 1 hour", "C{0,1}: z) within 1 hour", "must take an event"),
        ("match A: x then (B: y and not C: z) within 1 hour", "C: z) within 1 hour", "within 'and'"),
        ("match A: x within 0 hours", "0 hours", "at least one microsecond"),
        ("match A: x within 2 fortnights", "fortnights", "a unit of time"),
        ("match A: x within 9999 weeks", "9999 weeks", "ten years"),
        ("match A: x within 1 hour within 1 hour", "within 1 hour", "twice"),
        ("match A: x within 1 hour on event time", "", "an attribute's name"),
        ("match A: x within 1 hour on time", "time", "expected 'receipt time'"),
        ("match A: x within 1 hour select all", "all", "'first' or 'every'"),
        ("match A: x within 1 hour skip next", "next", "expected 'to next event'"),
        (
            "match A: x within 1 hour select every skip past last event",
            "skip past last event",
            "drop one",
        ),
        ("match A: x within 1 hour emit e with a = A.b, a = A.c", "a = A.c", "each once"),
        ("match A: x within 1 hour ;", ";", "unexpected character ';'"),
    ],
)
def test_an_error_names_the_fault_and_points_at_it(text: str, rest: str, reason: str) -> None:
    found, at = fault(text)
    assert reason in found
    assert at == rest


def test_an_error_is_one_of_a_filter_too_so_that_commands_show_its_place() -> None:
    assert issubclass(PatternError, FilterError)


def test_a_pattern_is_bounded_in_length_steps_and_depth() -> None:
    assert "characters" in fault(" " * (limits.EXPRESSION_CHARACTERS_MAX + 1))[0]
    steps = " then ".join(f"S{number}: x" for number in range(33))
    assert fault(f"match {steps} within 1 hour") == ("a pattern has at most 32 steps", "S32: x within 1 hour")
    assert "deep" in fault("match " + "(" * 100 + "A: x")[0]
    assert "deep" in fault("match A: x where (" + "(" * 100)[0]
    assert "deep" in fault("match A: x where (" + "-" * 100)[0]
    assert "deep" in fault("match A: x where (" + "not " * 100)[0]
    assert "in a row" in fault("match A: x where (A.b" + " + 1" * 100)[0]
    orders = " and ".join(f"S{number}: x" for number in range(6))
    assert "at most 5 parts" in fault(f"match {orders} within 1 hour")[0]


def test_sentences_of_the_documented_grammar_are_read() -> None:
    chance = random.Random(7)
    read = 0
    for number in range(3_000):
        text = (GRAMMAR, STEPS)[number % 2].sentence(chance, TOKENS, depth_max=8)
        error = error_of(text)
        read += error is None
        assert error is None or any(known in error.reason for known in MEANING), error.pointed()
    assert read > 50


@pytest.mark.parametrize(
    "text",
    [
        "match A: x within 1 hour",
        "PATTERN p BY T MATCH A: x THEN NEXT B: * (d > 3) WITHIN 1 hour 30 minutes",
        "match A{2,}: x where (sum(A.d) > 3 and not A.e == 'x') within 1 day select every emit e with n = count(A)",
        "match (A: x then not B: y then C: z) or D: 'w' within 1 week skip past last event",
        "match A: x then B: cesql [[d > 3]] within 2.5 seconds on event time At lateness 1 minute",
    ],
)
def test_texts_that_are_read_are_sentences_of_the_grammar(text: str) -> None:
    compile_pattern(text)
    lowered = re.sub(r"\b(PATTERN|BY|MATCH|THEN|NEXT|WITHIN)\b", lambda found: found[0].lower(), text)
    assert GRAMMAR.recognizes(lowered)


def test_comments_blanks_and_line_ends_are_free() -> None:
    pattern = compile_pattern("# late\nmatch A : arrival ( d > 3 ) # first\n then\tB:x\nwithin 1 hour # end")
    assert [str(leaf.filter) for leaf in pattern.leaves] == ["d > 3", "everything"]


def test_a_filter_keeps_its_quotes_and_parentheses() -> None:
    pattern = compile_pattern("""match A: (a == ")" and (b == 'it\\'s (' or c > 1)) within 1 hour""")
    assert str(pattern.leaves[0].filter) == 'a == ")" and (b == "it\'s (" or c > 1)'


PIECES = st.sampled_from(
    [
        *("match ", "A", "B", ":", " (", ")", "then ", "next ", "not ", "or ", "and ", "where ", "within 1 hour"),
        *("1", ",", ".", "[[", "]]", "{", "}", "cesql ", "xml ", "'", '"', "`", "\\", "emit e with ", "=", "==", "-"),
        *("select first ", "skip past last event ", "on event time ", "time", "sum", "#", "\n", "*", "x", "é"),
        *("\ud800", "\x00", "²", "٣"),
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=40))
def test_any_text_is_a_pattern_or_raises_the_declared_error(text: str) -> None:
    for each in (text, f"match A: x where ({text}) within 1 hour", f"match A: {text} within 1 hour"):
        error = error_of(each)
        if error is not None:
            assert error.position is not None
            assert 0 <= error.position <= len(each)
            error.pointed()
