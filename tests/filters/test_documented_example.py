"""The example that docs/filters.md draws is true."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.filters.covering import covers
from wanderbus.filters.merging import MergedSet, merge, precision, recall

PAGE = (Path(__file__).parents[2] / "docs" / "filters.md").read_text(encoding="utf-8")
FILTERS = {name: parse(text.strip()) for name, text in re.findall(r"\b([ABCD])  (Price .*?)(?=   |\n)", PAGE)}
SQUARES = [
    Event("Stocks", {"Price": p + 5, "Volume": v + 5}) for v, p in product(range(90, -1, -10), range(0, 100, 10))
]


def drawn(column: int) -> str:
    """One picture of the page, row by row."""
    rows = re.findall(r"^ +(?:\d+)? \| (.*?) +\| (.*?) +\| (.*)$", PAGE, re.MULTILINE)
    return "".join(row[column].replace(" ", "") for row in rows)


def picture(letters: dict[str, Filter]) -> str:
    return "".join(next((name for name, each in letters.items() if each.matches(event)), ".") for event in SQUARES)


def test_the_pictures() -> None:
    assert sorted(FILTERS) == ["A", "B", "C", "D"]
    assert drawn(0) == picture({name: FILTERS[name] for name in "DABC"})
    q, p = merge(FILTERS.values(), "perfect")
    assert drawn(1) == picture({"P": p, "Q": q})
    (r,) = merge(FILTERS.values(), "imperfect")
    asked = picture(dict.fromkeys("ABCD", r) | FILTERS)
    assert drawn(2) == "".join(
        ("o" if wanted == "." else "R") if let == "r" else "."
        for let, wanted in zip(picture({"r": r}), asked, strict=True)
    )


def test_the_words() -> None:
    a, b, c, d = (FILTERS[name] for name in "ABCD")
    assert covers(a, d)
    assert not covers(d, a)
    assert str(merge([a, b])[0]) == "Price < 40 and any Volume (< 20 or > 50)"
    assert [str(each) for each in merge([a, b, c, d], "imperfect")] == [
        "any Price (< 40 or > 70) and any Volume (< 30 or > 50)"
    ]
    for bound, count in ((0.6, 1), (0.7, 2)):
        assert len(merge([a, b, c, d], "adaptive", precision_min=bound)) == count


def test_the_figures() -> None:
    merged = merge(FILTERS.values(), "imperfect")
    assert precision(FILTERS.values(), merged, SQUARES) == pytest.approx(37 / 56)
    assert round(100 * 37 / 56) == 66
    assert recall(FILTERS.values(), merged, SQUARES) == 1


def test_the_coverer_leaves() -> None:
    perfect, imperfect = MergedSet("perfect"), MergedSet("imperfect")
    for kept in (perfect, imperfect):
        kept.update(FILTERS)
        kept.remove("A")
    assert {str(each) for each in perfect.filters()} == {str(FILTERS[name]) for name in "BCD"}
    (left,) = map(str, imperfect.filters())
    assert left in PAGE
