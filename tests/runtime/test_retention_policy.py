"""Policy of log retention: pure decisions which segments may go (SPEC T-01, DESIGN 5.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.runtime.log.retention_policy import Hold, Keep, Segment, reasons, removable

SEGMENTS = [Segment(0, 10, 100, 1_000_000), Segment(10, 20, 100, 2_000_000), Segment(20, 25, 50, None)]
NOW_US = 10_000_000
NOTHING = Keep(bytes=0)


@pytest.mark.parametrize(
    ("holds", "keep", "gone"),
    [
        ([], Keep(), 0),
        ([], NOTHING, 2),
        ([("state", 25)], NOTHING, 2),
        ([("state", 20)], NOTHING, 2),
        ([("state", 19)], NOTHING, 1),
        ([("state", 25), ("lake", 9)], NOTHING, 0),
        ([], Keep(seconds=8), 2),
        ([], Keep(seconds=8.5), 1),
        ([], Keep(seconds=10), 0),
        ([], Keep(bytes=50), 2),
        ([], Keep(bytes=51), 1),
        ([], Keep(bytes=151), 0),
        ([], Keep(seconds=1, bytes=151), 0),
    ],
)
def test_segments_go_when_nobody_needs_them(holds: list[tuple[str, int]], keep: Keep, gone: int) -> None:
    found = removable(SEGMENTS, [Hold(*hold) for hold in holds], keep, NOW_US)
    assert found == SEGMENTS[:gone]


def test_reasons_name_everything_that_keeps_the_oldest_segment() -> None:
    holds = [Hold("lake", 3), Hold("state", 25), Hold("other", 9)]
    assert reasons(SEGMENTS, holds, Keep(100, 1_000), NOW_US) == ["lake", "other", "age", "size"]
    assert reasons(SEGMENTS[2:], [], NOTHING, NOW_US) == ["written"]
    assert reasons(SEGMENTS, [], Keep(), NOW_US) == ["not configured"]
    assert reasons(SEGMENTS, [], NOTHING, NOW_US) == []


def test_a_segment_whose_end_is_unknown_is_young() -> None:
    segments = [Segment(0, 10, 100, None), Segment(10, 10, 8, None)]
    assert removable(segments, [], Keep(seconds=1), NOW_US) == []
    assert removable(segments, [], Keep(seconds=0), NOW_US) == segments[:1]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(8, 1_000), st.integers(0, 10)), min_size=1, max_size=8),
    st.lists(st.integers(0, 40), max_size=3),
    st.floats(0, 10),
    st.integers(0, 5_000),
)
def test_segments_that_go_are_those_that_nobody_needs(
    made: list[tuple[int, int, int]], offsets: list[int], keep_s: float, keep_bytes: int
) -> None:
    segments, first, at = [], 0, 0
    for records, size, lasted in made:
        at += lasted
        segments.append(Segment(first, first + records, size, at * 1_000_000))
        first += records
    keep, holds = Keep(keep_s, keep_bytes), [Hold(str(offset), offset) for offset in offsets]
    gone = removable(segments, holds, keep, NOW_US)
    left = segments[len(gone) :]
    assert gone == segments[: len(gone)]
    assert left, "the segment that is written stays"
    if gone:
        assert gone[-1].end <= min(offsets, default=first)
        assert sum(segment.bytes for segment in left) >= keep_bytes
        assert not keep_s or all(NOW_US - (segment.ended_us or 0) >= keep_s * 1e6 for segment in gone)
    assert reasons(left, holds, keep, NOW_US), "nothing that may go stays"
