"""Filters in XML: exact in both directions, as the schema defines, and only the declared error (SPEC O-01)."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime, timedelta, timezone
from xml.etree.ElementTree import ParseError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import trees
from tests.filters.xml_schema import is_valid
from wanderbus import filters, limits
from wanderbus.errors import FilterError
from wanderbus.filters import xml
from wanderbus.filters.ast import EVERYTHING, NOTHING, And, Exists, Node, Not, Or, Predicate, Quantified, Residual
from wanderbus.literals import in_utc

OPEN = '<filter xmlns="urn:wanderbus:1">'
CLOSE = "</filter>"


def filter_text(content: str) -> str:
    return f"{OPEN}{content}{CLOSE}"


def asking(operator: str, operand: object) -> Node:
    return Quantified("any", "a", Predicate(operator, operand))  # type: ignore[arg-type]


@settings(max_examples=300)
@given(trees.nodes())
def test_every_tree_comes_back(node: Node) -> None:
    text = xml.write(node)
    assert "\n" not in text
    assert xml.read(text) == node


@settings(max_examples=60, deadline=None)
@given(trees.nodes())
def test_the_schema_admits_what_is_written(node: Node) -> None:
    assert is_valid(xml.write(node))


def test_the_published_expression() -> None:
    node = filters.parse("(Stock == PETR4) and (Price < 25)").root
    assert xml.write(node) == filter_text(
        '<and><any name="Stock"><String op="eq">PETR4</String></any>'
        '<any name="Price"><Integer op="lt">25</Integer></any></and>'
    )
    assert filters.parse(xml.write(node), language="xml").root == node


@pytest.mark.parametrize(
    ("operand", "written"),
    [
        (2**63 - 1, ">9223372036854775807<"),
        (-(2**63), ">-9223372036854775808<"),
        (1, "<Integer"),
        (1.0, ">1.0<"),
        (-0.0, ">-0.0<"),
        (0.1 + 0.2, ">0.30000000000000004<"),
        (5e-324, ">5e-324<"),
        (1.7976931348623157e308, ">1.7976931348623157e+308<"),
        (math.inf, ">INF<"),
        (-math.inf, ">-INF<"),
        (True, "<Boolean"),
        (datetime(2026, 11, 21, 10, tzinfo=UTC), ">2026-11-21T10:00:00Z<"),
        (datetime(2026, 11, 21, 10, 0, 0, 7, timezone(-timedelta(hours=3))), ">2026-11-21T13:00:00.000007Z<"),
        (" two  blanks ", "> two  blanks <"),
        ("a\tb\r\nc", ">a&#9;b&#13;&#10;c<"),
        ("\x00\x1b\ufffe\uffff", ">\\u0000\\u001b\\ufffe\\uffff<"),
        ("\\u0041", ">\\\\u0041<"),
        ("]]><&\"'", ">]]&gt;&lt;&amp;&quot;'<"),
        ("\U0010ffff\x7f\x85", ">\U0010ffff\x7f\x85<"),
    ],
)
def test_literals_are_exact(operand: object, written: str) -> None:
    node = asking("==", operand)
    text = xml.write(node)
    assert written in text
    read = xml.read(text)
    assert read == node
    assert is_valid(text)
    # Equal is not enough: -0.0 equals 0.0, and a date its instant elsewhere; it is read in UTC.
    operand = in_utc(operand) if isinstance(operand, datetime) else operand
    assert isinstance(read, Quantified)
    assert isinstance(read.clause, Predicate)
    assert repr(read.clause.operand).replace("datetime.timezone.utc", "UTC") == repr(operand).replace(
        "datetime.timezone.utc", "UTC"
    )


def test_a_name_may_have_any_character() -> None:
    node = Exists(' <"&>\\ \t\n\r\x00')
    assert xml.read(xml.write(node)) == node
    assert is_valid(xml.write(node))


def test_a_date_with_an_offset_that_xml_cannot_write_keeps_its_instant() -> None:
    odd = timezone(timedelta(hours=1, seconds=1))
    date = datetime(2026, 11, 21, 1, 0, 1, tzinfo=odd)
    assert ">2026-11-21T00:00:00Z<" in xml.write(asking("<", date))
    first = datetime(1, 1, 1, tzinfo=odd)  # in UTC this is no year
    assert xml.read(xml.write(asking("<", first))) == asking("<", first)


@pytest.mark.parametrize("node", [EVERYTHING, NOTHING, Not(EVERYTHING), And((Or(()),)), asking("in", ())])
def test_empty_nodes(node: Node) -> None:
    assert xml.read(xml.write(node)) == node
    assert is_valid(xml.write(node))


@pytest.mark.parametrize(
    "node",
    [
        asking("==", math.nan),
        asking("==", "\ud800"),
        asking("==", datetime(2026, 11, 21)),
        asking("==", 2**63),
        asking("prefix", 5),
        asking("<", True),
        asking("==", b"bytes"),
    ],
)
def test_inexpressible_filters_are_not_written(node: Node) -> None:
    with pytest.raises(FilterError):
        xml.write(node)


@pytest.mark.parametrize(
    "expression",
    ["LENGTH(name) = 3", "a + 1 < b AND name LIKE '%x'", "UPPER(x) = '<&>\\\\n'", "a = 1", "NOT EXISTS b", "TRUE"],
)
def test_cesql_comes_back(expression: str) -> None:
    node = filters.parse(expression, language="cesql").root
    text = xml.write(node)
    assert xml.read(text) == node
    assert is_valid(text)


def test_a_residual_of_no_language_is_not_written() -> None:
    with pytest.raises(FilterError, match="language 'test'"):
        xml.write(Residual("test", trees.IsEven("a")))


def test_a_fault_of_cesql_is_reported() -> None:
    with pytest.raises(FilterError, match="in this expression of cesql: "):
        xml.read(filter_text('<residual language="cesql">a +</residual>'))


FAULTS = {
    "": "no element",
    "Price < 25": "syntax error",
    "<filter/>": "not in the namespace",
    '<filter xmlns="urn:wanderbus:2"><and/></filter>': "not in the namespace",
    '<filters xmlns="urn:wanderbus:1"/>': "expected <filter>",
    filter_text(""): "must contain one element, not 0",
    filter_text("<and/><and/>"): "must contain one element, not 2",
    filter_text("<and>") + "</and>": "mismatched tag",
    filter_text("<xor/>"): "<xor> is not a condition on an event",
    filter_text("and"): "must not contain text",
    filter_text("<and/>and"): "text beside elements",
    filter_text("<and>and<and/></and>"): "text beside elements",
    filter_text("<not/>"): "must contain one element",
    filter_text("<exists/>"): "needs the attribute 'name'",
    filter_text('<exists name="a" of="b"/>'): "has no attribute 'of'",
    filter_text('<exists name="a"><and/></exists>'): "must be empty",
    filter_text('<exists name="\\"/>'): "unknown escape",
    filter_text('<exists name="\\ud83d\\ude00"/>'): "half a character",
    filter_text('<exists name="&#xD800;"/>'): "invalid character number",
    filter_text('<exists name="&other;"/>'): "undefined entity",
    filter_text('<any name="a"/>'): "must contain one element",
    filter_text('<any name="a"><exists name="a"/></any>'): "not a condition on a value",
    filter_text('<any name="a"><Integer op="eq">5.0</Integer></any>'): "written in digits",
    filter_text('<any name="a"><Integer op="eq">9223372036854775808</Integer></any>'): "beyond 64 bits",
    filter_text(f'<any name="a"><Integer op="eq">{"9" * 9_000}</Integer></any>'): "beyond 64 bits",
    filter_text('<any name="a"><Double op="eq">NaN</Double></any>'): "a Double must be",
    filter_text('<any name="a"><Double op="eq">1_0</Double></any>'): "a Double must be",
    filter_text('<any name="a"><Boolean op="eq">1</Boolean></any>'): "a Boolean must be",
    filter_text('<any name="a"><Boolean op="lt">true</Boolean></any>'): "has no op 'lt'",
    filter_text('<any name="a"><Date op="eq">2026-11-21</Date></any>'): "a Date must be",
    filter_text('<any name="a"><Date op="eq">2026-11-21T10:00:00</Date></any>'): "a Date must be",
    filter_text('<any name="a"><Date op="eq">2026-02-30T10:00:00Z</Date></any>'): "no such date",
    filter_text('<any name="a"><Date op="eq">2026-11-21T10:00:00+15:00</Date></any>'): "at most 14:00",
    filter_text('<any name="a"><Integer op="prefix">5</Integer></any>'): "has no op 'prefix'",
    filter_text('<any name="a"><Integer>5</Integer></any>'): "needs the attribute 'op'",
    filter_text('<any name="a"><Integer op="=">5</Integer></any>'): "has no op '='",
    filter_text('<any name="a"><Integer op="eq">5<Integer/></Integer></any>'): "text beside elements",
    filter_text('<any name="a"><in><and/></in></any>'): "must contain literals",
    filter_text('<any name="a"><in><Integer op="eq">5</Integer></in></any>'): "has no attribute 'op'",
    filter_text('<residual language="sql">1</residual>'): "residual",
    '<!DOCTYPE filter [<!ENTITY a "b">]>' + filter_text("<and/>"): "document type",
    '<?xml-stylesheet href="a"?>' + filter_text("<and/>"): "processing instruction",
    filter_text("<and/>") + "<filter/>": "junk after document element",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults(text: str) -> None:
    with pytest.raises(FilterError, match=FAULTS[text]) as caught:
        xml.read(text)
    assert caught.value.text == text
    assert caught.value.position is not None
    assert 0 <= caught.value.position <= len(text)


def of_the_schema(text: str) -> bool:
    """Return whether a schema can forbid a fault."""
    reason = FAULTS[text]
    return text.startswith("<") and reason not in ("document type", "processing instruction", "expected <filter>")


@pytest.mark.parametrize("text", [text for text in FAULTS if of_the_schema(text)])
def test_the_schema_forbids_what_is_not_read(text: str) -> None:
    with contextlib.suppress(ParseError):  # malformed XML cannot be validated
        assert not is_valid(text)


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n' + filter_text('<exists name="ação"/>'),
        filter_text("\n  <!-- all --> <and>\n </and> "),
        '<w:filter xmlns:w="urn:wanderbus:1"><w:exists name="a"/></w:filter>',
        filter_text('<any name="a"><Integer op="eq"> +0005 </Integer></any>'),
        filter_text('<any name="a"><String op="eq"><![CDATA[<a>]]></String></any>'),
        filter_text('<any name="a"><Double op="eq">5.</Double></any>'),
        filter_text('<any name="a"><Double op="eq">.5E+3</Double></any>'),
    ],
)
def test_foreign_xml_is_read(text: str) -> None:
    node = xml.read(text)
    assert xml.read(xml.write(node)) == node
    assert is_valid(text.replace(' encoding="ISO-8859-1"', ""))


def test_the_fault_is_pointed_at() -> None:
    text = f'{OPEN}\n<and>\n  <any name="ação"><Integer op="eq">x</Integer></any>\n</and></filter>'
    with pytest.raises(FilterError) as caught:
        xml.read(text)
    assert caught.value.pointed().splitlines()[1:] == [
        '    <any name="ação"><Integer op="eq">x</Integer></any>',
        "                     ^",
    ]


def test_a_number_that_is_too_large_is_not_read_as_infinity() -> None:
    with pytest.raises(FilterError, match="too large; write infinity as INF"):
        xml.read(filter_text('<any name="a"><Double op="eq">1e999</Double></any>'))


def test_half_a_character_is_found() -> None:
    with pytest.raises(FilterError, match="half a character") as caught:
        xml.read("<ação>\ud800")
    assert caught.value.position == 6


def nested(depth: int) -> str:
    return filter_text("<not>" * depth + "<and/>" + "</not>" * depth)


def test_limits() -> None:
    deepest = limits.XML_FILTER_DEPTH_MAX - 2
    xml.read(nested(deepest))
    with pytest.raises(FilterError, match=f"nested more than {limits.XML_FILTER_DEPTH_MAX} deep"):
        xml.read(nested(deepest + 1))
    most = limits.XML_FILTER_ELEMENTS_MAX - 2
    xml.read(filter_text(f"<and>{'<or/>' * most}</and>"))
    with pytest.raises(FilterError, match=f"more than {limits.XML_FILTER_ELEMENTS_MAX} elements"):
        xml.read(filter_text(f"<and>{'<or/>' * (most + 1)}</and>"))
    room = limits.XML_FILTER_BYTES_MAX - len(filter_text('<exists name=""/>'))
    xml.read(filter_text(f'<exists name="{"a" * room}"/>'))
    with pytest.raises(FilterError, match=f"longer than {limits.XML_FILTER_BYTES_MAX} bytes"):
        xml.read(filter_text(f'<exists name="{"a" * (room + 1)}"/>'))


@pytest.mark.parametrize(
    "expression",
    [
        " or ".join(["a == 1"] * 1_600),
        f"a in ({', '.join(['1'] * 5_000)})",
        "a == " + '"' + "\\u0000" * 2_600 + '"',
        " and ".join(f"any a{n} (== 1 or < 2)" for n in range(600)),
        "not (" * 31 + "a == 1 or b == 2 and c == 3" + ")" * 31,
    ],
)
def test_the_largest_expressions_fit(expression: str) -> None:
    node = filters.parse(expression).root
    assert xml.read(xml.write(node)) == node


@settings(max_examples=300)
@given(
    st.text()
    | st.lists(st.sampled_from(['<and name="a">', "</and>", "<any", "/>", "&", "]]>", "<!--", "5"])).map("".join)
)
def test_any_other_text_is_a_filter_error(text: str) -> None:
    for given_text in (text, filter_text(text)):
        with contextlib.suppress(FilterError):
            xml.read(given_text)
