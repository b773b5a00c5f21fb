"""No later event overtakes an event of an outbox that is refused temporarily (SPEC X25, G-20)."""

from __future__ import annotations

from tests.broker.desk import ALICE, BOB, Desk
from tests.broker.test_publish_for import SOUTH, numbers, publish_for
from tests.broker.test_publish_for import answers as to_servers
from tests.broker.test_server_sessions import NORTH, Hub
from wanderbus import records
from wanderbus.broker.messages import DiskFreed, DiskFull
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Kick, Publish, PublishAccepted, PublishFor, PublishRefused

SUBJECT = "Trade"


def send(desk: Desk, link: int, *numbers: int) -> None:
    desk.send(link, *[Publish(number, Event(SUBJECT, {"N": number}), outbox=77) for number in numbers])


def answers(desk: Desk, link: int) -> list[tuple[int, bool, str | None]]:
    """Number, whether it was accepted, and the limit, of each answer on the link."""
    return [
        (each.number, isinstance(each, PublishAccepted), getattr(each, "limit", None))
        for each in desk.out.get(link, [])
        if isinstance(each, PublishAccepted | PublishRefused)
    ]


def published(desk: Desk) -> list[int]:
    return [record.acceptance.number for record in desk.written(records.Published)]


def test_x25_those_after_one_that_found_no_room_wait_for_it() -> None:
    desk = Desk()
    link = desk.attach()
    send(desk, link, 1)
    desk.give(DiskFull())
    send(desk, link, 2)
    desk.give(DiskFreed())
    send(desk, link, 3, 4)
    assert answers(desk, link) == [(1, True, None), *((number, False, "disk_full") for number in (2, 3, 4))]
    send(desk, link, 2, 3, 4)
    assert published(desk) == [1, 2, 3, 4]


def test_x25_refused_once_more_it_still_holds_the_others_up() -> None:
    desk = Desk()
    link = desk.attach()
    desk.give(DiskFull())
    send(desk, link, 1)
    send(desk, link, 1)
    desk.give(DiskFreed())
    send(desk, link, 2)
    assert published(desk) == []
    send(desk, link, 1, 2)
    assert published(desk) == [1, 2]


def test_x25_a_new_connection_begins_with_the_first_of_them_and_repeats_are_known() -> None:
    desk = Desk()
    link = desk.attach()
    send(desk, link, 1)
    desk.give(DiskFull())
    send(desk, link, 2, 3)
    desk.give(DiskFreed())
    again = desk.attach()
    send(desk, again, 1, 2, 3)
    assert published(desk) == [1, 2, 3]
    assert [number for number, accepted, _ in answers(desk, again) if accepted] == [1, 2, 3]


def test_x25_a_permanent_refusal_blocks_no_later_event() -> None:
    desk = Desk()
    link = desk.attach()
    desk.send(link, Publish(1, Event("", {}), outbox=77))
    send(desk, link, 2)
    assert published(desk) == [2]


def test_x25_other_publishes_of_the_device_do_not_wait() -> None:
    desk = Desk()
    link = desk.attach()
    desk.give(DiskFull())
    send(desk, link, 1)
    desk.give(DiskFreed())
    desk.publish(link, 5)
    assert [(each.acceptance.number, each.acceptance.outbox) for each in desk.written(records.Published)] == [
        (1, False)
    ]


def test_x25_a_removed_device_that_returns_does_not_publish_accepted_events_twice() -> None:
    desk = Desk()
    link = desk.attach()
    send(desk, link, 1, 2)
    desk.send(link, Publish(1, Event(SUBJECT, {"N": 9})))
    desk.send(desk.attach(device="laptop"), Kick(1, ALICE, "phone", True))
    back = desk.attach()
    send(desk, back, 2, 3)
    desk.send(back, Publish(1, Event(SUBJECT, {"N": 9})))
    assert published(desk) == [1, 2, 1, 3]


