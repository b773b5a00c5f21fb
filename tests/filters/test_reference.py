"""docs/filter-reference.md is exact: its grammars are the parsers', its tables the code's, its examples run."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.filters.cesql_trees import random_expression
from tests.filters.ebnf import Grammar
from tests.filters.trees import nodes
from wanderbus import cloudevents, limits
from wanderbus.errors import FilterError
from wanderbus.event import Event, check_event
from wanderbus.filters import LANGUAGES, eci, parse, xml
from wanderbus.filters.ast import Node, Predicate, Quantified
from wanderbus.filters.cesql.functions import FUNCTIONS
from wanderbus.filters.cesql.reading import KEYWORDS as CESQL_KEYWORDS
from wanderbus.filters.cesql.tree import PRECEDENCE
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.filters.eci.words import KEYWORDS, RESERVED
from wanderbus.filters.evaluate import OF_KIND

PAGE = (Path(__file__).parents[2] / "docs" / "filter-reference.md").read_text(encoding="utf-8")
SECTIONS = {each.partition("\n")[0]: each for each in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
NEVER_NAMES = {"eci": RESERVED, "cesql": frozenset(map(str.lower, CESQL_KEYWORDS)), "xml": frozenset[str]()}
GRAMMARS = {
    language: Grammar(re.findall(r"```ebnf\n(.*?)```", SECTIONS[language], re.DOTALL)[0], NEVER_NAMES[language])
    for language in LANGUAGES
}

TOKENS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "eci": {
        "WORD": ["PETR4", "a", "_x", "x-y.z:1", "ação", "any", "in", "exists"],
        "NAME": ["Price", "a", "x-y.z:1", "ação", "`any`", "`a b`", "`\\``", "`\\u00e9`"],
        "STRING": ['"a b"', "'it\\'s'", '""', '"\\n\\u00e9"', '"and"'],
        "INTEGER": ["0", "-1", "+5", "007", str(2**63 - 1), str(-(2**63))],
        "DOUBLE": ["2.5", "-.5", "1.", "1e-3", "+inf", "-inf"],
        "DATE": ["2026-11-21", "2026-11-21T10:00:00Z", "2026-11-21t10:00:00.000001+02:00"],
        "CESQL": ['"LENGTH(a) = 3"', "'a = 1'", "\"a LIKE '%x'\""],
    },
    "cesql": {
        "NAME": ["a", "Price", "source", "0a", "a1"],
        "FUNCTION": ["LENGTH", "concat_ws", "unknown"],
        "INTEGER": ["0", "5", "-5", "+5", str(2**31 - 1), str(-(2**31))],
        "STRING": ["''", "'a b'", '"x%_"', "'it\\'s'", "'\\d'"],
    },
    "xml": {
        "EQUALITY": ['"eq"', '"ne"'],
        "ORDERING": ['"lt"', '"ge"', '"eq"'],
        "MATCHING": ['"prefix"', '"suffix"', '"contains"', '"ne"'],
        "NAME": ['"a"', '"a b"', '"&amp;"', '"\\\\"', '""'],
        "STRING": ["PETR4", "a b", "&lt;", "\\u0000", ""],
        "CESQL": ["LENGTH(a) = 3", "a = 1"],
        "INTEGER": ["0", "-1", str(2**63 - 1)],
        "DOUBLE": ["2.5", "1e-3", "INF", "-INF"],
        "DATE": ["2026-11-21T10:00:00Z", "2026-11-21T10:00:00.5-03:30"],
        "BOOLEAN": ["true", "false"],
    },
}
"""Example words for each token of each grammar, to generate sentences."""

WRONG: Mapping[str, Sequence[str]] = {
    "eci": [
        "a",
        "a = 1",
        "a ==",
        "== 1",
        "a == 1 b == 2",
        "a < true",
        "a in 1",
        "not",
        "any a",
        "a prefix 1",
        "(a == 1",
    ],
    "cesql": ["", "a =", "a b", "NOT", "a LIKE b", "a IN ()", "EXISTS 'a'", "(a", "+ 5", "a_b", "a NOT = 1"],
    "xml": [
        "",
        '<filter xmlns="urn:wanderbus:1"></filter>',
        '<filter xmlns="urn:wanderbus:1"><any name="a"></any></filter>',
        '<filter xmlns="urn:wanderbus:1"><any name="a"><Boolean op="lt">true</Boolean></any></filter>',
        '<filter xmlns="urn:wanderbus:1"><any name="a"><Integer op="lt">x</Integer></any></filter>',
        '<filter xmlns="urn:wanderbus:1"><not></not></filter>',
    ],
}


def rows(section: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading of a section, without backquotes around them."""
    text = SECTIONS[section] if not heading else SECTIONS[section].split(f"### {heading}\n")[1].split("\n### ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = [line.strip().strip("|").split("|") for line in lines]
    return [[re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", cell.strip()) for cell in row] for row in cells]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_token_of_the_grammar_has_examples(language: str) -> None:
    tokens = GRAMMARS[language].tokens
    assert tokens.keys() == TOKENS[language].keys()
    for name, words in TOKENS[language].items():
        assert [word for word in words if not tokens[name].fullmatch(word)] == [], name


@pytest.mark.parametrize("language", LANGUAGES)
@given(chance=st.randoms(use_true_random=False))
def test_every_sentence_of_the_grammar_is_read(language: str, chance: random.Random) -> None:
    sentence = GRAMMARS[language].sentence(chance, TOKENS[language])
    if len(sentence) < limits.EXPRESSION_CHARACTERS_MAX // 8:
        parse(sentence, language)
        assert GRAMMARS[language].recognizes(sentence)


@given(nodes())
@example(Quantified("any", "a", Predicate("==", datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=3_601))))))
def test_written_filters_are_in_the_grammars(node: Node) -> None:
    assert GRAMMARS["eci"].recognizes(eci.write(node))
    assert GRAMMARS["xml"].recognizes(xml.write(node))


