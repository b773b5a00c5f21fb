"""CESQL as a filter language: its translation to the common tree, and the part that an index may test first (DESIGN
7.2).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters.cesql_trees import NUMBERS, PATTERNS, TEXTS, VALUES, random_attributes, random_expression
from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.ast import EVERYTHING, NOTHING, And, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.filters.cesql import Condition, evaluate, read
from wanderbus.filters.cesql.patterns import compiled, matcher
from wanderbus.filters.cesql.reading import read as expression
from wanderbus.filters.cesql.tree import AttributeValue, Chain, Expression, In, Like, LiteralValue, Unary
from wanderbus.filters.cesql.writing import write
from wanderbus.filters.evaluate import holds


def is_(name: str, text: str) -> Node:
    return Quantified("any", name, Predicate("==", text))


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("TRUE", EVERYTHING),
        ("FALSE", NOTHING),
        ("5", NOTHING),
        ("LENGTH(a)", NOTHING),
        ("EXISTS a", Exists("a")),
        ("NOT EXISTS a", Not(Exists("a"))),
        ("EXISTS id", EVERYTHING),
        ("EXISTS Time", Or((Exists("Time"), Exists("time")))),
        ("Stock = 'PETR4'", is_("Stock", "PETR4")),
        ("a = ''", is_("a", "")),
        ("a LIKE 'abc'", is_("a", "abc")),
        ("a LIKE 'abc%'", Quantified("any", "a", Predicate("prefix", "abc"))),
        ("a LIKE '%abc'", Quantified("any", "a", Predicate("suffix", "abc"))),
        (r"a LIKE '%a\%c%'", Quantified("any", "a", Predicate("contains", "a%c"))),
        ("a IN ('x', 'y')", Quantified("any", "a", Predicate("in", ("x", "y")))),
        ("a = 'x' AND b = 'y'", And((is_("a", "x"), is_("b", "y")))),
        ("a = 'x' OR a = 'y' OR a = 'z'", Or((is_("a", "x"), is_("a", "y"), is_("a", "z")))),
        ("a = 'x' OR b = 'y'", Or((is_("a", "x"), And((Exists("a"), is_("b", "y")))))),
        ("EXISTS a AND (NOT EXISTS b OR a = 'x')", And((Exists("a"), Or((Not(Exists("b")), is_("a", "x")))))),
        ("(a = 'x' OR TRUE) AND b = 'y'", And((Exists("a"), is_("b", "y")))),
    ],
)
def test_expressions_with_an_equal_common_tree(text: str, node: Node) -> None:
    assert read(text) == node


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("a AND LENGTH(b) = 3", And((Exists("a"), Exists("b")))),
        ("a = 'x' AND LENGTH(b) = 3", And((is_("a", "x"), Exists("b")))),
        ("a = 'x' OR LENGTH(b) = 3", Or((is_("a", "x"), And((Exists("a"), Exists("b")))))),
        ("a", Quantified("any", "a", Predicate("==", True))),
        ("a = b", And((Exists("a"), Exists("b")))),
        ("a NOT IN ('x')", Exists("a")),
        ("1 = 1", EVERYTHING),
        ("a LIKE 'ab%c_'", Quantified("any", "a", Predicate("prefix", "ab"))),
    ],
)
def test_requirements_of_a_residual(text: str, needed: Node) -> None:
    node = read(text)
    assert isinstance(node, Residual)
    assert (node.language, str(node.expression)) == ("cesql", write(expression(text)))
    assert node.needed == needed


QUESTIONS = [
    *(Chain(AttributeValue("a"), ((sign, LiteralValue(text)),)) for text in TEXTS for sign in ("=", "!=", "<", ">=")),
    *(
        Chain(AttributeValue("a"), ((sign, LiteralValue(number)),))
        for number in NUMBERS
        for sign in ("=", "!=", "<=", ">")
    ),
    *(
        In(AttributeValue("a"), (LiteralValue(value), LiteralValue("x")), no)
        for value in (*TEXTS, *NUMBERS)
        for no in (False, True)
    ),
    *(Like(AttributeValue("a"), pattern, no) for pattern in PATTERNS for no in (False, True)),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=write)
def test_every_question_of_every_value(question: Expression) -> None:
    positive, negative = read(write(question)), read(write(Unary("NOT", question)))
    for value in (*VALUES, [], *([value] for value in VALUES), *(["x", value] for value in VALUES)):
        truth = Condition(question).holds({"a": value})
        for node, wanted in ((positive, truth is True), (negative, truth is False)):
            assert (holds(node, {"a": value}) is True) == wanted
            assert not (isinstance(node, Residual) and wanted) or holds(node.needed, {"a": value}) is True


@pytest.mark.parametrize(
    "text",
    ["a = 'PETR4'", "a != 'PETR4'", "a LIKE 'abc%'", "NOT (a LIKE '%b%')", "a IN ('x', 'abc')", "a NOT LIKE 'b'"],
)
def test_questions_of_texts_alone_are_exact(text: str) -> None:
    assert not isinstance(read(text), Residual)


@given(st.randoms(use_true_random=False))
def test_a_filter_matches_where_its_expression_is_true_without_an_error(rng: random.Random) -> None:
    text = write(random_expression(rng))
    node = read(text)
    for _ in range(5):
        attributes = random_attributes(rng)
        value, error = evaluate(text, attributes)
        matches = value is True and error is None
        assert (holds(node, attributes) is True) == matches
        if isinstance(node, Residual) and matches:
            assert holds(node.needed, attributes) is True


def test_a_seeded_run_meets_exact_ones_and_residuals() -> None:
    seed = 20261121
    print("seed", seed)
    rng = random.Random(seed)
    met: dict[tuple[bool, bool], int] = {}
    for _ in range(1_000):
        root = random_expression(rng)
        node = read(write(root))
        residual = isinstance(node, Residual)
        for _ in range(4):
            attributes = random_attributes(rng)
            wanted = Condition(root).holds(attributes) is True
            assert (holds(node, attributes) is True) == wanted
            if isinstance(node, Residual):
                assert not wanted or holds(node.needed, attributes) is True
            met[residual, wanted] = met.get((residual, wanted), 0) + 1
    assert min(met.values()) > 100
    assert len(met) == 4


@given(st.randoms(use_true_random=False), st.text("ab%_\\5c", max_size=8), st.sampled_from(PATTERNS))
def test_like_is_the_plain_definition(rng: random.Random, pattern: str, other: str) -> None:
    value = "".join(rng.choice("abc%5_") for _ in range(rng.randint(0, 8)))
    for each in (pattern, other):
        assert bool(compiled(each).fullmatch(value)) == matcher(each)(value) == like(value, each)


def like(value: str, pattern: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(like(value[at:], pattern[1:]) for at in range(len(value) + 1))
    if pattern[:2] in (r"\%", r"\_"):
        return value[:1] == pattern[1] and like(value[1:], pattern[2:])
    return bool(value) and pattern[0] in ("_", value[0]) and like(value[1:], pattern[1:])


def test_errors_and_what_is_no_boolean_match_nothing() -> None:
    for text in (
        "Price < 25",
        "NOT (Price < 25)",
        "LENGTH(name)",
        "name",
        "NOT 10",
        "missing = 1 OR TRUE",
        "1 / 0 = 1",
    ):
        found = parse(text, language="cesql")
        event = Event("Quotes", {"Price": 25.5, "name": "true"})
        assert not found.matches(event)
        assert found.evaluate(event) in (None, False)
        assert Condition(expression(text)).holds(event.attributes) is not True
    assert parse("on", language="cesql").matches(Event("Quotes", {"on": True}))


def test_a_condition_is_a_value() -> None:
    one, other = Condition(expression("a = 1")), Condition(expression(" a=1 "))
    assert (one, hash(one), str(one)) == (other, hash(other), "a = 1")
    assert one != Condition(expression("a = TRUE"))
    assert read("a = 1") == read("(a)  = +1")


def test_the_text_of_a_filter_reads_back() -> None:
    for text in ("a = 'x' OR b = 'y'", "LENGTH(a) > 3 AND NOT (b = 'it\\'s')", "a != 'x'", "FALSE"):
        found = parse(text, language="cesql")
        assert parse(str(found)).root == found.root


def test_a_fault_points_into_the_text() -> None:
    with pytest.raises(FilterError) as caught:
        parse("a = 1 AND\n b LIKE c", language="cesql")
    assert caught.value.pointed().splitlines()[1:] == ["   b LIKE c", "          ^"]


def test_an_expression_is_bounded_as_it_is_written_in_full() -> None:
    with pytest.raises(FilterError, match="in full"):
        read("a IN (" + "1," * 8_000 + "1)")


def test_a_long_or_mixed_chain_keeps_its_bounds() -> None:
    many = " OR ".join(f"a = 't{number}'" for number in range(200))
    assert not isinstance(read(many), Residual)
    for text in (
        " OR ".join(f"a{number}='t'" for number in range(1_000)),
        " ".join(f"a='t{number}' {'AND' if number % 2 else 'OR'}" for number in range(900)) + " b='x'",
        "NOT (" * 25 + "a='x'" + "".join(f" {'AND' if n % 2 else 'OR'} b{n}='q' OR c{n} LIKE 'r%')" for n in range(25)),
    ):
        node = read(text)
        assert isinstance(node, Residual)
        assert len(repr(node.needed)) < 100_000
        attributes: dict[str, Any] = {"a": "x", "b": "x"} | {f"a{number}": "t" for number in range(1_000)}
        assert holds(node, attributes) is not True or holds(node.needed, attributes) is True


def test_a_large_expression_is_not_translated_however_many_constants_another_has() -> None:
    large = read(" AND ".join(["a"] * 1_100))
    assert isinstance(large, Residual)
    assert large.needed == EVERYTHING
    assert [holds(large, {"a": value}) for value in (True, False)] == [True, False]
    listed = read("a IN (" + ", ".join(f"'t{number}'" for number in range(1_400)) + ")")
    assert not isinstance(listed, Residual)
