"""A backlog is sent at a set rate, in order, and without delaying others (SPEC U-03, G-19)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.broker.desk import BOB, Desk
from tests.lines import lines_of
from wanderbus.broker.queues.return_pace import TIMER
from wanderbus.machine import TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import QueuePolicy
from wanderbus.tokens import SLICE_S, bucket_of_slices

CAROL = "sip:carol@example.org"

SLICE = 8
"""Notifications of a slice while others are active."""


def test_a_bucket_gives_a_slice_at_once_and_its_rate_from_then_on() -> None:
    bucket = bucket_of_slices(1_000.0)
    slice_count = round(1_000 * SLICE_S)
    assert [bucket.take(0.0) for _ in range(slice_count + 1)] == [True] * slice_count + [False]
    assert bucket.full_at() == pytest.approx(SLICE_S)
    given = 0
    for _ in range(100):
        at = bucket.full_at()
        while bucket.take(at):
            given += 1
    assert given == pytest.approx(1_000 * at, abs=1)


def test_a_slow_bucket_gives_one_at_a_time_and_does_not_save_up() -> None:
    bucket = bucket_of_slices(0.5)
    assert [bucket.take(10.0), bucket.take(11.9), bucket.take(12.0), bucket.take(12.0)] == [True, False, True, False]
    assert [bucket.take(1_000.0), bucket.take(1_000.0)] == [True, False]
    assert [bucket.take(999.0), bucket.take(1_002.0)] == [False, True], "a clock that goes back gives nothing"


def with_backlog(count: int, *, rate: float | None = 100.0, window: int = 256) -> tuple[Desk, int]:
    """Publish ``count`` events while Alice is away; return the link of Bob, who publishes."""
    queue = QueuePolicy(notifications_max=max(10_000, 2 * count), when_full="drop_oldest")
    desk = Desk(BrokerConfig(backlog_per_s=rate, unacknowledged_max=window, queue=queue))
    link = desk.attach()
    desk.subscribed(link)
    desk.close(link)
    bob = desk.attach(BOB)
    for n in range(1, count + 1):
        desk.publish(bob, n)
    return desk, bob


def test_u03_a_backlog_is_paced_and_delivered_in_order_before_new_notifications() -> None:
    desk, bob = with_backlog(50)
    back = desk.attach()
    assert desk.stream(back) == [1]
    desk.publish(bob, 51)
    assert desk.stream(back) == [1], "the new one is behind the others"
    desk.later(0.1)
    assert 10 <= len(desk.stream(back)) <= 13
    desk.later(0.5)
    assert desk.stream(back) == list(range(1, 52))
    for n in range(52, 99):
        desk.publish(bob, n)
    assert desk.stream(back) == list(range(1, 99)), "live notifications are not paced"


def test_u03_others_do_not_wait_behind_a_backlog() -> None:
    """One step sends a short slice of it at most, however much there is."""
    desk, bob = with_backlog(2_000, rate=None, window=10_000)
    desk.goes_on = False
    carol = desk.attach(CAROL)
    desk.subscribed(carol)
    back = desk.attach()
    assert 0 < len(desk.stream(back)) <= SLICE
    for n in range(2_001, 2_101):
        desk.publish(bob, n)
        assert desk.stream(carol)[-1] == n
        sent, desk.now = len(desk.stream(back)), desk.timers.pop(TIMER) + 0.001
        desk.give(TimerFired(TIMER))
        assert len(desk.stream(back)) - sent <= SLICE


def lines_of_a_delivery(backlog: int) -> int:
    """Return the number of lines until Carol has an event, while Alice is back and receives her backlog."""
    desk, bob = with_backlog(backlog, rate=2_000.0)
    carol = desk.attach(CAROL)
    desk.subscribed(carol)
    back = desk.attach()
    desk.later(0.05)
    desk.take(back, min(50, backlog))
    desk.goes_on = False
    lines = lines_of(lambda: desk.publish(bob, backlog + 1))
    assert desk.stream(carol) == [backlog + 1]
    return lines


def test_u03_a_longer_backlog_adds_no_work_to_what_others_receive() -> None:
    """Latency in lines, which no other load of the machine changes; in seconds it is ``bench broker``'s."""
    assert lines_of_a_delivery(2_000) <= 1.1 * lines_of_a_delivery(100)


@pytest.mark.integration
def test_u03_a_backlog_of_100_000_adds_no_work_to_what_others_receive() -> None:
    assert lines_of_a_delivery(100_000) <= 1.1 * lines_of_a_delivery(100)


