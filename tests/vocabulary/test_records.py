"""The log's records: every kind survives, the schema is frozen (DESIGN 5.1, SPEC T-01)."""

from __future__ import annotations

import typing

import msgspec
import pytest

from tests.published import published
from wanderbus import records
from wanderbus.event import DeclaredAttribute, Event, EventId
from wanderbus.records import AnyRecord, Notified, decode_record, encode_record
from wanderbus.subscription import Daily, Frequency, Interval, QueuePolicy, Subscription

USER = "sip:alice@example.org"
SUBSCRIPTION = Subscription(
    "wb-3",
    USER,
    "default",
    "Trade",
    "Price < 25",
    9,
    (Frequency(15.0, "away"), Interval(1, 2), Daily("22:00", "06:00", "America/Sao_Paulo")),
    "phone",
    QueuePolicy(notifications_max=5),
    "cesql",
)

EXAMPLES: list[tuple[AnyRecord, str]] = [
    (records.Started(at_us=1, server="wb", incarnation=1), "started"),
    (
        published(
            Event("Trade", {"A": 1, "B": [1.5, "x", True]}, 7),
            at_us=2,
            user=USER,
            device="phone",
            epoch=2**56 - 1,
            number=3,
            notified=(Notified(USER, "default", 9, ("wb-3",), (("wb-3", "phone"),)),),
        ),
        "published",
    ),
    (
        records.Dropped(at_us=3, user=USER, session="default", first=1, last=2, reason="purged"),
        "dropped",
    ),
    (records.Acknowledged(at_us=4, user=USER, session="default", device="phone", number=9), "acknowledged"),
    (records.Subscribed(at_us=5, subscription=SUBSCRIPTION, number=1), "subscribed"),
    (records.Changed(at_us=6, subscription=SUBSCRIPTION), "changed"),
    (
        records.Replayed(
            at_us=6,
            user=USER,
            session="default",
            subscription="wb-3",
            first=4,
            events=(records.ReplayedEvent(EventId("wb", 1, 2), 3, msgspec.Raw(b"\xc0")),),
            restricted=1,
            next=7,
        ),
        "replayed",
    ),
    (
        records.Matched(
            at_us=6,
            next=9,
            events=(
                records.MatchedEvent(
                    EventId("wb", 1, 8),
                    5,
                    msgspec.Raw(b"\xc0"),
                    (Notified(USER, "default", 9, ("wb-3",)),),
                    (("wb-4", 0),),
                ),
            ),
        ),
        "matched",
    ),
    (
        records.Arrived(
            at_us=5,
            arrival=records.Arrival("north", 7, 4, 2, EventId("west", 1, 8), 3, msgspec.Raw(b"\xc0"), 6),
            delivery=records.Delivery((Notified(USER, "default", 9, ("wb-3",)),)),
        ),
        "arrived",
    ),
    (
        records.ArrivalsLost(at_us=5, leader="north", epoch=7, number=4, count=2, reason="log_keep"),
        "arrivals_lost",
    ),
    (records.CausalChanged(at_us=5, changes=(msgspec.Raw(b"\xc0"), msgspec.Raw(b"\xc2"))), "causal_changed"),
    (records.RoutesChanged(at_us=5, leader="north", message=b"\x90"), "routes_changed"),
    (records.RolledBack(at_us=5, epoch=7, reason="north"), "rolled_back"),
    (records.EventsLost(at_us=5, rolled_back=7, reason="log_restored", notified=()), "events_lost"),
    (records.ServerMet(at_us=5, server="north"), "server_met"),
    (records.InterestSettled(at_us=5, server="north"), "interest_settled"),
    (
        records.Advertised(
            at_us=5,
            user=USER,
            session="default",
            device="phone",
            advertisement="wb-3",
            subject="Trade",
            expression="N > 1",
        ),
        "advertised",
    ),
    (records.AdvertisementsCounted(at_us=5, advertisements=("wb-3",)), "advertisements_counted"),
    (records.AdvertisementsWithdrawn(at_us=5, advertisements=("wb-3",)), "advertisements_withdrawn"),
    (
        records.Detected(
            at_us=6,
            subscription="wb-3",
            watermark_us=5,
            events=(records.MatchedEvent(EventId("wb#1", 1, 8), 5, msgspec.Raw(b"\xc0")),),
        ),
        "detected",
    ),
    (records.Forgotten(at_us=7, subscriptions=("wb-3",)), "forgotten"),
    (records.Unsubscribed(at_us=7, user=USER, subscription="wb-3", reason="asked"), "unsubscribed"),
    (
        records.Attached(at_us=8, user=USER, session="default", device="phone", epoch=1, redelivered=(("wb-1", 4),)),
        "attached",
    ),
    (
        records.DialogStored(at_us=9, user=USER, device="phone", address="10.0.0.1:1", binding=b"\x00\xff"),
        "dialog_stored",
    ),
    (records.StatusChanged(at_us=10, user=USER, device="phone", status="CONNECTED", reason="x"), "status"),
    (records.Left(at_us=11, user=USER, session="default", device="phone", reason="grace"), "left"),
    (records.SessionFenced(at_us=12, user=USER, session="default", owner_epoch=2), "session_fenced"),
    (
        records.SessionFenced(
            at_us=12,
            user=USER,
            session="default",
            owner_epoch=2,
            target="s2",
            cuts=(records.Cut(EventId("s1", 1, 8), EventId("s1", 1, 9)),),
        ),
        "session_fenced",
    ),
    (records.ExportTaken(at_us=13, user=USER, session="default", through=64), "export_taken"),
    (records.ExportDropped(at_us=13, user=USER, session="default"), "export_dropped"),
    (
        records.QueueContinued(at_us=13, user=USER, session="default", owner_epoch=2, export=b"\x80"),
        "queue_continued",
    ),
    (records.DrainingChanged(at_us=13, is_draining=True), "draining_changed"),
    (
        records.SessionAwaited(
            at_us=13,
            user=USER,
            session="default",
            owner_epoch=2,
            source="s1",
            subscriptions=(Subscription("wb-3", USER, "default", "Trade", "N > 1"),),
        ),
        "session_awaited",
    ),
    (records.DeviceCame(at_us=14, user=USER, device="pda", publishers=b"\x80"), "device_came"),
    (records.DeviceGone(at_us=14, user=USER, device="pda", server="s2"), "device_gone"),
    (records.SessionNotAwaited(at_us=14, user=USER, session="default"), "session_not_awaited"),
    (
        records.SessionImported(at_us=14, user=USER, session="default", owner_epoch=2, export=b"\x80"),
        "session_imported",
    ),
    (records.GroupPrepared(at_us=14, group=5, target="s2", epoch=2), "group_prepared"),
    (records.GroupStays(at_us=14, group=5, is_reset=True), "group_stays"),
    (
        records.GroupPublishersTaken(at_us=14, group=5, publishers=b"\x80", is_first=True),
        "group_publishers_taken",
    ),
    (
        records.GroupMoved(at_us=14, group=5, server="s2", epoch=2, former="s1", servers=("s1", "s2")),
        "group_moved",
    ),
    (
        records.SchemaDeclared(
            at_us=15, subject="Trade", version=2, attributes=(DeclaredAttribute("A", "Double", "EUR"),), by=USER
        ),
        "schema_declared",
    ),
]


