"""Events of channels that another server leads are forwarded to it, for the device (SPEC K-02, X25)."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk, ForwardingDesk
from tests.broker.desk import BOB, raw
from wanderbus import protocol
from wanderbus.broker.messages import DiskFreed, DiskFull, LinkOpened, MessageArrived, PublishAnswered
from wanderbus.broker.servers.server_users import server_user
from wanderbus.event import Event, EventId
from wanderbus.limits import EVENT_BYTES_MAX, FORWARDED_BYTES_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Publish, PublishAccepted, PublishFor, PublishRefused
from wanderbus.records import Published


@pytest.fixture
def desk() -> AccessDesk:
    return AccessDesk()


def event(n: int, subject: str = NORTHERN) -> Event:
    """An event whose ``N`` is its number."""
    return Event(subject, {"N": n})


def answers(desk: AccessDesk, link: int) -> list[tuple[int, bool, str | None, bool]]:
    """Number, whether it was accepted, limit and outbox of each answer on a link."""
    return [
        (each.number, isinstance(each, PublishAccepted), getattr(each, "limit", None), each.outbox)
        for each in desk.out.get(link, ())
        if isinstance(each, PublishAccepted | PublishRefused)
    ]


def test_the_leader_gets_the_identifier_of_the_publisher(desk: AccessDesk) -> None:
    bob = desk.attach(BOB, epoch=4)
    desk.send(bob, Publish(7, event(1)), Publish(2, event(2), outbox=99), Publish(8, event(3, "Down")))
    assert desk.forwarded() == [
        PublishFor(1, BOB, "phone", 4, 7, raw(event(1)), desk.wall_us),
        PublishFor(2, BOB, "phone", 99, 2, raw(event(2)), desk.wall_us, is_outbox=True),
        PublishFor(3, BOB, "phone", 4, 8, raw(event(3, "Down")), desk.wall_us),
    ]
    assert answers(desk, bob) == []
    assert desk.written(Published) == []


def test_an_event_of_an_own_channel_is_published_here(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, Publish(1, event(1, OWN)), Publish(2, event(2)), Publish(3, event(3, OWN)))
    assert [each.number for each in desk.forwarded()] == [2]
    assert [record.event["N"] for record in desk.written(Published)] == [1, 3]


def test_the_answer_of_the_leader_is_that_of_the_device(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, Publish(7, event(1)), Publish(8, event(2)), Publish(3, event(3), outbox=99))
    desk.answered(2)
    desk.give(PublishAnswered(1, None, "not permitted"), PublishAnswered(3, None, "full", "disk_full"))
    assert answers(desk, bob) == [(8, True, None, False), (7, False, None, False), (3, False, "disk_full", True)]
    assert desk.received(bob, PublishAccepted)[0].id == EventId("north", 3, 900)
    desk.answered(2)
    assert len(answers(desk, bob)) == 3


def test_an_event_that_a_device_repeats_on_a_new_link_is_on_its_way_once_and_is_answered_there(
    desk: AccessDesk,
) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, Publish(7, event(1)))
    desk.close(bob)
    again = desk.attach(BOB)
    desk.send(again, Publish(7, event(1)))
    (forwarded,) = desk.forwarded()
    desk.answered(forwarded.request)
    assert (answers(desk, bob), answers(desk, again)) == ([], [(7, True, None, False)])
    desk.send(again, Publish(7, event(1)))
    (repeated,) = desk.forwarded()
    assert repeated.number == 7


def test_the_answer_of_a_closed_link_is_for_nobody(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, Publish(7, event(1)))
    desk.close(bob)
    assert list(desk.broker.diagnostics.waiting()) == ["events"]
    desk.answered(1)
    assert answers(desk, bob) == []
    assert desk.broker.diagnostics.waiting() == {}


def test_a_device_has_a_bounded_number_of_bytes_on_their_way(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    most = FORWARDED_BYTES_MAX // 2**14
    large = Event(NORTHERN, {"N": "x" * 15_200})
    desk.send(bob, *[Publish(n, large) for n in range(1, most + 3)])
    assert len(desk.forwarded()) == most + 1
    assert answers(desk, bob) == [(most + 2, False, "forwarded_bytes_max", False)]
    desk.close(bob)
    bob = desk.attach(BOB)
    desk.send(bob, Publish(1, large), Publish(most + 2, large))
    assert answers(desk, bob) == [(most + 2, False, "forwarded_bytes_max", False)], "an event on its way is not refused"
    desk.answered(2)
    desk.send(bob, Publish(most + 3, large))
    assert [each.number for each in desk.forwarded()] == [most + 3]


def test_permissions_and_sizes_are_checked_here() -> None:
    desk = AccessDesk(BrokerConfig(server="south", domain="example.org", may_publish={BOB: ("Down",)}))
    bob = desk.attach(BOB)
    desk.send(bob, Publish(1, event(1)), Publish(2, Event("Down", {"N": "x" * (EVENT_BYTES_MAX - 10)})))
    assert desk.forwarded() == []
    assert answers(desk, bob) == [(1, False, None, False), (2, False, "event_bytes_max", False)]


def test_an_event_behind_one_that_this_server_refused_for_a_while_is_not_forwarded(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    desk.give(DiskFull())
    desk.send(bob, Publish(1, event(1, OWN), outbox=99), Publish(2, event(2), outbox=99), Publish(3, event(3)))
    assert [each.number for each in desk.forwarded()] == [3]
    assert answers(desk, bob) == [(1, False, "disk_full", True), (2, False, "disk_full", True)]
    desk.give(DiskFreed())
    desk.send(bob, Publish(1, event(1, OWN), outbox=99), Publish(2, event(2), outbox=99))
    assert [each.number for each in desk.forwarded()] == [2]


@pytest.mark.parametrize("is_open", [True, False])
def test_x25_events_of_an_outbox_behind_a_refused_one_are_taken_back(is_open: bool) -> None:
    desk = ForwardingDesk()
    bob = desk.attach(BOB)
    desk.send(bob, *[Publish(n, event(n), outbox=99) for n in (1, 2, 3)], Publish(3, event(3)))
    desk.send(bob, Publish(4, event(4), outbox=98))
    if not is_open:
        desk.close(bob)
    desk.refuses(2)
    assert desk.forgotten == [3]
    for request in (1, 4, 5):
        desk.answered(request)
    assert "events" not in desk.broker.diagnostics.waiting()
    refused = [] if not is_open else [(2, False, "disk_full", True), (3, False, "disk_full", True)]
    assert [each for each in answers(desk, bob) if not each[1]] == refused


def test_x25_events_behind_a_refused_one_wait_here_until_it_is_sent_again_on_the_link(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, Publish(1, event(1), outbox=99), Publish(2, event(2), outbox=99))
    desk.give(PublishAnswered(1, None, "full", "disk_full"))
    desk.forwarded()
    desk.send(bob, Publish(3, event(3), outbox=99))
    assert desk.forwarded() == []
    assert answers(desk, bob)[-1] == (3, False, "disk_full", True)
    desk.send(bob, *[Publish(n, event(n), outbox=99) for n in (1, 2, 3)])
    assert [each.number for each in desk.forwarded()] == [1, 2, 3]


def test_x25_nothing_waits_on_a_later_link_of_the_device(desk: AccessDesk) -> None:
    """Another server may have published the event, and what is behind it."""
    bob = desk.attach(BOB)
    desk.send(bob, Publish(1, event(1), outbox=99))
    desk.give(PublishAnswered(1, None, "full", "disk_full"))
    desk.close(bob)
    desk.forwarded()
    desk.send(desk.attach(BOB), Publish(3, event(3), outbox=99))
    assert [each.number for each in desk.forwarded()] == [3]


def test_x25_nothing_waits_for_an_event_that_is_refused_for_good(desk: AccessDesk) -> None:
    bob = desk.attach(BOB)
    large = Event(NORTHERN, {"N": "x" * EVENT_BYTES_MAX})
    desk.send(bob, Publish(1, event(1), outbox=99))
    desk.give(PublishAnswered(1, None, "full", "disk_full"))
    desk.send(bob, Publish(1, large, outbox=99), Publish(2, event(2), outbox=99))
    assert [each.number for each in desk.forwarded()] == [1, 2]


def test_an_event_that_another_server_sends_to_the_wrong_leader_is_not_forwarded(desk: AccessDesk) -> None:
    desk.give(LinkOpened(50, server_user("east", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True), PublishFor(9, BOB, "phone", 1, 1, raw(event(1)), 0))
    assert desk.forwarded() == []
    (refused,) = desk.received(50, PublishRefused)
    assert (refused.number, refused.limit) == (9, None)
    assert "north leads the channel of 'Northern', not south" in refused.reason


def test_a_forwarded_event_is_encoded_once(desk: AccessDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = desk.attach(BOB, epoch=4)
    publish = protocol.encode(Publish(7, event(1)))
    encode = Mock(side_effect=protocol.encode_event)
    monkeypatch.setattr(protocol, "encode_event", encode)
    monkeypatch.setattr(protocol, "size_of", None)
    desk.give(MessageArrived(bob, publish))
    (forwarded,) = desk.forwarded()
    encode.assert_called_once_with(event(1))
    assert forwarded.event == raw(event(1))
