"""Publishing on behalf of a device at another server: one record, recognised whoever brings it (SPEC K-02)."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, raw
from tests.broker.test_server_sessions import DOMAIN, NORTH, Hub, stream
from wanderbus import protocol
from wanderbus.broker.messages import DiskFreed, DiskFull, LinkOpened
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.state.rows import FORMER_EPOCHS_MAX
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Attach,
    PublishAccepted,
    PublishFor,
    PublishRefused,
)
from wanderbus.records import Published
from wanderbus.subscription import Daily

SOUTH = server_user("south", DOMAIN)


@pytest.fixture
def hub() -> Hub:
    return Hub()


def publish_for(request: int, number: int, *, epoch: int = 1, received_us: int = 0, **options: Any) -> PublishFor:
    """An event of Bob's phone, whose ``N`` is its number."""
    return PublishFor(request, BOB, "phone", epoch, number, raw(Event(SUBJECT, {"N": number})), received_us, **options)


def answers(hub: Hub, link: int) -> list[PublishAccepted | PublishRefused]:
    """The answers to publishes on a link so far."""
    return [each for each in hub.out.get(link, ()) if isinstance(each, PublishAccepted | PublishRefused)]


def accepted(hub: Hub, link: int) -> list[PublishAccepted]:
    """The answers, which must all be acceptances."""
    found = [each for each in answers(hub, link) if isinstance(each, PublishAccepted)]
    assert len(found) == len(answers(hub, link))
    return found


def numbers(hub: Hub) -> list[int]:
    """The ``N`` of each event in the log."""
    return [record.event["N"] for record in hub.written(Published)]  # type: ignore[misc]


def test_it_is_an_ordinary_record_of_its_publisher(hub: Hub) -> None:
    alice, north, south = hub.attach(), hub.server(), hub.server(SOUTH)
    hub.subscribed(alice)
    hub.subscribed(south)
    hub.send(north, publish_for(7, 1, received_us=hub.wall_us - 5))
    (record,) = hub.written(Published)
    accepted = record.acceptance
    assert (accepted.user, accepted.device, accepted.epoch, accepted.number) == (BOB, "phone", 1, 1)
    assert record.received_us == hub.wall_us - 5
    assert answers(hub, north) == [PublishAccepted(7, accepted.id)]
    assert stream(hub.came(south)) == [1]
    assert [each.user for each in record.delivery.notified] == [ALICE, SOUTH]


def test_the_event_is_stored_in_the_bytes_of_the_other_server(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, north = hub.attach(), hub.server()
    hub.subscribed(alice)
    publish = publish_for(1, 1)
    decode = Mock(side_effect=protocol.decode_event)
    monkeypatch.setattr(protocol, "decode_event", decode)
    monkeypatch.setattr(protocol, "encode_event", None)
    hub.send(north, publish)
    (record,) = hub.written(Published)
    decode.assert_called_once_with(bytes(publish.event))
    assert record.acceptance.event == publish.event


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80", "not a message of the data channel"),
        (bytes(raw(Event("Trade*", {}))), "wildcard"),
        (bytes(raw(Event(SUBJECT, {"A": "x" * 70_000}))), "the limit is"),
    ],
)
def test_an_event_that_may_not_be_published_is_refused_with_the_reason(hub: Hub, data: bytes, reason: str) -> None:
    north = hub.server()
    hub.send(north, PublishFor(1, BOB, "phone", 1, 1, msgspec.Raw(data), 0), publish_for(2, 2))
    refused, taken = answers(hub, north)
    assert isinstance(refused, PublishRefused)
    assert reason in refused.reason
    assert isinstance(taken, PublishAccepted)


def test_a_repeat_is_recognised_whichever_server_brings_it(hub: Hub) -> None:
    north = hub.server()
    hub.send(north, publish_for(1, 1), publish_for(2, 2))
    first = accepted(hub, north)
    hub.restart()
    south = hub.server(SOUTH)
    hub.send(south, publish_for(9, 1), publish_for(10, 2), publish_for(11, 3))
    assert numbers(hub) == [1, 2, 3]
    repeated = accepted(hub, south)
    assert [each.id for each in repeated[:2]] == [each.id for each in first]
    assert [each.number for each in repeated] == [9, 10, 11]


def test_a_repeat_is_recognised_if_the_device_itself_brings_it(hub: Hub) -> None:
    north = hub.server()
    hub.send(north, publish_for(1, 1))
    bob = hub.attach(BOB)
    hub.publish(bob, 1)
    assert numbers(hub) == [1]
    assert answers(hub, bob) == [PublishAccepted(1, hub.written(Published)[0].acceptance.id)]


def test_another_epoch_of_the_device_and_its_outbox_are_numbered_apart(hub: Hub) -> None:
    north = hub.server()
    hub.send(north, publish_for(1, 1), publish_for(2, 1, is_outbox=True), publish_for(3, 1, epoch=2))
    assert numbers(hub) == [1, 1, 1]
    assert [each.outbox for each in answers(hub, north)] == [False, True, False]


