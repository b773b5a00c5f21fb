"""Both kernels have the same effect on the same segments, and find the matches of a slow reference (DESIGN 7.4)."""

from __future__ import annotations

import math
import random
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

import pytest

np = pytest.importorskip("numpy")
from tests.matching import segments  # noqa: E402
from tests.matching.segments import GREATEST, INF, a_row, a_segment, filled, found, some_events, some_rows, write  # noqa: E402
from wanderbus.matching.layout import (  # noqa: E402
    BLOCK_ROWS,
    OR_NEXT,
    OWNER,
    ROW_PARTS,
    ROWS,
    SLOT,
    START,
    STOP,
    SUBJECT,
    UNPLACED,
    USED,
    VERIFIED,
    WRITTEN,
)
from wanderbus.matching.segment import PLAIN, RowSegment, Shape  # noqa: E402
from wanderbus.matching.segment_shape import shape_of  # noqa: E402

NUMPY: Final = import_module("wanderbus.matching.kernel_numpy")


@pytest.fixture(params=["numba", "numpy"])
def kernel(request: pytest.FixtureRequest) -> Any:
    """Either kernel, where it is installed."""
    pytest.importorskip(request.param)
    return import_module(f"wanderbus.matching.kernel_{request.param}")


# Matches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_matches_equal_the_rows(kernel: Any, seed: int) -> None:
    rng = random.Random(seed)
    segment, events, traits = a_segment(rng, kernel), some_events(rng, 12), segments.some_traits(rng)
    for segment.is_frozen in (False, True):
        *_, out, counts, slots, ends = found(kernel, segment, events, traits)
        assert counts.tolist() == np.bincount(out[:, 0], minlength=12).tolist()
        assert by_event(slots, ends) == segments.wanted(segment, events, traits)


def by_event(slots: Any, ends: Any) -> list[list[int]]:
    stops = ends.tolist()
    return [sorted(slots[first:last].tolist()) for first, last in zip([0, *stops[:-1]], stops, strict=True)]


def alone(*values: float) -> Any:
    """Return events of subject 0 with one value, in column 1."""
    count = len(values)
    columns = np.array([[0.0, value] for value in values])
    return columns, np.zeros(count, np.uint8), np.zeros(count + 1, np.int64), np.empty(0, np.int32), np.empty((0, 2))


def about_one(*ends: tuple[float, float]) -> Any:
    """Return rows of one entry each, about column 1."""
    rows = np.array([a_row(n, n, n + 1) for n in range(len(ends))], np.int32)
    return rows, np.ones(len(ends), np.int32), np.array(ends)


def test_infinity_is_beyond_the_greatest_double(kernel: Any) -> None:
    """A range that ends at infinity does not cover the last bucket."""
    fresh = about_one((-INF, GREATEST), (-INF, INF), (5.0, GREATEST), (5.0, INF), (INF, INF), (GREATEST, GREATEST))
    segment = filled(kernel, fresh, shape_of(*fresh), 1, 6)
    slots, ends = found(kernel, segment, alone(INF, GREATEST, -INF, 5.0, math.nan), np.ones(6, np.uint8))[-2:]
    assert by_event(slots, ends) == [[1, 3, 4], [0, 1, 2, 3, 5], [0, 1], [0, 1, 2, 3], []]


def test_each_slot_comes_once_to_each_event(kernel: Any) -> None:
    slots = np.array([3, 1, 3, 1, 1, ~2, 1, ~2, 5, 3], np.int32)
    ends = np.array([3, 3, 8, 10], np.int64)
    kernel.once(slots, ends, np.zeros(8, np.int32), 1)
    assert ends.tolist() == [2, 2, 4, 6]
    assert slots[:6].tolist() == [3, 1, 1, ~2, 5, 3]


# Effect of bits and summary -------------------------------------------------------------------------------------------


