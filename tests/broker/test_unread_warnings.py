"""Warnings about subscriptions without a reader or with a stalled reader: once each, in virtual time (SPEC G-25)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus.broker.messages import SubscriptionUnread
from wanderbus.broker.sessions import unread_warnings
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import NotRead

CONFIG = BrokerConfig(unacknowledged_max=2, blocked_s=60.0, sweep_s=10.0)


class WatchedDesk(Desk):
    """It keeps the warnings."""

    def start(self) -> None:
        self.warned: list[SubscriptionUnread] = []
        super().start()
        self.bob = self.attach(BOB)

    def perform(self, outputs: Sequence[Output]) -> None:
        self.warned += [output for output in outputs if isinstance(output, SubscriptionUnread)]
        super().perform(outputs)


@pytest.fixture
def desk() -> WatchedDesk:
    return WatchedDesk(CONFIG)


def published(desk: WatchedDesk, count: int) -> None:
    for number in range(1, count + 1):
        desk.publish(desk.bob, number)


def test_g25_a_reader_that_stands_still_is_warned_of_once_until_it_takes_something(desk: WatchedDesk) -> None:
    alice = desk.attach()
    subscription = desk.subscribed(alice)
    published(desk, 9)
    desk.later(55)
    assert desk.warned == []
    desk.later(200)
    assert desk.warned == [SubscriptionUnread(ALICE, "default", subscription.id, "phone", 9, 60.0)]
    desk.take(alice, 2)
    desk.later(200)
    assert [(each.device, each.waiting) for each in desk.warned] == [("phone", 9), ("phone", 7)], "another episode"
    assert desk.received(alice, NotRead) == [], "its agent has seen that for itself"


def test_g25_a_subscription_that_nobody_reads_is_warned_of_once_at_both_sides(desk: WatchedDesk) -> None:
    alice = desk.attach(reads=False)
    subscription = desk.subscribed(alice, reads=False)
    desk.later(500)
    assert desk.warned == [], "nothing waits"
    published(desk, 3)
    desk.later(65)
    assert desk.warned == []
    desk.later(500)
    assert desk.warned == [SubscriptionUnread(ALICE, "default", subscription.id, None, 3, 60.0)]
    assert desk.received(alice, NotRead) == [NotRead(subscription, 3)]
    desk.read(alice, subscription.id)
    desk.take(alice, 2)
    desk.later(20)
    desk.close(alice)
    desk.attach(reads=False)
    desk.later(500)
    assert [each.waiting for each in desk.warned] == [3, 1], "another episode"


def test_g25_absent_users_and_readers_on_another_device_give_no_warning(desk: WatchedDesk) -> None:
    alice = desk.attach()
    bound = desk.subscribed(alice, "N > 0", this_device_only=True)
    other = desk.subscribed(alice)
    tablet = desk.attach(ALICE, "tablet", reads=False)
    published(desk, 1)
    desk.later(500)
    assert desk.warned == [], "both are read on the phone, whose windows have room"
    desk.close(alice)
    published(desk, 1)
    desk.later(500)
    assert [each.subscription for each in desk.warned] == [other.id], "the tablet cannot read the other one"
    assert desk.waiting(bound.id) == 2
    desk.close(tablet)
    desk.later(500)
    assert len(desk.warned) == 1, "nobody is there"


def test_g25_a_reader_with_a_full_window_receives_new_notifications_later(desk: WatchedDesk) -> None:
    alice = desk.attach()
    desk.subscribed(alice)
    published(desk, 3)
    assert desk.stream(alice) == [1, 2]
    desk.take(alice, 2)
    desk.take(alice, 3)
    desk.publish(desk.bob, 4)
    assert desk.stream(alice) == [1, 2, 3, 4]


def test_g25_warnings_come_a_few_at_a_time(desk: WatchedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_warnings, "WARNINGS_MAX", 2)
    alice = desk.attach(reads=False)
    wanted = {desk.subscribed(alice, f"N > {-number}", reads=False).id for number in range(5)}
    published(desk, 1)
    counts = []
    for _ in range(10):
        desk.later(10)
        counts.append(len(desk.warned))
    assert counts == [0, 0, 0, 0, 0, 0, 2, 4, 5, 5]
    assert {each.subscription for each in desk.warned} == wanted
