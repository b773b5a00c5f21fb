"""Queue for devices that are away: everything within the bounds waits for their return (SPEC G-03, G-13 to G-21, U-02,
U-03, X22, X24).
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.calls import calls_of
from tests.broker.desk import ALICE, BOB, Desk
from wanderbus import records
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Notify, NotifyGap
from wanderbus.subscription import QueuePolicy


def away(desk: Desk, **options: Any) -> int:
    """Alice subscribes to everything and goes; give Bob's link, to publish on."""
    link = desk.attach()
    desk.subscribed(link, **options)
    desk.close(link)
    return desk.attach(BOB)


def test_g13_g19_the_queue_waits_for_who_is_away_and_comes_first_oldest_first(desk: Desk) -> None:
    bob = away(desk)
    for n in (1, 2, 3):
        desk.publish(bob, n)
    back = desk.attach()
    desk.publish(bob, 4)
    assert desk.stream(back) == [1, 2, 3, 4]
    assert [notify.number for notify in desk.received(back, Notify)] == [1, 2, 3, 4]


def test_g13_a_notification_whose_sending_failed_is_not_lost(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    assert desk.stream(link) == [1]
    desk.close(link)
    assert desk.stream(desk.attach()) == [1]


def test_g19_a_failure_in_the_middle_keeps_the_remainder(desk: Desk) -> None:
    bob = away(desk)
    for n in (1, 2, 3, 4):
        desk.publish(bob, n)
    link = desk.attach()
    desk.take(link, 2)
    desk.close(link)
    back = desk.attach()
    assert desk.stream(back) == [3, 4]
    desk.take(back, 4)
    desk.close(back)
    assert desk.stream(desk.attach()) == []


@pytest.mark.parametrize("with_rows", [False, True])
def test_x22_a_queue_survives_a_restart_of_the_broker(desk: Desk, with_rows: bool) -> None:
    bob = away(desk)
    desk.publish(bob, 1)
    desk.save()
    desk.publish(bob, 2)
    desk.restart(with_rows=with_rows)
    assert desk.stream(desk.attach()) == [1, 2]


def test_g14_queues_are_apart_by_user(desk: Desk) -> None:
    bob = away(desk)
    desk.subscribed(bob, "N > 1")
    desk.publish(bob, 1)
    desk.publish(bob, 2)
    desk.take(bob, 1)
    assert desk.stream(desk.attach()) == [1, 2]


def test_g15_g16_cap_three_and_five_events_give_one_gap_of_two_and_the_last_three() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=3)))
    bob = away(desk)
    for n in range(1, 6):
        desk.publish(bob, n)
    back = desk.attach()
    assert desk.stream(back) == [(1, 2), 3, 4, 5]
    assert [gap.lost[0].reason for gap in desk.received(back, NotifyGap)] == ["queue.notifications_max"]


def test_g21_u02_drops_are_counted_and_reported_at_their_position() -> None:
    """Every number arrives once, as a notification or inside a gap: sent = received + dropped."""
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=4)))
    bob = away(desk)
    for n in range(1, 30):
        desk.publish(bob, n)
    back = desk.attach()
    numbers = [notify.number for notify in desk.received(back, Notify)]
    gaps = [number for gap in desk.received(back, NotifyGap) for number in range(gap.first, gap.last + 1)]
    assert gaps + numbers == list(range(1, 30))
    dropped = desk.written(records.Dropped)
    assert sum(record.last - record.first + 1 for record in dropped) == len(gaps) == 25
    assert {(record.user, record.session) for record in dropped} == {(ALICE, "default")}


def test_g16_a_gap_is_taken_like_a_notification_and_then_the_queue_may_grow_again() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    bob = away(desk)
    for n in (1, 2, 3):
        desk.publish(bob, n)
    back = desk.attach()
    assert desk.stream(back) == [(1, 1), 2, 3]
    desk.take(back, 1)
    desk.take(back, 3)
    assert len(desk.broker.state.queue) == 0
    desk.close(back)
    for n in (4, 5):
        desk.publish(bob, n)
    assert desk.stream(desk.attach()) == [4, 5]


