"""Integer and Double are one numeric type in comparisons, in every language and every index (SPEC A-13, X42)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.published import published
from wanderbus import protocol
from wanderbus.event import Event
from wanderbus.filters import Filter, parse, xml
from wanderbus.matching import Index, Kernel
from wanderbus.records import Published, decode_record, encode_record

BIG = 2**53
COMPARISONS = [
    ("n == 25", [25, 25.0], [24, 25.5, 24.999999999999996]),
    ("n == 25.0", [25, 25.0], [26, 25.000000000000004]),
    ("n != 25", [24.5, 26], [25, 25.0]),
    ("n < 25.5", [25, 25.25, -1], [26, 25.5]),
    ("n > 24", [24.5, 25], [24, 24.0]),
    ("n >= 25", [25.0, 25, 25.5], [24.5, 24]),
    ("n in (1, 2.5)", [1, 1.0, 2.5], [2, 0.5]),
    (f"n == {BIG + 1}", [BIG + 1], [BIG, BIG + 2, float(BIG), float(BIG + 2)]),
    (f"n > {BIG + 1}", [BIG + 2, float(BIG + 2)], [BIG + 1, float(BIG)]),
    ("all n <= 2.5", [1, 2.5, 1.0], [3, 2.75]),
]
"""Expressions, and the values that match or do not."""


def filters_of(text: str) -> dict[str, Filter]:
    """The same comparison in each language that has Doubles."""
    written = parse(text)
    return {"eci": written, "xml": parse(xml.write(written.root), "xml")}


@pytest.fixture(params=["scan", "numpy", "numba"])
def index(request: pytest.FixtureRequest) -> Index:
    """An index of each kernel that is installed."""
    kernel: Kernel = request.param
    if kernel != "scan":
        pytest.importorskip(kernel)
    return Index(kernel)


def found(index: Index, filters: dict[str, Filter], values: list[Any]) -> list[list[str]]:
    """Filters that match an event for each ``n`` in ``values``: by the index, which must agree with evaluation."""
    for name, each in filters.items():
        index.add(name, "S", each)
    events = [Event("S", {"n": value}) for value in values]
    names = [sorted(each) for each in index.match(events)]
    assert names == [sorted(name for name, each in filters.items() if each.matches(event)) for event in events]
    return names


@pytest.mark.parametrize(("text", "matching", "others"), COMPARISONS)
def test_x42_a_number_compares_by_value_whichever_its_type(
    index: Index, text: str, matching: list[int | float], others: list[int | float]
) -> None:
    values: list[Any] = [*matching, *others]
    values += [[value] for value in values]
    expected = [["eci", "xml"]] * len(matching) + [[]] * len(others)
    assert found(index, filters_of(text), values) == expected * 2


@pytest.mark.parametrize("value", [25, 25.0, "25", True])
def test_a13_text_and_boolean_are_no_numbers(value: Any) -> None:
    for text in ("n == 25", "n != 26", "n < 26"):
        for each in filters_of(text).values():
            assert each.matches(Event("S", {"n": value})) == (type(value) in (int, float))


def test_x42_cesql_has_no_double_so_a_double_is_a_string_there(index: Index) -> None:
    """CESQL 1.0, 3.1: its types are Boolean, Integer and String; another is the String of its canonical form."""
    filters = {text: parse(text, "cesql") for text in ("n = 25", "n < 26", "n = '25.5'", "n LIKE '25%'")}
    assert found(index, filters, [25, 25.0, 25.5]) == [
        ["n < 26", "n = 25", "n LIKE '25%'"],
        ["n LIKE '25%'"],
        ["n = '25.5'", "n LIKE '25%'"],
    ]


@pytest.mark.parametrize("value", [25, 25.0, -(2**63), 2**63 - 1, 0.0, 1e300])
def test_x42_each_keeps_its_type_in_the_event(value: int | float) -> None:
    event = Event("S", {"n": value, "L": [value, 1, 1.0]})
    record = published(event, number=1)
    stored = decode_record(encode_record(record))
    assert isinstance(stored, Published)
    for read in (protocol.decode_event(protocol.encode_event(event)), stored.event):
        assert repr(read.attributes) == repr(event.attributes)
