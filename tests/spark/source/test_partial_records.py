"""Partial records say what the records themselves say, whether their event was accepted or arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pytest

from tests.published import published
from wanderbus.errors import StorageError
from wanderbus.event import Event, EventId
from wanderbus.pipeline.history.arrivals import arrived_events
from wanderbus.pipeline.source.partial_records import DeliveryRecord, EventRecord, NamedRecord, Subject
from wanderbus.pipeline.source.record_columns import content_of, name_of, received_us_of
from wanderbus.protocol import encode_event
from wanderbus.records import Arrival, Arrived, Delivery, Notified, Published, Record, Started, encode_record

EVENT = Event("Departure", {"Flight": 7}, published_us=3)
DELIVERY = Delivery((Notified("sip:alice@localhost", "default", 1, ("s1",)),), restricted=(("s2", 0),))
NO_EVENT = Started(at_us=9, server="wb", incarnation=1)


def accepted(received_us: int | None) -> Published:
    """Return the record of the event, accepted here."""
    record = published(EVENT, number=1, at_us=9, notified=DELIVERY.notified)
    acceptance = msgspec.structs.replace(record.acceptance, received_us=received_us)
    return msgspec.structs.replace(record, acceptance=acceptance, delivery=DELIVERY)


def arrived(received_us: int | None) -> Arrived:
    """Return the record of the event, accepted by another server."""
    origin, raw = EventId("north", 3, 900), msgspec.Raw(encode_event(EVENT))
    return Arrived(at_us=9, arrival=Arrival("north", 7, 1, 0, origin, 5, raw, received_us), delivery=DELIVERY)


@pytest.mark.parametrize("received_us", [None, 0, 8])
@pytest.mark.parametrize("make", [accepted, arrived])
def test_the_event_its_receipt_and_its_delivery_are_those_of_the_whole_record(
    make: Callable[[int | None], Published | Arrived], received_us: int | None
) -> None:
    record = make(received_us)
    payload = encode_record(record)
    content = content_of(payload)
    assert (content.attributes, content.published_us) == (record.event.attributes, record.event.published_us)
    assert msgspec.msgpack.decode(payload, type=EventRecord[Subject]).receipt.event.subject == record.event.subject
    assert received_us_of(payload) == record.received_us
    delivery = msgspec.msgpack.decode(payload, type=DeliveryRecord).delivery
    assert (len(delivery.notified), delivery.restricted) == (len(DELIVERY.notified), DELIVERY.restricted)


def test_the_name_of_an_event_is_that_of_the_whole_record() -> None:
    record = accepted(None)
    assert name_of(encode_record(record)) == (record.acceptance.id, EVENT.published_us)
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(encode_record(arrived(None)), type=NamedRecord)


@pytest.mark.parametrize("read", [content_of, received_us_of])
def test_a_record_without_an_event_cannot_be_decoded(read: Callable[[bytes], object]) -> None:
    with pytest.raises(msgspec.DecodeError, match="the record has no event"):
        read(encode_record(NO_EVENT))


def arrivals_of(*records: Record) -> Iterator[pa.RecordBatch]:
    """Return a batch of records of which each has its place as offset."""
    places, payloads = range(len(records)), [encode_record(each) for each in records]
    return iter([pa.RecordBatch.from_pydict({"offset": places, "at_us": places, "record": payloads})])


def test_an_event_that_arrived_has_its_record_and_another_record_is_named() -> None:
    (batch,) = arrived_events(arrivals_of(arrived(None), arrived(8)))
    assert batch.column("subject").to_pylist() == ["Departure"] * 2
    assert [content_of(each).attributes for each in batch.column("record").to_pylist()] == [EVENT.attributes] * 2
    with pytest.raises(StorageError, match="record 1 is not that of an arrived event: the record has no event"):
        list(arrived_events(arrivals_of(arrived(None), NO_EVENT)))
