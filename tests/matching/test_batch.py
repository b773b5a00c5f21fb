"""Events as doubles, taken over one by one and by whole columns, against a plain reading (DESIGN 7.4)."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.filters import trees

np = pytest.importorskip("numpy")
from wanderbus.event import Event  # noqa: E402
from wanderbus.filters import parse  # noqa: E402
from wanderbus.filters.evaluate import kind_of  # noqa: E402
from wanderbus.matching import batch as module  # noqa: E402
from wanderbus.matching.batch import Batch  # noqa: E402
from wanderbus.matching.columns import UNKNOWN, Columns  # noqa: E402
from wanderbus.matching.layout import LISTS  # noqa: E402
from wanderbus.matching.rows import (  # noqa: E402
    BOOLEAN,
    DATE,
    EMPTY,
    MISSING,
    NUMBER,
    ORDER,
    PRESENCE,
    PRESENT,
    WORD,
    doubles_around,
    microseconds,
    rows_of,
)

FAR = datetime(9999, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
ASKED = (
    "a == 1 or a == x or a < y or a == true or exists a or a > 2026-11-21T00:00:00Z",
    "b == 1 or b > 2026-11-21T00:00:00Z",
    "c == x or c == y or c prefix z",
    "d == true or exists d",
    "e == w",
    "f > m or not exists f",
    "g > 1",
)
SCALARS: tuple[Any, ...] = (
    *(0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 10**400, -(10**400), True, False),
    *(0.0, -0.0, 0.5, 1e300, math.nan, math.inf, -math.inf, 2.0**60, float(2**53)),
    *("x", "y", "w", "z", "zz", "m", "", "é", "never heard of"),
    *(datetime(2026, 11, 21, tzinfo=UTC), FAR, FAR + timedelta(microseconds=1), datetime(2026, 11, 21), None, (1,)),
)
ALIKE: tuple[tuple[Any, ...], ...] = (
    ("x", "y", "w", "zz", "never heard of"),
    (0, 1, 5, -7),
    (0, 0.5, 2**53 - 1, 1.0),
    (0.5, 1e300, math.nan, math.inf),
    (0, 2**53, 2**53 + 1),
    (2.0**60, 3, 0.25),
    (10**400, 1),
    (True, 1.0),
    SCALARS,
)


@pytest.fixture
def columns() -> Columns:
    """The columns of the attributes in :data:`ASKED`."""
    its = Columns()
    its.subjects["S"], its.subjects["T"]
    for text in ASKED:
        for row in rows_of(parse(text).root).rows:
            its.encode(row, [], [])
    return its


def events(rng: random.Random, count: int, lists: float) -> list[Event]:
    """Return events in which the values of an attribute are alike, or not."""
    kinds = {name: rng.choice(ALIKE) for name in "abcdefgh"}

    def value(name: str) -> Any:
        if rng.random() < lists:
            return [rng.choice(SCALARS) for _ in range(rng.randrange(4))]
        return rng.choice(kinds[name])

    return [
        Event(rng.choice("STU"), {name: value(name) for name in rng.sample("abcdefgh", 8) if rng.random() < 0.8})
        for _ in range(count)
    ]


def items_of(batch: Batch, event: int) -> list[tuple[int, float, float]]:
    its = slice(batch.item_starts[event], batch.item_starts[event + 1])
    pairs = zip(batch.item_columns[its].tolist(), batch.item_values[its].tolist(), strict=True)
    return [(column, low, high) for column, (low, high) in pairs]


def read(columns: Columns, event: Event) -> tuple[list[float], int, list[tuple[int, float, float]]]:
    """Return the values of an event, its flags and its items, read plainly."""
    values = [math.nan] * columns.count
    values[0] = columns.subjects.get(event.subject, UNKNOWN)
    flags, items = 0, []
    for name, attribute in columns.attributes.items():
        value = event.attributes.get(name)
        if attribute.columns[PRESENCE] >= 0:
            state = PRESENT if name in event.attributes else MISSING
            values[attribute.columns[PRESENCE]] = EMPTY if value == [] else state
        for item in value if isinstance(value, list) else [value]:
            for kind, low, high in doubles(columns, name, item):
                column = attribute.columns[kind]
                if column >= 0 and low == high and not isinstance(value, list):
                    values[column] = low
                elif column >= 0:
                    flags = LISTS
                    items.append((column, low, high))
        if isinstance(value, list):
            flags = LISTS
    return values, flags, sorted(items)


def doubles(columns: Columns, name: str, item: Any) -> list[tuple[int, float, float]]:
    attribute = columns.attributes[name]
    match kind_of(item):
        case "string":
            word, mark = attribute.words.get(item, UNKNOWN), attribute.marks.of(item)
            return [(WORD, word, word), (ORDER, mark, mark)]
        case "number":
            return [(NUMBER, *doubles_around(item))]
        case "date":
            return [(DATE, *doubles_around(microseconds(item)))]
        case "boolean":
            return [(BOOLEAN, float(item), float(item))]
        case _:
            return []


@pytest.mark.parametrize(("columnwise_min", "wide_min"), [(1, 10**9), (10**9, 10**9), (10**9, 0)])
@pytest.mark.parametrize("lists", [0.0, 0.2])
def test_values_flags_and_items_are_those_of_the_events(
    columns: Columns, lists: float, columnwise_min: int, wide_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WIDE_MIN", wide_min)
    monkeypatch.setattr(module, "COLUMNWISE_MIN", columnwise_min)
    rng = random.Random(3)
    words = {name: len(attribute.words) for name, attribute in columns.attributes.items()}
    for _ in range(40):
        several = events(rng, rng.choice((1, 4, 20)), lists)
        batch = Batch(several, columns)
        for at, event in enumerate(several):
            values, flags, items = read(columns, event)
            assert np.array_equal(batch.values[at], np.array(values), equal_nan=True), event
            assert (batch.flags[at], items_of(batch, at)) == (flags, items), event
        assert batch.with_lists == np.flatnonzero(batch.flags).tolist()
        assert batch.item_starts[-1] == len(batch.item_columns) == len(batch.item_values)
    assert words == {name: len(attribute.words) for name, attribute in columns.attributes.items()}


def test_filters_of_any_shape_give_the_same_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    columns = Columns()
    for _ in range(60):
        for row in rows_of(trees.random_node(rng)).rows:
            columns.encode(row, [], [])
    several = [trees.random_event(rng) for _ in range(100)]
    batches = []
    for columnwise_min in (1, 10**9):
        monkeypatch.setattr(module, "COLUMNWISE_MIN", columnwise_min)
        batches.append(Batch(several, columns))
    one, other = batches
    assert np.array_equal(one.values, other.values, equal_nan=True)
    assert np.array_equal(one.flags, other.flags)
    assert [items_of(one, at) for at in range(100)] == [items_of(other, at) for at in range(100)]


def test_an_event_among_few_attributes_or_among_many(columns: Columns) -> None:
    """Only the attributes of the event are examined, when it has few of the known ones."""
    for number in range(200):
        columns.encode([[(f"more {number}", NUMBER, 1.0, 1.0, 0)]], [], [])
    several = [Event("S", {"a": 1, "more 7": number}) for number in range(40)]
    batch = Batch(several, columns)
    for at, event in enumerate(several):
        assert np.array_equal(batch.values[at], np.array(read(columns, event)[0]), equal_nan=True)


def test_arrays_have_the_types_of_the_kernels(columns: Columns) -> None:
    for several in ([Event("S", {})], [Event("S", {"a": [1, "x"]})] * 40):
        types = [(array.dtype.name, array.flags.c_contiguous) for array in Batch(several, columns).tables]
        assert types == [(name, True) for name in ("float64", "uint8", "int64", "int32", "float64")]
