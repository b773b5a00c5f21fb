"""Rows of waiting events: only what the state store lacks is written."""

from __future__ import annotations

import msgspec
import pytest

from wanderbus.broker.queues.stored_queues import StoredEvents
from wanderbus.broker.state.rows import EventRow
from wanderbus.event import EventId


@pytest.fixture
def events() -> StoredEvents:
    return StoredEvents()


def arrived() -> EventRow:
    """The row of one event, as each session that gets it brings it along."""
    return EventRow(EventId("s2", 36, 7), 1, b"event", 0)


def test_an_event_that_came_and_went_writes_no_row(events: StoredEvents) -> None:
    events.release(events.add_past(arrived()))
    assert not events.changes()


def test_an_event_that_waits_is_written_once_and_then_removed(events: StoredEvents) -> None:
    row = events.add_past(arrived())
    assert events.changes() == {"s2-10-7": msgspec.msgpack.encode(row)}
    assert not events.changes()
    events.release(row)
    assert events.changes() == {"s2-10-7": None}
    assert not events.changes()


@pytest.mark.parametrize("times", [1, 2])
def test_the_row_of_an_event_that_came_again_and_went_is_removed(events: StoredEvents, times: int) -> None:
    row = events.add_past(arrived())
    events.changes()
    events.release(row)
    for _ in range(times):
        events.release(events.add_past(arrived()))
    assert events.changes() == {"s2-10-7": None}
    events.release(events.add_past(arrived()))
    assert not events.changes()


def test_an_event_that_came_again_and_waits_is_written(events: StoredEvents) -> None:
    row = events.add_past(arrived())
    events.changes()
    events.release(row)
    again = events.add_past(arrived())
    assert events.changes() == {"s2-10-7": msgspec.msgpack.encode(again)}
    events.release(again)
    assert events.changes() == {"s2-10-7": None}
