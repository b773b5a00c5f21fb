"""Rows of notifications, from records alone (SPEC T-03)."""

from __future__ import annotations

import msgspec

from tests.published import published
from wanderbus.event import Event, EventId
from wanderbus.pipeline.lake.event_rows import event_decoder
from wanderbus.pipeline.lake.records import Payloads
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG
from wanderbus.pipeline.tables.silver import EVENTS
from wanderbus.protocol import encode_event
from wanderbus.records import (
    Arrival,
    Arrived,
    Delivery,
    Detected,
    Drop,
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
    """Return the record of one event of each subject for the subscription s3, and one that notified nobody."""
    events = [
        MatchedEvent(
            EventId("wb", 1, number),
            number,
            msgspec.Raw(encode_event(Event(subject, {}))),
            (Notified(USER, "default", number, ("s3",)),),
        )
        for number, subject in enumerate(subjects, first)
    ]
    unnoticed = MatchedEvent(EventId("wb", 1, 99), 1, msgspec.Raw(encode_event(Event("Nobody", {}))))
    return Matched(at_us=9, next=9, events=(unnoticed, *events))


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


def test_the_event_of_a_notification_is_that_of_its_own_server_whether_broker_or_engine_matched_it() -> None:
    raw, notified = msgspec.Raw(encode_event(Event("Delay", {}))), (Notified(USER, "default", 9, ("s3",)),)
    identity, unknown = EventId("s1", 7, 900), EventId("s9", 7, 900)
    own = EventId("s2", 7, 3)
    written: list[Record] = [
        Arrived(at_us=9, arrival=Arrival("s1", 7, 1, 0, identity, 5, raw), delivery=Delivery(notified)),
        Arrived(at_us=9, arrival=Arrival("s1", 7, 2, 1, identity, 5, raw), engine="spark"),
        Matched(at_us=9, next=9, events=(MatchedEvent(identity, 9, raw, notified, (), 1),)),
        Matched(
            at_us=9,
            next=9,
            events=(MatchedEvent(own, 9, raw, notified), MatchedEvent(unknown, 9, raw, notified, (), 1)),
        ),
    ]
    bases = {"s1-7": OFFSETS_A_LOG, "s2-7": 2 * OFFSETS_A_LOG}
    decode = event_decoder({}, EVENTS, bases)()
    kinds, offsets = ["arrived", "arrived", "matched", "matched"], [2 * OFFSETS_A_LOG + at for at in range(4)]
    rows = decode(Payloads(offsets, [9] * 4, kinds, [encode_record(each) for each in written]))
    assert rows["events"]["offset"] == []
    of_first = OFFSETS_A_LOG + 900
    assert rows["notifications"]["event_offset"] == [of_first, of_first, 2 * OFFSETS_A_LOG + 3, None]


def test_u02_displaced_notifications_are_deliveries() -> None:
    drop = Drop(USER, "default", 3, 4, "queue.notifications_max", ("s1",))
    of_arrival = Delivery((Notified(USER, "default", 9, ("s3",)),), dropped=(drop, drop))
    to_two = Delivery(
        (Notified(USER, "default", 8, ("s3",)), Notified("sip:carol@localhost", "home", 5, ("s4", "s5"))),
        displaced={"queue.bytes_max": (0, 2)},
        dropped=(drop,),
    )
    elsewhere = Arrival("north", 7, 1, 0, EventId("north", 3, 900), 5, msgspec.Raw(encode_event(Event("Delay", {}))))
    written: list[Record] = [
        published(Event("Departure", {}), number=1, at_us=8),
        Arrived(at_us=9, arrival=elsewhere, delivery=of_arrival),
        Arrived(at_us=9, arrival=elsewhere, delivery=to_two),
        msgspec.structs.replace(matched(6, "Arrival"), dropped=(drop,)),
        msgspec.structs.replace(replayed(4, "Departure"), dropped=(drop,)),
        Detected(at_us=9, subscription="s3", watermark_us=8, events=matched(8, "Late").events, dropped=(drop,)),
    ]
    kinds = ["published", "arrived", "arrived", "matched", "replayed", "detected"]
    payloads = Payloads(range(6), [each.at_us for each in written], kinds, list(map(encode_record, written)))
    rows = event_decoder({}, EVENTS)()(payloads)["deliveries"]
    assert rows["offset"] == [1, 1, 2, 2, 3, 4, 5]
    names = ("kind", "user", "session", "first", "last", "reason", "subscriptions")
    assert {name: rows[name][-1] for name in names} == {"kind": "dropped", **msgspec.structs.asdict(drop)}
    first_left = ("dropped", "sip:carol@localhost", "home", 2, 2, "queue.bytes_max", ("s4", "s5"))
    assert tuple(rows[name][2] for name in names) == first_left
    assert rows["resumed"] == [False] * 7