@pytest.mark.parametrize("is_outbox", [False, True])
def test_a_repeat_of_an_earlier_epoch_is_recognised(hub: Hub, is_outbox: bool) -> None:
    north, south = hub.server(), hub.server(SOUTH)
    hub.send(north, *[publish_for(n, n, epoch=9, is_outbox=is_outbox) for n in (1, 2)])
    hub.send(south, publish_for(1, 1, epoch=4, is_outbox=is_outbox))
    hub.restart()
    north = hub.server()
    hub.send(north, *[publish_for(n, n, epoch=9, is_outbox=is_outbox) for n in (1, 2, 3)])
    hub.send(north, publish_for(4, 1, epoch=4, is_outbox=is_outbox))
    assert numbers(hub) == [1, 2, 1, 3]
    assert [type(each) for each in answers(hub, north)] == [
        PublishRefused,
        PublishRefused,
        PublishAccepted,
        PublishRefused,
    ]


def test_repeats_of_the_last_few_epochs_are_recognised(hub: Hub) -> None:
    north = hub.server()
    for epoch in range(1, FORMER_EPOCHS_MAX + 3):
        hub.send(north, publish_for(epoch, 1, epoch=epoch))
    hub.send(north, *[publish_for(50 + epoch, 1, epoch=epoch) for epoch in (2, FORMER_EPOCHS_MAX + 1)])
    assert len(numbers(hub)) == FORMER_EPOCHS_MAX + 2
    hub.send(north, publish_for(51, 1, epoch=1))
    assert len(numbers(hub)) == FORMER_EPOCHS_MAX + 3


@pytest.mark.parametrize("is_attached", [False, True])
def test_only_a_server_may_send_it(hub: Hub, is_attached: bool) -> None:
    bob = hub.attach(BOB) if is_attached else hub.open(BOB, "phone")
    hub.send(bob, publish_for(1, 1))
    assert numbers(hub) == []
    assert answers(hub, bob) == []
    assert (hub.broker.status(BOB) == "DISCONNECTED") is is_attached


def test_a_server_that_has_not_attached_publishes_nothing(hub: Hub) -> None:
    hub.give(LinkOpened(50, NORTH, "server", is_server=True))
    hub.send(50, publish_for(1, 1))
    hub.send(50, Attach(1, "default", None, True), publish_for(2, 2))
    assert numbers(hub) == [2]


def test_refusals_name_the_request_of_the_server() -> None:
    hub = Hub(BrokerConfig(may_publish={BOB: ("Other",)}))
    north = hub.server()
    hub.send(north, publish_for(5, 1))
    (refused,) = answers(hub, north)
    assert isinstance(refused, PublishRefused)
    assert refused.number == 5
    assert f"{BOB} may not publish" in refused.reason


def test_no_event_of_an_outbox_overtakes_one_that_was_refused_for_a_while(hub: Hub) -> None:
    north = hub.server()
    hub.give(DiskFull())
    hub.send(north, publish_for(1, 1, is_outbox=True))
    hub.give(DiskFreed())
    other = PublishFor(2, ALICE, "phone", 1, 1, raw(Event(SUBJECT, {"N": 100})), 0, is_outbox=True)
    hub.send(north, publish_for(3, 2, is_outbox=True), other)
    assert numbers(hub) == [100]
    hub.send(north, publish_for(4, 1, is_outbox=True), publish_for(5, 2, is_outbox=True))
    assert numbers(hub) == [100, 1, 2]
    assert [type(each) for each in answers(hub, north)] == [
        *(PublishRefused, PublishRefused, PublishAccepted, PublishAccepted, PublishAccepted),
    ]


def test_time_windows_use_the_time_at_which_the_other_server_received_it(hub: Hub) -> None:
    alice, north = hub.attach(), hub.server()
    noon_us = hub.wall_us // 86_400_000_000 * 86_400_000_000 + 12 * 3_600_000_000
    hub.subscribed(alice, restrictions=(Daily("11:59", "12:01"),))
    hub.send(north, publish_for(1, 1, received_us=noon_us), publish_for(2, 2, received_us=noon_us + 3_600_000_000))
    generated = [len(record.delivery.notified) for record in hub.written(Published)]
    assert generated == [1, 0]


def test_answers_wait_for_the_disk(hub: Hub) -> None:
    north = hub.server()
    hub.held = True
    hub.send(north, publish_for(1, 1))
    assert answers(hub, north) == []
    hub.sync()
    assert len(answers(hub, north)) == 1


def test_a_batch_of_them_is_matched_together_with_the_same_result(hub: Hub) -> None:
    alice, north = hub.attach(), hub.server()
    hub.subscribed(alice, "N > 3")
    hub.send(north, *[publish_for(n, n) for n in range(1, 9)])
    assert [len(record.delivery.notified) for record in hub.written(Published)] == [0, 0, 0, 1, 1, 1, 1, 1]
