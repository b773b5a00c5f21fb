"""A new device of a session gets what no device has acknowledged, marked if another may have seen it (SPEC G-07)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, Desk, rows_of
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Leave, Notify, Unsubscribe


def got(desk: Desk, link: int) -> list[tuple[object, bool]]:
    """Each event that arrived on a link, and whether it was marked as redelivered."""
    marks = [notify.redelivered for notify in desk.received(link, Notify)]
    return list(zip(desk.stream(link), marks, strict=True))


def publish(desk: Desk, n: int) -> None:
    """Publish by a life of its own of a publisher's agent."""
    desk.publish(desk.attach(BOB, epoch=n), n)


@pytest.mark.parametrize("how", ["ended", "ended without abandoning", "kept"])
@pytest.mark.parametrize("with_rows", [None, False, True])
def test_a_device_that_inherits_a_subscription_gets_nothing_that_was_consumed(how: str, with_rows: bool | None) -> None:
    """A first device that never returns keeps the queue; the second one consumes, the third one comes with its call."""
    desk = Desk()
    first = desk.attach(device="first")
    subscription = desk.subscribed(first)
    desk.close(first)
    for n in (1, 2, 3):
        publish(desk, n)
    second = desk.attach(device="second")
    assert desk.stream(second) == [1, 2, 3]
    desk.take(second, 2)
    if how != "kept":
        desk.send(second, Unsubscribe(9, subscription.id, abandon=how == "ended"))
    desk.close(second)
    assert desk.waiting(subscription.id) == 3, "the first device may return"
    if with_rows is not None:
        desk.save()
        desk.restart(with_rows=with_rows)
    third = desk.attach(device="third")
    desk.subscribed(third)
    publish(desk, 4)
    assert got(desk, third) == ([] if how == "ended" else [(3, True)]) + [(4, False)]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
    assert desk.stream(desk.attach(device="first", epoch=2)) == [1, 2, 3, 4]


def test_notifications_that_a_device_may_have_seen_are_marked_for_the_next_one_also_after_it_has_left() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=2))
    first = desk.attach(device="first")
    desk.subscribed(first)
    for n in (1, 2, 3):
        publish(desk, n)
    assert desk.stream(first) == [1, 2]
    desk.send(first, Leave(9))
    second = desk.attach(device="second")
    desk.take(second, 2)
    assert got(desk, second) == [(1, True), (2, True), (3, False)]


def test_notifications_that_a_connected_device_has_not_acknowledged_are_marked_for_a_new_one() -> None:
    desk = Desk()
    phone = desk.attach()
    desk.subscribed(phone)
    publish(desk, 1)
    tablet = desk.attach(device="tablet")
    publish(desk, 2)
    assert (got(desk, phone), got(desk, tablet)) == ([(1, False), (2, False)], [(1, True), (2, False)])


@pytest.mark.parametrize("leaves", [False, True])
def test_the_marks_for_a_new_device_outlive_an_agent_that_read_nothing(leaves: bool) -> None:
    desk = Desk()
    first = desk.attach(device="first")
    desk.subscribed(first)
    publish(desk, 1)
    if leaves:
        desk.send(first, Leave(9))
    desk.close(desk.attach(device="second", reads=False))
    publish(desk, 2)
    for epoch in (2, 3):
        second = desk.attach(device="second", epoch=epoch, reads=epoch == 3)
    assert got(desk, second) == [(1, True), (2, False)]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_a_new_device_that_brings_a_position_gets_everything_behind_it() -> None:
    """The application keeps its positions elsewhere, for example in a database, and says what it has committed."""
    desk = Desk()
    first = desk.attach(device="lost")
    desk.subscribed(first)
    desk.close(first)
    for n in (1, 2, 3):
        publish(desk, n)
    second = desk.attach(device="second")
    desk.take(second, 3)
    assert desk.stream(desk.attach(device="third", resume=1)) == [2, 3]


def test_a_subscription_bound_to_a_device_is_untouched_by_new_ones() -> None:
    desk = Desk()
    phone = desk.attach()
    desk.subscribed(phone, this_device_only=True)
    publish(desk, 1)
    assert desk.stream(desk.attach(device="tablet")) == []
    desk.close(phone)
    assert desk.stream(desk.attach(epoch=2)) == [1]
    assert desk.broker.state.sessions[f"{ALICE}/default"].waiting == 1