@given(st.randoms(use_true_random=False))
def test_every_expression_of_cesql_is_in_the_grammar(chance: random.Random) -> None:
    assert GRAMMARS["cesql"].recognizes(write_cesql(random_expression(chance)))


@pytest.mark.parametrize(("language", "text"), [(each, text) for each, texts in WRONG.items() for text in texts])
def test_unparsable_texts_are_not_in_the_grammar(language: str, text: str) -> None:
    with pytest.raises(FilterError):
        parse(text, language)
    assert not GRAMMARS[language].recognizes(text)


@pytest.mark.parametrize(
    ("language", "filter", "attributes", "result"),
    [(language, *row) for language in LANGUAGES for row in rows(language, "Examples")],
)
def test_example(language: str, filter: str, attributes: str, result: str) -> None:
    event = check_event(Event("example", cloudevents.from_json(json.loads(attributes))))
    read = parse(filter, language)
    expected = {"true": True, "false": False, "unknown": None, "match": True, "no match": False}[result]
    assert (read.matches(event) if "match" in result else read.evaluate(event)) is expected


def test_operators_of_eci() -> None:
    table = {operator: types for operator, types, _ in rows("eci", "Operators")}
    kinds = ("number", "string", "boolean", "date")
    operators = {each for allowed in OF_KIND.values() for each in allowed}
    for operator in operators:
        assert table[operator] == ", ".join(kind for kind in kinds if operator in OF_KIND[kind]), operator
    assert table.keys() - operators == {"not in", "exists", "any", "all", "not", "and", "or"}


def test_keywords_of_eci() -> None:
    grammar = SECTIONS["eci"].split("```")[1]
    assert set(re.findall(r'"([a-z]+)"', grammar)) == KEYWORDS
    assert "`and`, `or`, `not`, `true` and `false` are reserved" in SECTIONS["eci"]
    assert {"and", "or", "not", "true", "false"} == RESERVED


def test_keywords_of_cesql() -> None:
    assert set(re.findall(r'"([A-Z]+)"', SECTIONS["cesql"].split("```")[1])) == CESQL_KEYWORDS


def test_operators_of_cesql() -> None:
    named = {row[0] for row in rows("cesql", "Operators")}
    assert named == {*PRECEDENCE, "NOT", "LIKE", "IN", "EXISTS"}


def test_functions_of_cesql() -> None:
    table = {name: (arguments, result) for name, arguments, result in rows("cesql", "Functions")}
    assert table.keys() == FUNCTIONS.keys()
    types = {int: "Integer", str: "String", bool: "Boolean"}
    for name, forms in FUNCTIONS.items():
        takes = [types[each] for each in forms[0].takes]
        takes += ["any number of Strings"] if forms[0].rest else []
        takes[-1:] = [*takes[-1:], "and perhaps an Integer"] if len(forms) > 1 else takes[-1:]
        arguments, result = table[name]
        assert arguments == ", ".join(takes)
        assert result.startswith(types[forms[0].gives])


def test_limits() -> None:
    assert [int(row[1]) for row in rows("Limits", "")] == [
        limits.EXPRESSION_CHARACTERS_MAX,
        limits.EXPRESSION_DEPTH_MAX,
        limits.CESQL_SOUGHT_CHARACTERS_MAX,
        limits.CESQL_TEXT_CHARACTERS_MAX,
        limits.XML_FILTER_BYTES_MAX,
        limits.XML_FILTER_DEPTH_MAX,
        limits.XML_FILTER_ELEMENTS_MAX,
        limits.SUBSCRIPTION_BYTES_MAX,
    ]


def test_the_readme_documents_doubles_as_strings_in_cesql() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert "a Double is a String in CESQL" in " ".join(readme.split())
    assert "docs/filter-reference.md" in readme
