"""Rows of notifications, from records alone (SPEC T-03)."""

from __future__ import annotations

import msgspec

from tests.published import published
from wanderbus.event import Event, EventId
from wanderbus.pipeline.lake.event_rows import event_decoder
from wanderbus.pipeline.lake.records import Payloads
from wanderbus.pipeline.tables.catalogue import EVENTS
from wanderbus.protocol import encode_event
from wanderbus.records import (
    Arrival,
    Arrived,
    Delivery,
    Detected,
    Matched,
    MatchedEvent,
    Notified,
    Record,
    Replayed,
    ReplayedEvent,
    encode_record,
)

USER = "sip:alice@localhost"


def replayed(first: int, *subjects: str) -> Replayed:
    """Return the record of one event of each subject for the subscription s2."""
    events = [
        ReplayedEvent(EventId("wb", 1, number), number, msgspec.Raw(encode_event(Event(subject, {}))))
        for number, subject in enumerate(subjects)
    ]
    return Replayed(at_us=9, user=USER, session="default", subscription="s2", first=first, events=tuple(events), next=5)


def matched(first: int, *subjects: str) -> Matched:
    """Return the record of one event of each subject for the subscription s3."""
    events = [
        MatchedEvent(
            EventId("wb", 1, number),
            number,
            msgspec.Raw(encode_event(Event(subject, {}))),
            (Notified(USER, "default", number, ("s3",)),),
        )
        for number, subject in enumerate(subjects, first)
    ]
    return Matched(at_us=9, next=9, events=tuple(events))


def test_events_of_the_past_matches_of_the_engine_and_detections_generate_notifications_too() -> None:
    live = published(Event("Departure", {}), number=1, at_us=8, notified=(Notified(USER, "default", 3, ("s1",)),))
    written: list[Record] = [live, replayed(4, "Departure", "Arrival"), replayed(6)]
    written.append(matched(6, "Arrival", "Departure"))
    written.append(Detected(at_us=9, subscription="s3", watermark_us=8, events=matched(8, "Late").events))
    elsewhere = Arrival("north", 7, 1, 0, EventId("north", 3, 900), 5, msgspec.Raw(encode_event(Event("Delay", {}))))
    notified = (Notified(USER, "default", 9, ("s3",)),)
    written.append(Arrived(at_us=9, arrival=elsewhere, delivery=Delivery(notified)))
    kinds = ["published", "replayed", "replayed", "matched", "detected", "arrived"]
    decode = event_decoder({}, EVENTS)()
    rows = decode(Payloads([0, 1, 2, 3, 8, 9], [8, 9, 9, 9, 9, 9], kinds, [encode_record(each) for each in written]))
    assert rows["events"]["offset"] == [0]
    found = rows["notifications"]
    assert found["offset"] == [0, 1, 1, 3, 3, 8, 9]
    assert found["number"] == [3, 4, 5, 6, 7, 8, 9]
    assert found["subject"] == ["Departure", "Departure", "Arrival", "Arrival", "Departure", "Late", "Delay"]
    assert found["subscriptions"] == [("s1",), ("s2",), ("s2",), ("s3",), ("s3",), ("s3",), ("s3",)]
