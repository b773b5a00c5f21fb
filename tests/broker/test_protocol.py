"""Encoding of the messages between agents and broker: they survive it, and invalid ones are refused (DESIGN 5.2)."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus import protocol
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import CopiedItem, DeclaredAttribute, Event, EventId, Loss, Position
from wanderbus.limits import REASON_CHARACTERS_MAX
from wanderbus.protocol import FromAgent, FromBroker
from wanderbus.protocol.domains import (
    GroupLeaders,
    GroupPrepared,
    GroupPublishers,
    GroupPublishersKnown,
    LedGroup,
    MovingGroup,
)
from wanderbus.subscription import Daily, Frequency, Interval, QueuePolicy, Subscription

EVENT = Event("Trade", {"Stock": "PETR4", "Price": 24, "Change": -0.5, "Open": True, "Tags": ["a", 1]}, 7)
POLICY = QueuePolicy(5, 1_000, 60.0, "drop_newest")
RESTRICTIONS = (Frequency(15.0, "away"), Interval(1, 2), Daily("22:00", "06:00"))

SUBSCRIPTION = Subscription("wb-1", "sip:a@b", "default", "Trade", "", 5, RESTRICTIONS, "phone", POLICY, "cesql")

FROM_AGENT: list[FromAgent] = [
    protocol.Attach(2**56, "default", Position(1, 9), False),
    protocol.Attach(1, "default", None, True),
    protocol.Publish(1, EVENT),
    protocol.PublishFor(4, "sip:a@b", "phone", 2**56, 1, msgspec.Raw(protocol.encode_event(EVENT)), 5, is_outbox=True),
    protocol.SettleInterest(),
    protocol.Subscribe(1, "Trade", "Price < 25", 60.0, RESTRICTIONS, True, POLICY, None, "cesql"),
    protocol.Unsubscribe(2, "wb-1"),
    protocol.Renew(3, "wb-1", None),
    protocol.Restrict(4, "wb-1", RESTRICTIONS),
    protocol.Query(5),
    protocol.NotifyAck(3, 6),
    protocol.Read((protocol.Reader(3, "wb-1", Position(1, 5)),)),
    protocol.StopReading(3),
    protocol.Leave(7),
    protocol.Inspect(8, "queues", None),
    protocol.Peek(9, "sip:a@b", "default", 1, 10),
    protocol.Purge(10, "sip:a@b", "default", None),
    protocol.Kick(11, "sip:a@b", "phone", True),
    protocol.DeclareSchema(12, "Trade", (DeclaredAttribute("Price", "Double", "EUR", "of one share"),)),
    protocol.ListSchemas(13, "Trade", True),
    protocol.ListEvents(14, "Trade", 3, 9, 2, 10),
    protocol.Advertise(15, "Trade", "Price < 25"),
    protocol.Withdraw(16, "Trade", "Price < 25", "cesql"),
    protocol.RequestFilters(17, "Trade", 5, 4),
    protocol.ConfirmFilters("Trade", 15),
    protocol.ReleaseFilters(5, 4),
    protocol.MoveSession(18, "sip:a@b", "default", "s2"),
    protocol.Drain(19, True),
    protocol.MoveGroup(20, "Trade", "s2", force=True),
    GroupPrepared(7, 3, "no"),
    GroupPublishersKnown(7, 3, 1),
    protocol.AwaitTransfer(21, "work", "desk"),
    protocol.TransferSession(22, "sip:a@b", "work", "desk", "phone"),
    protocol.ImportSession(20, "sip:a@b", "work", 0, SUBSCRIPTION, (CopiedItem(EVENT, ("wb-1",)),), True),
]
FROM_BROKER: list[FromBroker] = [
    protocol.Attachment(1),
    protocol.PublishAccepted(1, EventId("wb", 1, 9)),
    protocol.PublishRefused(1, "no"),
    protocol.PublishesWait("s1 cannot be reached"),
    protocol.NotifyGap(1, 3, (Loss("wb-1", "purged", 2),), 4),
    protocol.Done(1, (SUBSCRIPTION,), True),
    protocol.RequestRefused(1, "no", 5, "subscriptions_max"),
    protocol.SubscriptionEnded(SUBSCRIPTION, "expired"),
    protocol.NotRead(SUBSCRIPTION, 3),
    protocol.Listing(1, ({"user": "sip:a@b", "waiting": 3},), True),
    protocol.Filters(1, "Trade", 15, 10.0, ("Price < 25",)),
    GroupLeaders((LedGroup(7, "s2", 2, "s1"),), (MovingGroup(8, "s2", 2, 3),)),
    GroupPublishers(7, 3, 1, b"\x80"),
]


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda m: type(m).__name__)
def test_an_agents_message_survives(message: FromAgent) -> None:
    assert protocol.decode_from_agent(protocol.encode(message)) == message


@pytest.mark.parametrize("message", FROM_BROKER, ids=lambda m: type(m).__name__)
def test_a_brokers_message_survives(message: FromBroker) -> None:
    assert protocol.decode_from_broker(protocol.encode(message)) == message


def test_the_kinds_are_all_here_and_each_has_its_own_tag() -> None:
    assert {type(message) for message in FROM_AGENT} == set(FromAgent.__args__)
    encoded = {protocol.Notify, protocol.NotifyServer}
    assert {type(message) for message in FROM_BROKER} | encoded == set(FromBroker.__args__)
    for kinds in (FromAgent.__args__, FromBroker.__args__):
        assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)


def test_an_event_inside_a_notification_is_the_event_and_is_encoded_once() -> None:
    raw = protocol.encode_event(EVENT)
    notify = protocol.Notify(3, EventId("wb", 1, 4), msgspec.Raw(raw), ("wb-1",), True)
    decoded = protocol.decode_from_broker(protocol.encode(notify))
    assert isinstance(decoded, protocol.Notify)
    assert protocol.decode_event(bytes(decoded.event)) == EVENT
    assert (decoded.number, decoded.id, decoded.subscriptions, decoded.redelivered) == (3, notify.id, ("wb-1",), True)


def test_an_event_for_a_server_is_the_event() -> None:
    notify = protocol.NotifyServer(3, 1, EventId("wb", 1, 4), 9, msgspec.Raw(protocol.encode_event(EVENT)))
    decoded = protocol.decode_from_broker(protocol.encode(notify))
    assert isinstance(decoded, protocol.NotifyServer)
    assert protocol.decode_event(bytes(decoded.event)) == EVENT
    assert (decoded.number, decoded.before, decoded.id, decoded.at_us) == (3, 1, notify.id, 9)


def test_a_done_of_an_older_broker_has_no_more() -> None:
    """A field may be added at the end, with a default."""
    assert protocol.decode_from_broker(msgspec.msgpack.encode([6, 1, []])) == protocol.Done(1, ())


@given(st.binary(max_size=60))
def test_bytes_raise_the_declared_error_alone(data: bytes) -> None:
    for decode in (protocol.decode_from_agent, protocol.decode_from_broker, protocol.decode_event):
        with contextlib.suppress(RemoteProtocolError):
            decode(data)


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(RemoteProtocolError):
        protocol.decode_event(b"\x82\xa7subject\xa1s\xaaattributes\x81\xa1A" + b"\x91" * 60_000 + b"\x01")


def test_sizes_and_reasons_are_those_of_the_message() -> None:
    assert protocol.size_of(EVENT) == len(protocol.encode_event(EVENT))
    assert protocol.shortened(ValueError("short")) == "short"
    assert protocol.shortened("x" * 5000) == "x" * REASON_CHARACTERS_MAX


@pytest.mark.parametrize("outbox", [None, 7])
def test_an_event_encoded_before_makes_the_same_message(outbox: int | None) -> None:
    message = protocol.encode(protocol.Publish(3, EVENT, outbox))
    assert protocol.encode_publish(3, protocol.encode_event(EVENT), outbox) == message
