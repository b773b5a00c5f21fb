"""No message of an agent can harm the broker or another user (SPEC U, Taste: bound everything)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from wanderbus import protocol, records
from wanderbus.broker.messages import LinkClosed, MessageArrived
from wanderbus.event import CopiedItem, Event, Loss, Number, Position
from wanderbus.limits import EVENT_TIME_US_MAX, MESSAGE_BYTES_MAX, NUMBER_MAX
from wanderbus.protocol import Attach, FromAgent, NotifyAck, Publish, PublishRefused, Query

GARBAGE = [
    b"",
    b"\xc1",
    b"\x00",
    b"\xff" * 100,
    b"\x93\x63\x01\x02",
    b"\x91" * 60_000,
    protocol.encode(Publish(1, Event(SUBJECT, {})))[:-1],
    protocol.encode(protocol.Attachment(1)),
    msgspec.msgpack.encode([2, "one", {"subject": "s", "attributes": {}}]),
    msgspec.msgpack.encode([2, 1, {"subject": "s", "attributes": {"A": "x"}, 5: 5}]),
    *(
        protocol.encode(Publish(1, Event("subject", {"name": "text"}))).replace(part, b"\xff" * len(part))
        for part in (b"subject", b"name", b"text")
    ),
    protocol.encode(protocol.Unsubscribe(1, "wb-3")).replace(b"wb-3", b"\xc3\x28\xa0\xa1"),
]


@pytest.mark.parametrize("payload", GARBAGE, ids=[str(i) for i in range(len(GARBAGE))])
def test_bytes_that_are_no_message_close_their_link_and_nothing_else(desk: Desk, payload: bytes) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(bob)
    desk.give(MessageArrived(alice, payload))
    assert desk.broker.status(ALICE) == "DISCONNECTED"
    assert [r.reason[:5] for r in desk.written(records.StatusChanged) if r.status == "DISCONNECTED"] == ["not a"]
    desk.publish(alice, 1)
    assert desk.accepted(alice) == []
    desk.publish(bob, 2)
    assert desk.stream(bob) == [2]
    back = desk.attach()
    desk.publish(back, 3)
    assert desk.accepted(back) == [1]


@pytest.mark.parametrize("name", ["published_us", "arrived_us"])
@pytest.mark.parametrize("at_us", [EVENT_TIME_US_MAX + 1, 2**63, 2**64 - 1, -(2**63)])
def test_an_event_of_a_time_beyond_the_calendar_is_refused_and_nothing_else(desk: Desk, name: str, at_us: int) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(bob)
    event = msgspec.structs.replace(Event(SUBJECT, {"N": 1}), **{name: at_us})
    desk.send(alice, Publish(1, event))
    desk.send(bob, Publish(1, Event(SUBJECT, {"N": 2})))
    desk.send(alice, Publish(2, Event(SUBJECT, {"N": 3}, EVENT_TIME_US_MAX)))
    assert [(m.number, name in m.reason) for m in desk.received(alice, PublishRefused)] == [(1, True)]
    assert desk.accepted(alice) == [2]
    assert desk.stream(bob) == [2, 3]
    assert [record.acceptance.number for record in desk.written(records.Published)] == [1, 2]


@pytest.mark.parametrize("number", [-1, -(2**63), NUMBER_MAX + 1, 2**64 - 1])
@pytest.mark.parametrize("name", ["epoch", "number", "outbox", "resume", "resume epoch", "take"])
def test_a_number_that_readers_of_the_log_cannot_hold_is_no_message(desk: Desk, name: str, number: int) -> None:
    alice, bob = desk.open(ALICE, "phone"), desk.attach(BOB)
    desk.subscribed(bob)
    before = len(desk.log)
    attach, event = Attach(NUMBER_MAX, "default", None, True), Event(SUBJECT, {"N": 1})
    match name:
        case "epoch":
            desk.send(alice, msgspec.structs.replace(attach, epoch=number))
        case "resume":
            desk.send(alice, msgspec.structs.replace(attach, resume=Position(1, number)))
        case "resume epoch":
            desk.send(alice, msgspec.structs.replace(attach, resume=Position(number, 1)))
        case "number":
            desk.send(alice, attach, Publish(number, event))
        case "outbox":
            desk.send(alice, attach, Publish(1, event, number))
        case "take":
            desk.send(alice, attach, NotifyAck(1, number))
    assert [r.reason[:5] for r in desk.written(records.StatusChanged) if r.status == "DISCONNECTED"] == ["not a"]
    kinds = {type(record) for record in map(records.decode_record, desk.log[before:])}
    assert kinds <= {records.Attached, records.StatusChanged}
    desk.send(bob, Publish(NUMBER_MAX, Event(SUBJECT, {"N": 2})))
    assert desk.stream(bob) == [2]


def test_messages_and_ends_of_unknown_links_are_ignored(desk: Desk) -> None:
    before = len(desk.log)
    desk.give(MessageArrived(99, protocol.encode(Query(1))), LinkClosed(99, "gone"))
    assert (desk.out, len(desk.log)) == ({}, before)


texts = st.text(max_size=20) | st.sampled_from(["default", "wb-1", "wb-3", "\x00" * 30_000, "16:00", "UTC", "A == 1"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)
"""Decodable values of an attribute, valid or not."""

events = st.builds(Event, texts, st.dictionaries(texts, values, max_size=3), st.none() | st.integers(-5, 2**64 - 1))
integers = st.integers(-3, 6) | st.integers(-(2**63), 2**64 - 1)
losses = st.builds(Loss, texts, texts, integers)
copied_items = st.builds(
    CopiedItem, st.none() | events, st.lists(texts, max_size=2).map(tuple), st.lists(losses, max_size=2).map(tuple)
)


def field_values(annotation: Any) -> st.SearchStrategy[Any]:
    chosen: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: integers,
        Number: integers,
        Event: events,
        tuple[CopiedItem, ...]: st.lists(copied_items, max_size=3).map(tuple),
    }
    return chosen[annotation] if annotation in chosen else st.from_type(annotation)


def messages_of(kind: Any) -> st.SearchStrategy[FromAgent]:
    return st.builds(kind, **{field.name: field_values(field.type) for field in msgspec.structs.fields(kind)})


agent_messages = st.one_of([messages_of(kind) for kind in FromAgent.__args__])
"""Any message that the decoder lets through, well-meant or not."""


@settings(max_examples=60)
@given(data=st.lists(st.tuples(st.integers(0, 1), agent_messages), max_size=12), late=st.booleans())
def test_any_decodable_conversation_is_survived_and_can_be_stored(
    data: list[tuple[int, FromAgent]], late: bool
) -> None:
    """No exception, no message beyond the channel's bound (the desk checks it), rows that the store reads back."""
    desk = Desk()
    links = [desk.open(ALICE, "phone") if late else desk.attach(), desk.attach(BOB)]
    for who, message in data:
        try:
            payload = protocol.encode(message)
        except (UnicodeEncodeError, OverflowError):
            continue
        if len(payload) <= MESSAGE_BYTES_MAX:
            desk.give(MessageArrived(links[who], payload))
        desk.later(0.5)
    live = rows_of(desk.broker.state)
    desk.save()
    assert rows_of(desk.recovered()) == live
    assert rows_of(desk.recovered(from_log_alone=True)) == live
