"""Events as tables match the same filters as the same events one by one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters import trees
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.matching import Index, Kernel
from wanderbus.matching.batch import EVENTS_MAX
from wanderbus.matching.columns import ABSENT
from wanderbus.matching.rows import BOOLEAN, NUMBER
from wanderbus.matching.table import EventTable
from wanderbus.matching.table_columns import Column, Doubles, Texts

KERNELS: tuple[Kernel, ...] = ("numba", "numpy")


def column_of(values: Sequence[Any]) -> Column:
    """Return a column in its fastest form."""
    types = {type(value) for value in values} - {type(ABSENT)}
    is_missing = np.array([value is ABSENT for value in values])
    if types == {str}:
        distinct = sorted({value for value in values if value is not ABSENT})
        places = [-1 if value is ABSENT else distinct.index(value) for value in values]
        return Texts(np.array(places, np.int64), distinct)
    if types == {bool} or types == {float}:
        doubles = np.array([np.inf if value is ABSENT else float(value) for value in values])
        return Doubles(BOOLEAN if types == {bool} else NUMBER, doubles, is_missing if is_missing.any() else None)
    return list(values)


def table_of(events: Sequence[Event], in_more: frozenset[str] = frozenset()) -> EventTable:
    """Return events as a table, some attributes as further ones of the rows."""
    names = {name for event in events for name in event.attributes}
    columns = {name: column_of([each.attributes.get(name, ABSENT) for each in events]) for name in names - in_more}
    more: list[Mapping[str, Any] | None] = [
        {name: value for name, value in each.attributes.items() if name in in_more} or None for each in events
    ]
    subjects = sorted({each.subject for each in events})
    places = np.array([subjects.index(each.subject) for each in events], np.int64)
    return EventTable(Texts(places, subjects), columns, lambda row: events[row].attributes, more)


def matched(index: Index, table: EventTable) -> list[list[str]]:
    places, ends = index.match_table(table)
    ids = index.ids()
    return [sorted(str(ids[each]) for each in part) for part in np.split(places, ends[:-1])]


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    filters=st.lists(trees.nodes(residuals=True), min_size=1, max_size=8),
    events=st.lists(trees.events(), min_size=1, max_size=8),
    in_more=st.frozensets(st.sampled_from(trees.NAMES)),
)
def test_a_table_matches_as_its_events_do(
    kernel: Kernel, filters: list[Any], events: list[Event], in_more: frozenset[str]
) -> None:
    index = Index(kernel)
    for number, root in enumerate(filters):
        index.add(str(number), "S" if number % 3 else "T", Filter("", "eci", root))
    several = [Event("T" if number % 2 else "S", each.attributes) for number, each in enumerate(events)]
    expected = [sorted(found) for found in index.match(several)]
    assert matched(index, table_of(several, in_more)) == expected
    of_one = [sorted(found) for found in index.match([Event("T", each.attributes) for each in several])]
    assert matched(index, table_of(several, in_more).of_subject("T")) == of_one


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_table_is_matched_in_parts(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of encoding and those of matching end at different rows."""
    rng = random.Random(3)
    index = Index(kernel)
    for number in range(40):
        index.add(str(number), "S", Filter("", "eci", trees.random_node(rng, residuals=True)))
    events = [trees.random_event(rng) for _ in range(2 * EVENTS_MAX + 7)]
    expected = [sorted(found) for found in index.match(events)]
    assert matched(index, table_of(events)) == expected
    monkeypatch.setattr("wanderbus.matching.engine.VALUES_MAX", 100 * 40)
    assert matched(index, table_of(events)) == expected


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_copied_index_has_the_same_ids(kernel: Kernel) -> None:
    index = Index(kernel)
    for number in range(30):
        index.add(str(number), "S", parse(f"a == 'x{number % 3}' or b > {number}"))
    index.remove("4")
    copy = Index.from_arrays(index.arrays(), kernel)
    table = table_of([Event("S", {"a": "x1", "b": 7.0}), Event("S", {"a": "x0"}), Event("?", {})])
    assert matched(copy, table) == matched(index, table)
    assert "4" not in copy.ids()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_further_attribute_takes_the_place_of_that_in_a_column(kernel: Kernel) -> None:
    index = Index(kernel)
    index.add("exact", "S", parse(f"n == {2**53 + 1}"))
    index.add("near", "S", parse(f"n == {2**53}"))
    index.add("text", "S", parse("n == x"))
    columns: dict[str, Column] = {"n": Doubles(NUMBER, np.array([2.0**53, 2.0**53, 2.0**53]), None)}
    more: list[Mapping[str, Any] | None] = [None, {"n": 2**53 + 1}, {"n": "x"}]
    table = EventTable(Texts(np.zeros(3, np.int64), ["S"]), columns, lambda row: more[row] or {"n": 2.0**53}, more)
    assert matched(index, table) == [["near"], ["exact"], ["text"]]


def test_an_empty_table_matches_nothing() -> None:
    index = Index("numpy")
    index.add("1", "S", parse(""))
    places, ends = index.match_table(EventTable(Texts(np.empty(0, np.int64), []), {}, lambda row: {}))
    assert (len(places), len(ends)) == (0, 0)


def test_an_index_that_scans_matches_no_tables() -> None:
    with pytest.raises(ValueError, match="scans"):
        Index("scan").match_table(table_of([Event("S", {})]))
