"""No later event overtakes an event of an outbox that is refused temporarily (SPEC X25, G-20)."""

from __future__ import annotations

from tests.broker.desk import ALICE, Desk
from wanderbus import records
from wanderbus.broker.messages import DiskFreed, DiskFull
from wanderbus.event import Event
from wanderbus.protocol import Kick, Publish, PublishAccepted, PublishRefused

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
