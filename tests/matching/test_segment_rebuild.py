"""Segments, and their rebuild while rows are removed (DESIGN 7.4)."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import pytest

np = pytest.importorskip("numpy")
from tests.matching.segments import a_segment, filled, some_rows, write  # noqa: E402
from wanderbus.matching import segment_rebuild  # noqa: E402
from wanderbus.matching.arrays import Slots  # noqa: E402
from wanderbus.matching.layout import BLOCK_ROWS, OR_NEXT, OWNER, SLOT, START, STOP, SUBJECT, WRITTEN  # noqa: E402
from wanderbus.matching.segment import PLAIN, RowSegment, plain  # noqa: E402
from wanderbus.matching.segment_rebuild import Rebuilding  # noqa: E402
from wanderbus.matching.segment_shape import shape_of  # noqa: E402

NEW = 9


@pytest.fixture(params=["numba", "numpy"])
def kernel(request: pytest.FixtureRequest) -> Any:
    """Either kernel, where it is installed."""
    pytest.importorskip(request.param)
    return import_module(f"wanderbus.matching.kernel_{request.param}")


def said(segment: RowSegment, row: int) -> Any:
    """Return the subject and owner of a row, and its clauses in some order."""
    start, stop, subject, owner = segment.rows[row][[START, STOP, SUBJECT, OWNER]].tolist()
    clauses: list[Any] = [[]]
    for entry in range(start, stop):
        clauses[-1].append((int(segment.entry_columns[entry]) & ~OR_NEXT, *segment.ends[entry].tolist()))
        if not segment.entry_columns[entry] & OR_NEXT:
            clauses.append([])
    return subject, owner, sorted(clauses)


class Held:
    """Some segments, and where each of their slots is."""

    def __init__(self, rng: random.Random, kernel: Any, counts: tuple[int, ...]) -> None:
        self.slots = Slots(
            np.zeros(sum(counts), np.uint8), np.zeros(sum(counts), np.int32), np.zeros(sum(counts), np.int32)
        )
        self.segments: dict[int, RowSegment] = {}
        self.said: dict[int, Any] = {}
        first = 0
        for number, count in enumerate(counts, 1):
            fresh = some_rows(rng, count, first)
            shape = PLAIN if number == 2 else shape_of(*fresh)
            self.segments[number] = segment = filled(kernel, fresh, shape, -(-count // 300), 300)
            for row in segment.live_rows().tolist():
                slot = int(segment.rows[row, SLOT])
                self.slots.traits[slot], self.slots.homes[slot], self.slots.places[slot] = 1, number, row
                self.said[slot] = said(segment, row)
            first += count

    def remove(self, slot: int, made: RowSegment | None) -> None:
        del self.said[slot]
        self.slots.traits[slot] = 0
        home = int(self.slots.homes[slot])
        segment = made if home == NEW else self.segments[home]
        assert segment is not None
        segment.remove(int(self.slots.places[slot]))


@pytest.mark.parametrize("gone_a_step", [0, 1, 40])
def test_rows_may_go_at_every_step(kernel: Any, gone_a_step: int) -> None:
    rng = random.Random(gone_a_step)
    held = Held(rng, kernel, (700, 900, 40))
    for slot in rng.sample(sorted(held.said), 100):
        held.remove(slot, None)
    work = Rebuilding(held.segments, NEW, held.slots, kernel)
    assert all(segment.is_frozen for segment in held.segments.values())
    steps = 0
    while not work.step(1):
        steps += 1
        for slot in rng.sample(sorted(held.said), min(gone_a_step, len(held.said))):
            held.remove(slot, work.made)
    assert steps > 5
    made = work.made
    assert made is not None
    live = made.live_rows().tolist()
    assert len(made) == len(live)
    assert {int(made.rows[row, SLOT]): said(made, row) for row in live} == held.said
    assert (held.slots.homes[made.rows[live, SLOT]] == NEW).all()
    assert held.slots.places[made.rows[live, SLOT]].tolist() == live
    assert made.sizes[WRITTEN] == 0
    assert made.shape is not PLAIN
    assert not made.is_frozen


def test_rows_lie_in_the_order_of_their_keys_with_room_left_in_each_block(kernel: Any) -> None:
    held = Held(random.Random(1), kernel, (2_000, 300))
    work = Rebuilding(held.segments, NEW, held.slots, kernel)
    assert work.step(10**9)
    made = work.made
    assert made is not None
    rows, shape = made.live_rows().astype(np.int32), made.shape
    keys = kernel.keys_of(rows, *made.tables[:3], shape.places, shape.worths, shape.line_starts, shape.cuts)
    last = [keys[rows // BLOCK_ROWS == block].max() for block in range(len(made.keys))]
    first = [keys[rows // BLOCK_ROWS == block].min() for block in range(len(made.keys))]
    assert all(low <= high for low, high in zip(last, first[1:], strict=False))
    assert made.keys.tolist() == first
    assert np.bincount(rows // BLOCK_ROWS).max() < BLOCK_ROWS
    assert len(made.entry_columns) > (made.rows[rows, STOP] - made.rows[rows, START]).sum()


def test_a_segment_without_rows_is_not_rebuilt(kernel: Any) -> None:
    held = Held(random.Random(2), kernel, (20, 20))
    for slot in range(40):
        held.remove(slot, None)
    work = Rebuilding(held.segments, NEW, held.slots, kernel)
    assert work.step(10**9)
    assert work.made is None


def test_rows_that_all_go_meanwhile_leave_nothing(kernel: Any) -> None:
    held = Held(random.Random(2), kernel, (20, 20))
    work = Rebuilding(held.segments, NEW, held.slots, kernel)
    work.step(1)
    for slot in range(40):
        held.remove(slot, work.made)
    while not work.step(1):
        pass
    assert work.made is None or len(work.made) == 0


def test_a_step_takes_about_as_long_as_it_may(kernel: Any) -> None:
    held = Held(random.Random(3), kernel, (3_000,))
    counts = []
    for least_us in (1, 2_000, 10**9):
        work = Rebuilding(held.segments, NEW, held.slots, kernel)
        counts.append(1)
        while not work.step(least_us):
            counts[-1] += 1
    assert counts[0] > counts[1] > counts[2] == 1


def test_keys_are_sorted_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_rebuild, "_SORTED_AT_ONCE", 100)
    for keys in (np.arange(1_000) * 7919 % 1_000, np.zeros(500), np.arange(3)):
        order = np.full(len(keys), -1, np.int64)
        steps = list(segment_rebuild._sort(keys.astype(np.uint64), order))
        assert sorted(order.tolist()) == list(range(len(keys)))
        assert keys[order].tolist() == sorted(keys.tolist())
        assert len(steps) > len(keys) // 100


# Segments ------------------------------------------------------------------------------------------------------------


def test_removed_rows_are_free_and_no_others(kernel: Any) -> None:
    rng = random.Random(4)
    segment = a_segment(rng, kernel)
    before = segment.live_rows().tolist()
    gone = rng.sample(before, len(before) // 2)
    for row in gone:
        segment.remove(row)
    assert segment.live_rows().tolist() == sorted(set(before) - set(gone))
    assert len(segment) == len(before) - len(gone)
    assert segment.free == len(segment.rows) - len(segment)


def test_a_segment_is_worn_when_few_rows_are_left_or_many_came(kernel: Any) -> None:
    fresh = some_rows(random.Random(5), 2_000, clauses=(1,))
    segment = filled(kernel, fresh, shape_of(*fresh), 4, 500)
    segment.settled()
    before = segment.is_worn
    for row in segment.live_rows()[:1_600].tolist():
        segment.remove(row)
    assert (before, segment.is_worn) == (False, True)
    segment = filled(kernel, fresh, shape_of(*fresh), 4, 500)
    segment.sizes[WRITTEN] = 2 * len(segment.rows) + 1
    assert segment.is_worn
    assert plain(1, 0).is_worn


def test_one_like_another_is_empty_and_takes_rows_in_the_same_order(kernel: Any) -> None:
    fresh = some_rows(random.Random(6), 2_000)
    segment = filled(kernel, fresh, shape_of(*fresh), 10, 200)
    other = segment.like(5, 0)
    assert other.shape is segment.shape
    assert other.keys.tolist() == segment.keys[::2].tolist()
    assert len(other) == len(other.live_rows()) == other.summary.sum() == 0
    left, where = write(kernel, other, fresh, 5)
    assert left == 0
    assert sorted(where.tolist()) == other.live_rows().tolist()


def test_a_segment_comes_back_from_its_arrays(kernel: Any) -> None:
    segment = a_segment(random.Random(7), kernel)
    again = RowSegment.from_arrays(segment.arrays())
    for name, array in segment.arrays().items():
        assert np.array_equal(array, again.arrays()[name], equal_nan=array.dtype == np.float64)
    row = int(again.live_rows()[0])
    again.remove(row)
    assert row in segment.live_rows()
    assert row not in again.live_rows()
    assert segment.rows[row, SUBJECT] == again.rows[row, SUBJECT]
