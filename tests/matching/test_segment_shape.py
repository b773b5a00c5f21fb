"""The shape of a segment: which columns have buckets, and where they are cut (DESIGN 7.4)."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest

np = pytest.importorskip("numpy")
from tests.matching.segments import GREATEST, INF, some_rows  # noqa: E402
from wanderbus.matching.layout import BUCKETS_MAX, OPEN_LOW, OR_NEXT, PLACES_MAX, ROW_PARTS, SUBJECT, WORTH  # noqa: E402
from wanderbus.matching.segment_shape import SAMPLE_ROWS, shape_of  # noqa: E402


def rows_about(columns: list[int], ends: list[tuple[float, float]], subjects: list[int] | None = None) -> Any:
    """Return rows of one entry each."""
    count = len(columns)
    rows = np.zeros((count, ROW_PARTS), np.int32)
    rows[:, 0] = rows[:, 1] = np.arange(count)
    rows[:, 2] = rows[:, 1] + 1
    rows[:, SUBJECT] = subjects or [0] * count
    return rows, np.array(columns, np.int32), np.array(ends, np.float64).reshape(-1, 2)


def cuts_of(shape: Any, column: int) -> list[float]:
    place = int(shape.places[column])
    its: list[float] = shape.cuts[shape.line_starts[place] + 1 : shape.line_starts[place + 1]].tolist()
    return its


@pytest.mark.parametrize("seed", range(4))
def test_all_parts_fit_each_other(seed: int) -> None:
    rng = random.Random(seed)
    shape = shape_of(*some_rows(rng, rng.choice((2, 50, 3_000))))
    assert shape.columns.dtype == np.int64
    assert shape.line_starts.dtype == shape.places.dtype == shape.worths.dtype == np.int32
    assert shape.places[shape.columns].tolist() == list(range(len(shape.columns)))
    assert (shape.places >= 0).sum() == len(shape.columns) == len(shape.worths)
    assert (shape.line_starts[0], shape.line_starts[-1]) == (1, len(shape.cuts))
    assert np.isnan(shape.cuts).sum() == 1 + len(shape.columns)
    assert np.isnan(shape.cuts[[0, *shape.line_starts[:-1].tolist()]]).all()
    for column in shape.columns.tolist():
        cuts = cuts_of(shape, column)
        assert cuts[0] == -INF
        assert 1 <= len(cuts) <= BUCKETS_MAX
        assert all(low < high for low, high in pairwise(cuts))


def test_columns_have_buckets_that_many_rows_name_most_first() -> None:
    columns = [5] * 300 + [2 | OR_NEXT | OPEN_LOW] * 200 + [9] * 3 + [7]
    shape = shape_of(*rows_about(columns, [(float(n), float(n)) for n in range(504)]))
    assert shape.columns.tolist() == [5, 2]
    several = rows_about(columns, [(0.0, 0.0)] * 504, [n % 2 for n in range(504)])
    assert shape_of(*several).columns.tolist() == [0, 5, 2]


def test_so_many_columns_have_buckets_and_no_more() -> None:
    columns = [1 + n % (PLACES_MAX + 5) for n in range(20 * (PLACES_MAX + 5))]
    assert (
        len(shape_of(*rows_about(columns, [(0.0, 1.0)] * len(columns), [0, 1] * (len(columns) // 2))).columns)
        == PLACES_MAX
    )


def test_few_ends_are_all_cuts() -> None:
    shape = shape_of(*rows_about([1] * 6, [(1.0, 1.0), (2.0, 5.0), (-INF, 7.0), (8.0, INF), (1.0, 5.0), (-INF, INF)]))
    after = [math.nextafter(end, INF) for end in (1.0, 5.0, 7.0)]
    assert cuts_of(shape, 1) == [-INF, 1.0, after[0], 2.0, after[1], after[2], 8.0]


def test_cuts_divide_many_ends_evenly() -> None:
    rng = random.Random(1)
    ends = [(value, INF) for value in (rng.expovariate(1.0) for _ in range(1_500))]
    cuts = cuts_of(shape_of(*rows_about([1] * 1_500, ends)), 1)
    between = np.histogram([low for low, _ in ends], [*cuts[1:], INF])[0]
    assert len(cuts) > BUCKETS_MAX * 0.9
    assert between.max() < 3 * 1_500 / len(cuts)


@pytest.mark.filterwarnings("error")
def test_the_greatest_double_ends_ranges_too() -> None:
    assert cuts_of(shape_of(*rows_about([1] * 2, [(0.0, GREATEST), (-GREATEST, -GREATEST)])), 1)[0] == -INF


def test_worth_is_what_an_equality_lets_through() -> None:
    ends = [(float(n % 4), float(n % 4)) for n in range(200)] + [(3.0, INF)] * 100 + [(7.0, 7.0)] * 50
    shape = shape_of(*rows_about([1] * 300 + [2] * 50, ends))
    assert shape.worths.tolist() == [WORTH // 4, WORTH]
    assert shape_of(*rows_about([1] * 4, [(3.0, INF)] * 4)).worths.tolist() == [0]


def test_no_rows_and_rows_without_clauses_have_a_shape_without_buckets() -> None:
    for rows in (0, 3):
        shape = shape_of(np.zeros((rows, ROW_PARTS), np.int32), np.empty(0, np.int32), np.empty((0, 2)))
        assert (shape.columns.tolist(), shape.line_starts.tolist(), shape.places.tolist()) == ([], [1], [-1])


def test_many_rows_are_sampled() -> None:
    count = 3 * SAMPLE_ROWS
    columns = [1 if n % 4 == 0 else 2 for n in range(count)]
    shape = shape_of(*rows_about(columns, [(float(n), float(n)) for n in range(count)]))
    assert set(shape.columns.tolist()) <= {1, 2}
    assert len(cuts_of(shape, int(shape.columns[0]))) >= BUCKETS_MAX - 1