def test_bits_decide_ranges_between_cuts(kernel: Any) -> None:
    fresh = about_one(*[(float(n), float(n)) for n in range(0, 20, 2)], (3.0, 3.0), (-INF, INF), (2.0, INF), (9.0, 9.5))
    segment = filled(kernel, fresh, shape_of(*fresh), 1, 14)
    live = segment.live_rows()
    assert (segment.rows[live, VERIFIED] == segment.rows[live, START]).all()
    coarse = Shape(
        np.array([1]), np.array([1, 4], np.int32), np.array([math.nan, math.nan, -INF, 5.0]),
        np.array([-1, 0], np.int32), np.array([9], np.int32),
    )  # fmt: skip
    segment = filled(kernel, fresh, coarse, 1, 14)
    said = segment.rows[segment.rows[:, VERIFIED] < segment.rows[:, STOP], SLOT]
    assert said.tolist() == [11]


def test_a_row_is_left_in_the_buckets_of_its_clauses_alone(kernel: Any) -> None:
    """For values at the edges of all buckets, and for no value, the bits are those of the rows that may match."""
    rng = random.Random(8)
    fresh = about_one(*[(float(low), float(low + rng.choice((0, 3, 9)))) for low in rng.sample(range(400), 300)])
    shape = shape_of(*fresh)
    segment = filled(kernel, fresh, shape, 1, 300)
    cuts = [*shape.cuts[shape.line_starts[0] + 1 :].tolist(), INF]
    low, high = fresh[2][segment.rows[:300, SLOT]].T
    for line, (begin, end) in enumerate(pairwise(cuts), shape.line_starts[0] + 1):
        bits = np.unpackbits(segment.bits[0, line].view(np.uint8), bitorder="little")[:300]
        assert bits.tolist() == ((low < end) & (high >= begin)).tolist()
    assert not np.unpackbits(segment.bits[0, shape.line_starts[0]].view(np.uint8), bitorder="little")[:300].any()