@pytest.mark.parametrize(("record", "kind"), EXAMPLES, ids=[kind for _, kind in EXAMPLES])
def test_t01_a_record_survives_and_carries_its_kind(record: AnyRecord, kind: str) -> None:
    payload = encode_record(record)
    assert decode_record(payload) == record
    assert msgspec.msgpack.decode(payload)["kind"] == kind


def test_t01_every_kind_is_here() -> None:
    assert {type(record) for record, _ in EXAMPLES} == set(typing.get_args(AnyRecord))


def test_t01_a_field_added_later_with_a_default_does_not_hide_old_records_nor_new_ones() -> None:
    old = {"kind": "attached", "at_us": 8, "user": USER, "session": "default", "device": "phone", "epoch": 1}
    attached = decode_record(msgspec.msgpack.encode(old))
    assert attached == records.Attached(at_us=8, user=USER, session="default", device="phone", epoch=1)
    assert decode_record(msgspec.msgpack.encode(old | {"shade": "blue"})) == attached


@pytest.mark.parametrize("payload", [b"", b"\x80", msgspec.msgpack.encode({"kind": "unheard of", "at_us": 1}), b"\xc1"])
def test_t01_an_invalid_record_is_a_decode_error(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_record(payload)


def test_t01_the_frozen_bytes_of_one_record() -> None:
    """Logs of today must be read by every later version: these bytes never change."""
    expected = (
        b"\x86\xa4kind\xacacknowledged\xa5at_us\x04\xa4user\xa5sip:a\xa7session\xa1s\xa6device\xa1d\xa6number\x09"
    )
    record = records.Acknowledged(at_us=4, user="sip:a", session="s", device="d", number=9)
    assert encode_record(record) == expected
    assert decode_record(expected) == record