def test_g16_a_slow_device_receives_the_gap_while_connected() -> None:
    """The cap counts notifications that the application has not taken, sent or not."""
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2), unacknowledged_max=1))
    link = desk.attach()
    desk.subscribed(link)
    bob = desk.attach(BOB)
    for n in range(1, 6):
        desk.publish(bob, n)
    assert desk.stream(link) == [1]
    desk.take(link, 1)
    assert desk.stream(link) == [1, (2, 3)]
    desk.take(link, 3)
    desk.take(link, 4)
    assert desk.stream(link) == [1, (2, 3), 4, 5]


def test_g18_queue_max_of_a_subscription_drops_its_own_oldest_and_leaves_the_others(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "Kind == quote", queue=QueuePolicy(notifications_max=2))
    desk.subscribed(link, "Kind == order")
    desk.close(link)
    bob = desk.attach(BOB)
    for n, kind in enumerate(["quote", "order", "quote", "quote", "order", "quote"], 1):
        desk.publish(bob, n, Kind=kind)
    back = desk.attach()
    assert desk.stream(back) == [(1, 3), 2, 4, 5, 6], "the gap is of the quotes, the order has its own queue"
    assert {gap.lost[0].reason for gap in desk.received(back, NotifyGap)} == {"subscription.queue.notifications_max"}


def test_g18_x24_a_subscription_can_only_tighten_the_bound_of_the_system() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    bob = away(desk, queue=QueuePolicy(100))
    for n in range(1, 6):
        desk.publish(bob, n)
    assert desk.stream(desk.attach()) == [(1, 3), 4, 5]


def test_g18_acknowledged_notifications_do_not_count(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, queue=QueuePolicy(notifications_max=2))
    bob = desk.attach(BOB)
    for n in range(1, 8):
        desk.publish(bob, n)
        desk.take(link, n)
    assert desk.stream(link) == [1, 2, 3, 4, 5, 6, 7]
    assert desk.waiting(subscription.id) == 0
    assert desk.written(records.Dropped) == []


def test_u03_a_backlog_goes_out_as_fast_as_it_is_taken() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=3))
    bob = away(desk)
    for n in range(1, 9):
        desk.publish(bob, n)
    back = desk.attach()
    assert desk.stream(back) == [1, 2, 3]
    desk.take(back, 1)
    assert desk.stream(back) == [1, 2, 3, 4]
    desk.take(back, 4)
    assert desk.stream(back) == [1, 2, 3, 4, 5, 6, 7]


def test_a_take_beyond_what_was_sent_is_ignored(desk: Desk) -> None:
    """A device cannot take a number that it was not sent, so it cannot remove it from the queue."""
    bob = away(desk)
    back = desk.attach()
    desk.take(back, 10)
    desk.publish(bob, 1)
    desk.take(back, 10)
    desk.close(back)
    assert desk.stream(desk.attach()) == [1]


def test_a_take_counts_backwards_never(desk: Desk) -> None:
    bob = away(desk)
    back = desk.attach()
    for n in (1, 2):
        desk.publish(bob, n)
    desk.take(back, 2)
    desk.take(back, 1)
    desk.take(back, -5)
    assert [record.number for record in desk.written(records.Acknowledged)] == [2]
    assert len(desk.broker.state.queue) == 0


def test_g15_a_lower_cap_after_a_restart_is_met_by_the_next_notification(desk: Desk) -> None:
    bob = away(desk)
    for n in range(1, 6):
        desk.publish(bob, n)
    desk.config = BrokerConfig(queue=QueuePolicy(notifications_max=2))
    desk.restart()
    desk.publish(desk.attach(BOB, epoch=2), 6)
    assert desk.stream(desk.attach()) == [(1, 4), 5, 6]


def calls_of_an_acknowledgement(queues: int) -> int:
    """Count the functions called while Alice takes one notification, beside the queues of so many others."""
    desk = Desk()
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(alice)
    for n in range(queues):
        link = desk.attach(f"sip:user{n}@example.org")
        desk.subscribed(link)
        desk.close(link)
    desk.publish(bob, 1)
    assert len(desk.broker.state.queue) == queues + 1
    calls = calls_of(lambda: desk.take(alice, 1))
    assert len(desk.broker.state.queue) == queues
    return calls


def test_g14_a_queue_is_found_in_constant_time() -> None:
    assert calls_of_an_acknowledgement(1_000) == calls_of_an_acknowledgement(10)
