"""Inheritance: a subscription equal to one that has ended gets the notifications that wait for it (SPEC G-07)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, Desk, rows_of
from wanderbus.protocol import Done, Leave, Query, Read, Reader, Renew, Restrict, StopReading, Unsubscribe
from wanderbus.subscription import Frequency, Subscription


def inherited(desk: Desk, phone: int, tablet: int) -> tuple[Subscription, Subscription]:
    """End a subscription that events 1 and 2 wait for, and make an equal one on the other device."""
    ended = desk.subscribed(phone, lifetime_s=60.0)
    for n in (1, 2):
        desk.publish(desk.attach(BOB, f"publisher{n}"), n)
    desk.later(61.0)
    desk.ask(phone, Query(900))
    successor = desk.subscribed(tablet, lifetime_s=3_600.0, reads=False)
    assert successor.id != ended.id
    assert desk.waiting(successor.id) == 2
    return ended, successor


def renewed(desk: Desk, link: int, identity: str) -> Subscription:
    answer = desk.ask(link, Renew(1, identity, 7_200.0))
    assert isinstance(answer, Done), answer
    return answer.subscriptions[0]


@pytest.mark.parametrize("ends_too", [False, True])
def test_x21_renewing_what_another_has_inherited_renews_that_one(desk: Desk, ends_too: bool) -> None:
    phone, tablet = desk.attach(device="phone"), desk.attach(device="tablet")
    ended, successor = inherited(desk, phone, tablet)
    if ends_too:
        desk.send(tablet, Unsubscribe(1, successor.id))
    assert renewed(desk, phone, ended.id).id == successor.id
    assert list(dict(desk.broker.state.subscriptions.items())) == [successor.id]
    desk.publish(desk.attach(BOB), 3)
    assert desk.waiting(successor.id) == 3
    assert desk.waiting(ended.id) == 0


@pytest.mark.parametrize("ends_too", [False, True])
@pytest.mark.parametrize("with_rows", [None, False, True])
def test_x21_renewing_what_another_has_inherited_renews_that_one_also_after_a_change(
    desk: Desk, *, ends_too: bool, with_rows: bool | None
) -> None:
    """The successor stands for it (decision 0035), though the restrictions differ since."""
    phone, tablet = desk.attach(device="phone", reads=False), desk.attach(device="tablet", reads=False)
    ended, successor = inherited(desk, phone, tablet)
    desk.ask(tablet, Restrict(1, successor.id, (Frequency(10.0),)))
    if ends_too:
        desk.send(tablet, Unsubscribe(1, successor.id))
    if with_rows is not None:
        desk.save()
        desk.restart(with_rows=with_rows)
        phone = desk.attach(device="phone", epoch=2, reads=False)
    assert renewed(desk, phone, ended.id).id == successor.id
    assert list(dict(desk.broker.state.subscriptions.items())) == [successor.id]
    assert desk.waiting(successor.id) == 2


def test_notifications_sent_under_the_old_id_may_be_acknowledged_under_it(desk: Desk) -> None:
    phone, tablet = desk.attach(device="phone"), desk.attach(device="tablet")
    ended, successor = inherited(desk, phone, tablet)
    for link in (phone, tablet):
        desk.read(link, successor.id)
    assert desk.stream(phone) == [1, 2, 1, 2]  # a second reader begins where the device is
    desk.take(phone, 2, ended.id)
    desk.take(tablet, 2, ended.id)
    assert desk.waiting(successor.id) == 0
    desk.publish(desk.attach(BOB), 3)
    assert desk.stream(phone)[-1] == 3
    desk.take(phone, 3, successor.id)
    desk.take(tablet, 3, successor.id)
    assert desk.waiting(successor.id) == 0


def test_ending_the_earlier_reader_leaves_the_later_one_reading(desk: Desk) -> None:
    phone, tablet = desk.attach(device="phone"), desk.attach(device="tablet")
    ended, successor = inherited(desk, phone, tablet)
    desk.read(phone, successor.id)
    desk.send(phone, StopReading(desk.handle(phone, ended.id)))
    desk.publish(desk.attach(BOB), 3)
    assert desk.stream(phone)[-1] == 3


def test_an_old_handle_that_reads_again_starts_at_the_devices_cursor(desk: Desk) -> None:
    phone, tablet = desk.attach(device="phone"), desk.attach(device="tablet")
    ended, successor = inherited(desk, phone, tablet)
    desk.read(phone, successor.id)
    desk.send(phone, Read((Reader(desk.handle(phone, ended.id), successor.id),)))
    assert desk.stream(phone) == [1, 2, 1, 2, 1, 2]


def test_x40_the_cursor_of_a_device_that_left_is_removed_from_disk(desk: Desk) -> None:
    phone, tablet = desk.attach(device="phone"), desk.attach(device="tablet")
    desk.subscribed(phone)
    for n in (1, 2):
        desk.publish(desk.attach(BOB, f"publisher{n}"), n)
    desk.take(phone, 1)
    for link in (tablet, phone):
        desk.ask(link, Leave(1))
        desk.save()
    assert rows_of(desk.recovered()) == rows_of(desk.recovered(from_log_alone=True))
    assert desk.broker.state.sessions[f"{ALICE}/default"].devices == []