@pytest.mark.parametrize("seed", range(4))
def test_the_summary_misses_nothing_and_is_exact_where_a_row_was_written(kernel: Any, seed: int) -> None:
    rng = random.Random(seed)
    segment = a_segment(rng, kernel)

    def told_and_true() -> tuple[Any, Any]:
        told = np.unpackbits(segment.summary.view(np.uint8), axis=1, count=len(segment.keys), bitorder="little")
        return told.T != 0, (segment.bits & segment.bits[:, :1]).any(axis=2)

    live = segment.live_rows()
    for row in rng.sample(live.tolist(), len(live) * 9 // 10):
        segment.remove(row)
    told, true = told_and_true()
    assert (told >= true).all()
    left, where = write(kernel, segment, some_rows(rng, 2, 20_000), 12)
    assert left == 0
    told, true = told_and_true()
    assert (told >= true).all()
    assert np.array_equal(told[where // BLOCK_ROWS], true[where // BLOCK_ROWS])


def test_bits_decide_up_to_sixty_four_clauses(kernel: Any) -> None:
    rows = np.array([a_row(n, 70 * n, 70 * n + 70) for n in range(8)], np.int32)
    low = np.repeat(np.arange(8.0), 70)
    fresh = rows, np.tile(np.arange(1, 71, dtype=np.int32), 8), np.stack([low, np.nextafter(low + 1, -INF)], axis=1)
    cuts = [math.nan, -INF, *map(float, range(9))]
    shape = Shape(
        np.array([1, 69, 70]), np.array([1, 12, 23, 34], np.int32), np.array([math.nan, *cuts * 3]),
        np.array([-1, 0, *[-1] * 67, 1, 2], np.int32), np.array([9, 9, 9], np.int32),
    )  # fmt: skip
    segment = filled(kernel, fresh, shape, 1, 8)
    assert (segment.rows[:8, STOP] - segment.rows[:8, VERIFIED] == 1).all()


# Where rows go -------------------------------------------------------------------------------------------------------


def test_rows_go_to_the_block_where_their_keys_belong(kernel: Any) -> None:
    fresh = some_rows(random.Random(2), 2_000)
    shape = shape_of(*fresh)
    segment = filled(kernel, fresh, shape, 20, 100)
    assert segment.keys.tolist() == sorted(segment.keys.tolist())
    left, where = write(kernel, segment, fresh, 0)
    numbers = np.arange(2_000, dtype=np.int32)
    keys = kernel.keys_of(numbers, *fresh, shape.places, shape.worths, shape.line_starts, shape.cuts)
    wanted = np.maximum(np.searchsorted(segment.keys, keys, "right") - 1, 0)
    assert left == 0
    assert (where // BLOCK_ROWS).tolist() == wanted.tolist()
    assert len(set(wanted.tolist())) > 10


def test_the_first_three_of_equally_selective_clauses_count(kernel: Any) -> None:
    values = [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 4.0], [0.0, 1.0, 4.0, 2.0], [9.0, 1.0, 2.0, 3.0]]
    rows = np.array([a_row(n, 4 * n, 4 * n + 4) for n in range(4)], np.int32)
    shape = shape_of(*about_one(*[(float(n), float(n)) for n in range(10)]))
    ends = np.repeat(np.array(values).ravel()[:, None], 2, axis=1)
    its = shape.places, shape.worths, shape.line_starts, shape.cuts
    keys = kernel.keys_of(np.arange(4, dtype=np.int32), rows, np.ones(16, np.int32), ends, *its).tolist()
    assert keys[0] == keys[1] < keys[2] < keys[3]


@pytest.mark.parametrize(
    ("reach", "blocks"), [(0, [3]), (1, [3, 4, 2]), (3, [3, 4, 2, 5, 1, 0]), (9, [3, 4, 2, 5, 1, 0])]
)
def test_rows_of_a_full_block_move_to_the_next_blocks(kernel: Any, reach: int, blocks: list[int]) -> None:
    rng = random.Random(3)
    segment = filled(kernel, some_rows(rng, 1), PLAIN, 6, 1)
    segment.keys[:4], segment.keys[4:] = 0, ~np.uint64(0)
    segment.remove(0)
    many = some_rows(rng, 8 * BLOCK_ROWS, clauses=(0,))
    left, where = write(kernel, segment, many, reach)
    placed = where[where != UNPLACED].tolist()
    assert list(dict.fromkeys(row // BLOCK_ROWS for row in placed)) == blocks
    assert len(set(placed)) == len(placed) == len(blocks) * BLOCK_ROWS == len(segment)
    assert left == len(where) - len(placed)


def test_rows_that_have_a_place_are_not_written_again(kernel: Any) -> None:
    rng = random.Random(4)
    segment = filled(kernel, some_rows(rng, 10), PLAIN, 1, 10)
    left, where = write(kernel, segment, some_rows(rng, 4, 100), 0, np.array([-2, UNPLACED, -2, UNPLACED], np.int32))
    assert (left, where.tolist(), len(segment)) == (0, [-2, 10, -2, 11], 12)
    assert segment.rows[[10, 11], SLOT].tolist() == [101, 103]
    assert segment.sizes[WRITTEN] == 12


def test_entries_take_the_room_of_a_row_that_went_or_what_is_left(kernel: Any) -> None:
    rng = random.Random(5)
    fresh = some_rows(rng, 10, clauses=(3,))
    segment = filled(kernel, fresh, shape_of(*fresh), 1, 10)
    used, start = int(segment.sizes[USED]), int(segment.rows[4, START])
    segment.remove(4)
    assert write(kernel, segment, some_rows(rng, 1, 50, clauses=(1,)), 0)[1].tolist() == [4]
    assert (segment.rows[4, START], segment.sizes[USED]) == (start, used)
    segment.remove(4)
    spare = len(segment.entry_columns) - used
    many = some_rows(rng, 1, 51, clauses=(spare + 1,))
    assert write(kernel, segment, many, 3)[0] == 1
    assert (len(segment), segment.sizes[USED]) == (9, used)


def test_live_rows_are_gathered_and_no_others(kernel: Any) -> None:
    fresh = some_rows(random.Random(7), 1_200)
    segment = filled(kernel, fresh, shape_of(*fresh), 3, 400)
    traits = np.ones(1_200, np.uint8)
    traits[::3] = 0
    for row in segment.live_rows()[::7].tolist():
        segment.remove(row)
    live = {int(slot) for slot in segment.rows[segment.live_rows(), SLOT] if traits[slot]}
    made = [np.zeros_like(each) for each in fresh]
    how_far = np.zeros(2, np.int64)
    for some in np.array_split(segment.live_rows().astype(np.int32), 3):
        kernel.gather(some, *segment.tables[:3], traits, how_far, *made)
    rows = made[0][: how_far[0]]
    assert sorted(rows[:, SLOT].tolist()) == sorted(live)
    assert how_far[1] == rows[-1, STOP]
    for row in rows:
        source = fresh[0][row[SLOT]]
        assert row[[SLOT, SUBJECT, OWNER]].tolist() == source[[SLOT, SUBJECT, OWNER]].tolist()
        its = clauses_of(made[1], made[2], row[START], row[STOP])
        assert its == clauses_of(fresh[1], fresh[2], source[START], source[STOP])


def clauses_of(columns: Any, ends: Any, start: int, stop: int) -> list[Any]:
    """Return the clauses of a row in some order, each with its entries."""
    clauses: list[Any] = [[]]
    for entry in range(start, stop):
        clauses[-1].append((int(columns[entry] & ~OR_NEXT), *ends[entry].tolist()))
        if not columns[entry] & OR_NEXT:
            clauses.append([])
    return sorted(clauses)


def test_a_compiled_loop_is_found_in_the_cache_again() -> None:
    """The key in the cache names the inputs of the compilation, and nothing that differs between two runs."""
    compiling = pytest.importorskip("wanderbus.matching.compilation")
    before = compiling._fingerprint()
    codes = [each.__code__ for each in (compiling.line_of.py_func, compiling._lowest_bit, compiling._touch)]
    parts = [getattr(code, name) for code in codes for name in ("co_consts", "co_names", "co_varnames", "co_filename")]
    assert compiling._fingerprint() == before, "it depends on who refers to its parts"
    assert parts


# Both alike ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_both_kernels_do_the_same(seed: int) -> None:
    numba = pytest.importorskip("wanderbus.matching.kernel_numba")
    one, other = (a_segment(random.Random(seed), each) for each in (numba, NUMPY))
    same_arrays(one, other)
    rng = random.Random(seed)
    events, traits = some_events(rng, 40), segments.some_traits(rng)
    for room in (BLOCK_ROWS, 40 * BLOCK_ROWS):
        its = [found(each, one, events, traits, room) for each in (numba, NUMPY)]
        assert all(map(np.array_equal, *its))
    made = []
    for each in (numba, NUMPY):
        fresh = np.zeros((9_000, ROW_PARTS), np.int32), np.zeros(90_000, np.int32), np.zeros((90_000, 2))
        how_far = np.array([2, 3], np.int64)
        each.gather(one.live_rows().astype(np.int32), *one.tables[:3], traits, how_far, *fresh)
        made.append([how_far, *fresh])
    assert all(map(np.array_equal, *made))
    assert made[0][0][0] > 2


def same_arrays(one: RowSegment, other: RowSegment) -> None:
    assert one.sizes.tolist() == other.sizes.tolist()
    assert one.sizes[ROWS] == len(one.live_rows())
    for name, array in one.arrays().items():
        assert np.array_equal(array, other.arrays()[name], equal_nan=array.dtype == np.float64), name
