"""The states of a live pattern, without Spark: stream = batch, whatever the batches, the order and the lateness."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.patterns.cases import SECOND_US, patterns, streams, text_of
from tests.patterns.enumerator import E, P
from tests.published import published
from tests.spark.patterns.fake_store import FakeQuery
from tests.spark.patterns.streams import START_US
from wanderbus.event import Event, EventId
from wanderbus.patterns import AcceptedEvent, Detection, Pattern, PatternError, compile_pattern
from wanderbus.pipeline.patterns.bucket_states import BUCKETS, bucket_of
from wanderbus.records import encode_record

LATEST_US = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * SECOND_US
STARTS_US = [START_US, 0, -3 * SECOND_US, int(datetime.min.replace(tzinfo=UTC).timestamp()) * SECOND_US, LATEST_US]
"""Times at which streams begin: now, around 1970, in the year 1 and at the end of the year 9999."""

ABSENT = "pattern absent by k match A: event (kind == a) then not B: event (kind == b) within 2 seconds"


def compiled(pattern: P, clause: str) -> Pattern:
    try:
        return compile_pattern(f"{text_of(pattern)} {clause}")
    except PatternError:
        assume(False)
        raise


def occurrence(each: E, received_us: int | None = None, start_us: int = START_US) -> AcceptedEvent:
    """Return an event that was published at its time, counted from ``start_us``."""
    attributes = {"k": each.key, "kind": each.kind} | ({} if each.value is None else {"v": each.value})
    at_us = start_us + each.time * SECOND_US
    return AcceptedEvent(Event("event", attributes, at_us), each.offset, received_us or at_us, f"s-1-{each.offset}")


def records(several: Sequence[AcceptedEvent]) -> pa.RecordBatch:
    """Return records of events, and one of another kind at the same time, as the source gives them."""
    events = [
        encode_record(published(each.event, number=each.offset, id=EventId("s", 1, each.offset))) for each in several
    ]
    last_us = several[-1].received_us if several else START_US
    columns = {
        "offset": pa.array([*(each.offset for each in several), 1_000], pa.int64()),
        "at_us": pa.array([*(each.received_us for each in several), last_us], pa.int64()),
        "kind": pa.array([*("published" for _ in several), "acknowledged"], pa.string()),
        "subject": pa.array([*(each.event.subject for each in several), None], pa.string()),
        "record": pa.array([*events, b"?"], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def divided(several: Sequence[AcceptedEvent], cuts: Sequence[int]) -> list[Sequence[AcceptedEvent]]:
    places = [0, *sorted(min(cut, len(several)) for cut in cuts), len(several)]
    return [several[first:end] for first, end in pairwise(places)]


def certain(pattern: Pattern, several: Sequence[AcceptedEvent], watermark_us: int) -> list[Detection]:
    """Return the detections of the automaton alone that are certain at a watermark."""
    return pattern.advance(pattern.start(), pattern.classify(several), watermark_us)[1]


def by_id(detections: Sequence[Detection]) -> list[Detection]:
    return sorted(detections, key=lambda each: each.id)


@settings(max_examples=300, deadline=None)
@given(patterns(), streams(), st.lists(st.integers(0, 9), max_size=4), st.integers(1, 3))
def test_batches_of_a_log_have_the_detections_of_the_whole(
    pattern: P, events: list[E], cuts: list[int], tasks: int
) -> None:
    own = compiled(pattern, "")
    several = [occurrence(each) for each in sorted(events, key=lambda each: (each.time, each.offset))]
    query = FakeQuery(own)
    for part in divided(several, cuts):
        query.batch([records(part[task::tasks]) for task in range(tasks)] if part else [])
    expected = certain(own, several, query.watermark_us)
    event(f"{min(len(expected), 3)} detections")
    assert by_id(query.detections) == by_id(expected)
    query.batch([records([AcceptedEvent(Event("other", {}), 2_000, START_US + 10**12, "s-1-2000")])])
    assert by_id(query.detections) == by_id(certain(own, several, query.watermark_us))
    assert query.stored == 0
    assert query.counts.late == 0


@settings(max_examples=300, deadline=None)
@given(
    patterns(),
    streams(),
    st.data(),
    st.lists(st.integers(0, 9), max_size=4),
    st.sampled_from([0, 1, 3, 8]),
    st.sampled_from(STARTS_US),
)
def test_within_the_lateness_order_changes_nothing_and_the_rest_is_counted(
    pattern: P, events: list[E], data: st.DataObject, cuts: list[int], lateness_s: int, start_us: int
) -> None:
    own = compiled(pattern, f"on publication time lateness {lateness_s} seconds")
    shuffled = data.draw(st.permutations([occurrence(each, LATEST_US, start_us) for each in events]))
    repeated = [each for each in shuffled if data.draw(st.integers(0, 5)) == 0]
    query = FakeQuery(own)
    on_time: list[AcceptedEvent] = []
    late = 0
    for part in divided([*shuffled, *repeated], cuts):
        watermark_us = query.watermark_us
        taking = [each for each in part if own.classify([each])]
        late += sum((each.event.published_us or 0) < watermark_us for each in taking)
        on_time += [each for each in part if (each.event.published_us or 0) >= watermark_us]
        query.batch([records(part)] if part else [])
    event(f"{min(late, 2)} late")
    assert query.counts.late == late
    assert by_id(query.detections) == by_id(certain(own, on_time, query.watermark_us))


def test_the_watermark_alone_ends_an_absence() -> None:
    own = compile_pattern(ABSENT)
    query = FakeQuery(own)
    query.batch([records([occurrence(E(1, 1, "x", "a", None))])])
    assert query.detections == []
    query.batch([records([occurrence(E(3, 2, "y", "b", None))])])
    assert query.detections == []
    query.batch([records([occurrence(E(4, 3, "y", "b", None))])])
    assert [each.at_us for each in query.detections] == [START_US + 3 * SECOND_US]


@pytest.mark.parametrize("seconds", [1, 4])
def test_records_of_any_kind_move_the_watermark_of_receipt(seconds: int) -> None:
    query = FakeQuery(compile_pattern(ABSENT))
    query.batch([records([occurrence(E(1, 1, "x", "a", None))])])
    other = AcceptedEvent(Event("other", {}), 2, START_US + seconds * SECOND_US, "s-1-2")
    query.batch([records([other])])
    assert len(query.detections) == (seconds == 4)


@pytest.mark.parametrize("source", ["event time when", "publication time"])
@pytest.mark.parametrize("start_us", STARTS_US)
def test_a_key_with_an_early_time_is_not_silent(source: str, start_us: int) -> None:
    query, begin_us = FakeQuery(compile_pattern(f"{ABSENT} on {source}")), min(start_us, LATEST_US - 9 * SECOND_US)
    for offset, (seconds, kind) in enumerate([(0, "a"), (1, "c"), (4, "b"), (5, "b")]):
        at_us = begin_us + seconds * SECOND_US
        attributes = {"k": "x", "kind": kind, "when": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)}
        query.batch([records([AcceptedEvent(Event("event", attributes, at_us), offset, LATEST_US, f"s-1-{offset}")])])
    assert [each.at_us for each in query.detections] == [begin_us + 2 * SECOND_US]


def test_an_event_from_the_future_makes_no_other_late() -> None:
    query = FakeQuery(compile_pattern(f"{ABSENT} on publication time"))
    future = AcceptedEvent(Event("event", {"k": "x", "kind": "b"}, LATEST_US), 1, START_US, "s-1-1")
    for part in (future, *(occurrence(E(time, 1 + time, "x", "a", None)) for time in (1, 2, 6))):
        query.batch([records([part])])
    assert query.counts.late == 0
    assert [each.at_us for each in query.detections] == [START_US + seconds * SECOND_US for seconds in (3, 4)]


def test_keys_are_spread_over_the_buckets() -> None:
    used = {bucket_of(f'["N{number}"]') for number in range(1_000)}
    assert used == set(range(BUCKETS))
    assert bucket_of('["\ud800"]') in used
