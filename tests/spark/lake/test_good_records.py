"""Good records are never rejected, in whatever mixture of kinds a batch has them (SPEC T-03).

A pass over the records needs no session of Spark: here it runs in this process.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log_files import write_records
from tests.published import published
from wanderbus.event import DeclaredAttribute, Event, EventId
from wanderbus.pipeline.lake.trial_pass import rejected_on_trial
from wanderbus.records import (
    Acknowledged,
    Advertised,
    AdvertisementsCounted,
    AdvertisementsWithdrawn,
    AnyRecord,
    Arrival,
    ArrivalsLost,
    Arrived,
    Attached,
    CausalChanged,
    Changed,
    Delivery,
    Detected,
    DeviceCame,
    DeviceGone,
    DialogStored,
    DrainingChanged,
    Drop,
    Dropped,
    EventsLost,
    ExportDropped,
    ExportTaken,
    Forgotten,
    GroupMoved,
    GroupPrepared,
    GroupPublishersTaken,
    GroupStays,
    InterestSettled,
    Left,
    Matched,
    MatchedEvent,
    Notified,
    QueueContinued,
    Record,
    Replayed,
    ReplayedEvent,
    RolledBack,
    RoutesChanged,
    SchemaDeclared,
    ServerMet,
    SessionAwaited,
    SessionFenced,
    SessionImported,
    SessionNotAwaited,
    Started,
    StatusChanged,
    Subscribed,
    Unsubscribed,
)
from wanderbus.subscription import Frequency, Subscription

pytestmark = pytest.mark.spark  # needs the packages, no session

NOW_US: Final = 1_700_000_000_000_000
BOB: Final = "sip:bob@localhost"
EVENT: Final = Event("Departure", {"Dest": "IAH", "Row": 7}, published_us=NOW_US - 9)
RAW: Final = msgspec.Raw(msgspec.msgpack.encode(EVENT))
HERE, THERE = EventId("wb", 7, 3), EventId("s2", 9, 5)
NOTIFIED: Final = (Notified(BOB, "default", 4, ("s1", "s2")),)
DROPPED: Final = (Drop(BOB, "default", 1, 1, "queue.notifications_max", ("s1",)),)
SUBSCRIPTION: Final = Subscription(
    "s1", BOB, "default", "Departure", "Dest = 'IAH'", restrictions=(Frequency(2.0),), expires_us=NOW_US + 9
)
ARRIVAL: Final = Arrival("s2", 1, 5, 4, THERE, NOW_US - 5, RAW, NOW_US)

RECORDS: Final[Sequence[Record]] = (
    Started(at_us=NOW_US, server="wb", incarnation=7),
    published(EVENT, number=3, id=HERE, notified=NOTIFIED, at_us=NOW_US),
    published(Event("Empty", {}), number=3, id=HERE, at_us=NOW_US),
    Arrived(at_us=NOW_US, arrival=ARRIVAL, delivery=Delivery(NOTIFIED, dropped=DROPPED)),
    Arrived(at_us=NOW_US, arrival=ARRIVAL, delivery=Delivery(NOTIFIED, displaced={"queue.bytes_max": (2,)})),
    Arrived(at_us=NOW_US, arrival=ARRIVAL, engine="spark"),
    ArrivalsLost(at_us=NOW_US, leader="s2", epoch=1, number=9, count=2, reason="queue_full", notified=NOTIFIED),
    CausalChanged(at_us=NOW_US, changes=(RAW,)),
    RoutesChanged(at_us=NOW_US, leader="s2", message=b"?"),
    RolledBack(at_us=NOW_US, epoch=9, reason="a device has seen more", stale_routes=("s2",)),
    EventsLost(at_us=NOW_US, reason="server_restored", notified=NOTIFIED, rolled_back=9),
    ServerMet(at_us=NOW_US, server="s2"),
    InterestSettled(at_us=NOW_US, server="s2"),
    Matched(at_us=NOW_US, next=4, events=(MatchedEvent(HERE, NOW_US, RAW, NOTIFIED),), dropped=DROPPED),
    Matched(at_us=NOW_US, next=4),
    Detected(at_us=NOW_US, subscription="s1", watermark_us=5, events=(MatchedEvent(HERE, NOW_US, RAW, NOTIFIED),)),
    Dropped(at_us=NOW_US, user=BOB, session="default", first=1, last=3, reason="expired"),
    Acknowledged(at_us=NOW_US, user=BOB, session="default", device="pda", number=4, subscriptions=("s1",)),
    Subscribed(at_us=NOW_US, subscription=SUBSCRIPTION, number=1),
    Replayed(
        at_us=NOW_US,
        user=BOB,
        session="default",
        subscription="s1",
        first=4,
        events=(ReplayedEvent(HERE, NOW_US, RAW),),
    ),
    Changed(at_us=NOW_US, subscription=SUBSCRIPTION),
    Unsubscribed(at_us=NOW_US, user=BOB, subscription="s1", reason="asked"),
    Forgotten(at_us=NOW_US, subscriptions=("s1",)),
    Attached(at_us=NOW_US, user=BOB, session="default", device="pda", epoch=1),
    DialogStored(at_us=NOW_US, user=BOB, device="pda", address="127.0.0.1:5060", binding=b"?"),
    StatusChanged(at_us=NOW_US, user=BOB, device="pda", status="CONNECTED", reason="attached"),
    Left(at_us=NOW_US, user=BOB, session="default", device="pda", reason="asked"),
    SessionFenced(at_us=NOW_US, user=BOB, session="default", owner_epoch=2),
    ExportTaken(at_us=NOW_US, user=BOB, session="default", through=64),
    ExportDropped(at_us=NOW_US, user=BOB, session="default"),
    QueueContinued(at_us=NOW_US, user=BOB, session="default", owner_epoch=2, export=b"?"),
    DrainingChanged(at_us=NOW_US, is_draining=True),
    SessionAwaited(
        at_us=NOW_US, user=BOB, session="default", owner_epoch=2, source="s2", subscriptions=(SUBSCRIPTION,)
    ),
    SessionNotAwaited(at_us=NOW_US, user=BOB, session="default"),
    DeviceCame(at_us=NOW_US, user=BOB, device="pda", publishers=b"?"),
    DeviceGone(at_us=NOW_US, user=BOB, device="pda", server="s2"),
    SessionImported(at_us=NOW_US, user=BOB, session="default", owner_epoch=2, export=b"\x81\xadsubscriptions\x90"),
    GroupPrepared(at_us=NOW_US, group=5, target="s2", epoch=2),
    GroupStays(at_us=NOW_US, group=5),
    GroupPublishersTaken(at_us=NOW_US, group=5, publishers=b"?", is_first=True),
    GroupMoved(at_us=NOW_US, group=5, server="s2", epoch=2, former="s1", servers=("s1", "s2")),
    SchemaDeclared(
        at_us=NOW_US, subject="Departure", version=1, by=BOB, attributes=(DeclaredAttribute("Row", "Integer"),)
    ),
    Advertised(
        at_us=NOW_US, user=BOB, session="default", device="pda", advertisement="a1", subject="Departure", expression=""
    ),
    AdvertisementsCounted(at_us=NOW_US, advertisements=("a1",)),
    AdvertisementsWithdrawn(at_us=NOW_US, advertisements=("a1",)),
)


def rejected(records: Sequence[Record]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as directory:
        return dict(rejected_on_trial(write_records(Path(directory, "log"), records)))


def test_every_kind_of_record_has_an_example() -> None:
    assert {type(each) for each in RECORDS} == set(get_args(AnyRecord))


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: type(each).__name__)
def test_a_kind_alone_is_not_rejected(record: Record) -> None:
    assert rejected([record] * 3) == {}


def test_no_pair_of_kinds_is_rejected() -> None:
    for pair in itertools.combinations(RECORDS, 2):
        assert rejected(pair) == {}, pair


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.sampled_from(RECORDS), min_size=1, max_size=12))
def test_no_mixture_of_kinds_is_rejected(records: list[Record]) -> None:
    assert rejected(records) == {}


def test_the_pass_counts_what_a_table_cannot_take() -> None:
    unnamed = published(Event("", {}), number=3, id=HERE, at_us=NOW_US)
    assert rejected([RECORDS[0], unnamed]) == {"events": 1}