def test_x25_an_event_that_is_too_large_blocks_no_later_event() -> None:
    """The device removes it from its outbox."""
    desk = Desk(BrokerConfig(event_bytes_max=1_024))
    link = desk.attach()
    desk.send(link, Publish(1, Event(SUBJECT, {"T": "x" * 2_000}), outbox=77))
    send(desk, link, 2)
    assert published(desk) == [2]


def test_x25_another_epoch_waits_for_nothing_of_an_earlier_one() -> None:
    """The device has other events then, and may have removed the refused one."""
    desk = Desk()
    link = desk.attach()
    desk.give(DiskFull())
    send(desk, link, 2)
    desk.give(DiskFreed())
    desk.send(link, Publish(3, Event(SUBJECT, {"N": 3}), outbox=78))
    assert published(desk) == [3]


# At the leader, of a device at other servers ------------------------------------------------------------------------


def of_bob(number: int, *, epoch: int = 77) -> PublishFor:
    return publish_for(number, number, epoch=epoch, is_outbox=True)


def refused_on(hub: Hub, link: int, *several: int) -> None:
    """Let the leader refuse events on a link for now."""
    hub.give(DiskFull())
    hub.send(link, *[of_bob(number) for number in several])
    hub.give(DiskFreed())
    hub.out[link].clear()


def waits(hub: Hub, link: int, number: int) -> bool:
    """Return whether an event is refused for now."""
    hub.send(link, of_bob(number))
    answer = to_servers(hub, link)[-1]
    return isinstance(answer, PublishRefused) and answer.limit == "disk_full"


def test_x25_a_refused_event_that_another_server_publishes_blocks_no_later_event() -> None:
    hub = Hub()
    north, south = hub.server(), hub.server(SOUTH)
    refused_on(hub, north, 1)
    hub.send(south, of_bob(1), of_bob(2))
    assert not waits(hub, north, 3)
    assert numbers(hub) == [1, 2, 3]


def test_x25_a_refused_event_that_the_device_publishes_here_blocks_no_later_event() -> None:
    hub = Hub()
    north = hub.server()
    refused_on(hub, north, 1)
    bob = hub.attach(BOB)
    hub.send(bob, *[Publish(n, Event(SUBJECT, {"N": n}), outbox=77) for n in (1, 2)])
    assert not waits(hub, north, 3)


def test_x25_the_next_refused_event_on_the_link_blocks_what_is_behind_it() -> None:
    hub = Hub()
    north, south = hub.server(), hub.server(SOUTH)
    refused_on(hub, north, 1, 2, 3)
    hub.send(south, of_bob(1))
    assert waits(hub, north, 3)
    hub.send(north, of_bob(2), of_bob(3))
    assert numbers(hub) == [1, 2, 3]


def test_x25_an_event_that_is_accepted_twice_blocks_no_later_event() -> None:
    """The device has moved here while its former server had the event on the way."""
    hub = Hub()
    north, bob = hub.server(), hub.attach(BOB)
    hub.give(DiskFull())
    hub.send(bob, Publish(1, Event(SUBJECT, {"N": 1}), outbox=77))
    hub.give(DiskFreed())
    hub.send(north, of_bob(1))
    hub.send(bob, *[Publish(n, Event(SUBJECT, {"N": n}), outbox=77) for n in (1, 2)])
    assert numbers(hub) == [1, 2]


def test_x25_refused_events_of_closed_links_block_nothing() -> None:
    hub = Hub()
    north, south = hub.server(), hub.server(SOUTH)
    refused_on(hub, north, 1)
    hub.close(north)
    hub.send(south, of_bob(1))
    again = hub.server()
    assert not waits(hub, again, 2)


def test_x25_no_link_waits_for_an_event_that_another_server_publishes() -> None:
    """Moves of channel groups wait as long as one does."""
    hub = Hub()
    north, south = hub.server(), hub.server(SOUTH)
    refused_on(hub, north, 1)
    (link,) = hub.broker._links.of_user(NORTH)
    assert link.outbox_order
    hub.send(south, of_bob(1))
    assert not link.outbox_order