def slices(desk: Desk, link: int, took_s: float) -> list[tuple[float, int]]:
    """Let each slice of a backlog take so long; return the time of each and the number of notifications."""
    found: list[tuple[float, int]] = []
    while TIMER in desk.timers:
        sent, due = len(desk.stream(link)), desk.timers.pop(TIMER)
        desk.now = max(due, desk.now + took_s)
        desk.give(TimerFired(TIMER))
        if more := len(desk.stream(link)) - sent:
            found.append((desk.now, more))
    return found


def test_u03_alone_a_backlog_is_sent_without_pauses() -> None:
    desk, _ = with_backlog(1_000, rate=None, window=10_000)
    desk.now += 2.0
    desk.goes_on = False
    back = desk.attach()
    found = slices(desk, back, 0.01)
    assert desk.stream(back) == list(range(1, 1_001))
    assert {round(after - before, 6) for (before, _), (after, _) in pairwise(found)} == {0.01}
    assert min(count for _, count in found[:-1]) > 40


def test_u03_while_others_are_active_slices_are_short_and_pauses_leave_them_most_of_the_time() -> None:
    desk, bob = with_backlog(300, rate=None, window=10_000)
    desk.goes_on = False
    back = desk.attach()
    desk.publish(bob, 301)
    found = slices(desk, back, 0.001)
    contested = [(at, count) for at, count in found if at < desk.now and count < 10]
    assert len(contested) > 10
    assert max(count for _, count in contested) <= SLICE
    gaps = [after - before for (before, _), (after, _) in pairwise(contested)]
    assert min(gaps) >= 0.004, "four fifths of the time are for others"
    assert desk.stream(back) == list(range(1, 302))


def test_u03_devices_that_return_together_take_turns() -> None:
    desk, bob = with_backlog(200, rate=None, window=10_000)
    desk.goes_on = False
    desk.publish(bob, 201)
    phone, tablet = desk.attach(), desk.attach(device="tablet")
    while len(desk.stream(phone)) < 150:
        desk.now = desk.timers.pop(TIMER) + 0.001
        desk.give(TimerFired(TIMER))
    assert abs(len(desk.stream(phone)) - len(desk.stream(tablet))) <= 16


def test_u03_a_closed_link_holds_up_no_other_one() -> None:
    desk, bob = with_backlog(200, rate=None, window=10_000)
    desk.goes_on = False
    desk.publish(bob, 201)
    phone, tablet = desk.attach(), desk.attach(device="tablet")
    desk.close(tablet)
    desk.later(1.0)
    assert desk.stream(phone) == list(range(1, 202))
    assert TIMER not in desk.timers


def test_g19_a_failure_in_the_middle_of_a_paced_backlog_keeps_the_rest() -> None:
    desk, _ = with_backlog(40)
    link = desk.attach()
    desk.later(0.1)
    sent = desk.stream(link)
    assert 0 < len(sent) < 40
    desk.take(link, 5)
    desk.close(link)
    desk.later(1.0)
    assert desk.stream(link) == sent
    back = desk.attach()
    desk.later(1.0)
    assert desk.stream(back) == list(range(6, 41))


def test_u03_a_device_may_acknowledge_received_notifications_before_their_repetition() -> None:
    """Notifications sent on a broken link are taken over the next link before it repeats them: nothing is left over."""
    desk, bob = with_backlog(0)
    desk.close(desk.attach(device="laptop"))
    link = desk.attach()
    for n in range(1, 31):
        desk.publish(bob, n)
    assert len(desk.stream(link)) == 30
    back = desk.attach()
    assert len(desk.stream(back)) < 30
    desk.take(back, 30)
    (row,) = desk.broker.state.subscriptions.values()
    assert row.cursors == {"phone": 30}
    desk.publish(bob, 31)
    desk.later(1.0)
    assert desk.stream(back)[-1] == 31
    assert len(desk.stream(back)) < 30, "what was taken does not come again"


def test_u03_the_window_holds_back_a_backlog_too() -> None:
    desk, _ = with_backlog(20, rate=1e6, window=3)
    back = desk.attach()
    assert desk.stream(back) == [1, 2, 3]
    desk.take(back, 2)
    assert desk.stream(back) == [1, 2, 3, 4, 5]


def test_the_pace_of_a_closed_link_is_not_shared(desk: Desk) -> None:
    desk.give(TimerFired(("pace", 99)))
    desk.give(TimerFired(("pace", desk.open(BOB, "desk"))))
    assert desk.out == {}
