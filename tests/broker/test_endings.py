"""End of a subscription: the notice to its readers, queries after it, subscribing again (SPEC G-03, G-08 to G-10, G-12,
X20).
"""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, Desk
from tests.broker.test_lifetimes import ended_unasked, query, renewed
from wanderbus import records
from wanderbus.protocol import Attach, SubscriptionEnded, Unsubscribe


def test_g10_an_expiry_at_the_match_is_reported_to_each_device(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    elsewhere = desk.attach(device="desk", session="work")
    subscription = desk.subscribed(phone, lifetime_s=10.0)
    desk.later(10.0)
    desk.publish(desk.attach(BOB), 1)
    assert ended_unasked(desk, phone) == ended_unasked(desk, laptop) == [(subscription.id, "expired")]
    assert desk.received(phone, SubscriptionEnded)[0].subscription == subscription
    assert ended_unasked(desk, elsewhere) == []


def test_g10_the_end_of_a_bound_subscription_is_reported_to_its_device_only(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    subscription = desk.subscribed(phone, lifetime_s=10.0, this_device_only=True)
    desk.later(61.0)
    assert ended_unasked(desk, phone) == [(subscription.id, "expired")]
    assert ended_unasked(desk, laptop) == []


def test_g10_the_device_that_requested_the_end_gets_no_report(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    subscription = desk.subscribed(phone)
    desk.ask(phone, Unsubscribe(1, subscription.id))
    assert ended_unasked(desk, phone) == ended_unasked(desk, laptop) == []


def test_g10_g09_a_discard_is_reported_to_other_devices(desk: Desk) -> None:
    phone, laptop = desk.attach(), desk.attach(device="laptop")
    subscription = desk.subscribed(phone)
    desk.close(phone)
    again = desk.attach(epoch=2, keep=False)
    assert ended_unasked(desk, laptop) == [(subscription.id, "discarded")]
    assert ended_unasked(desk, again) == []


@pytest.mark.parametrize("keep_queue", [False, True])
def test_g09_x20_queues_are_discarded_with_the_subscriptions_or_kept(desk: Desk, keep_queue: bool) -> None:
    phone = desk.attach()
    ended = [desk.subscribed(phone).id, desk.subscribed(phone, "N > 0", this_device_only=True).id]
    desk.close(phone)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    again = desk.open(ALICE, "phone")
    desk.send(again, Attach(2, "default", None, keep=False, keep_queue=keep_queue))
    desk.publish(bob, 2)
    desk.read(again, *ended)
    assert desk.stream(again) == ([1] if keep_queue else [])
    assert query(desk, again) == []
    ends = {each.subscription: (each.reason, each.abandoned_by) for each in desk.written(records.Unsubscribed)}
    assert ends == dict.fromkeys(ended, ("discarded", "" if keep_queue else "phone"))
    assert desk.broker.state.sessions[f"{ALICE}/default"].dropped == ({} if keep_queue else {"discarded": 2})
    desk.subscribed(again)
    desk.publish(bob, 3)
    assert desk.stream(again)[-1] == 3


def test_g09_subscriptions_of_another_device_are_kept(desk: Desk) -> None:
    laptop = desk.attach(device="laptop")
    kept = desk.subscribed(laptop, this_device_only=True)
    desk.publish(desk.attach(BOB), 1)
    phone = desk.attach(keep=False)
    assert query(desk, phone) == [kept]
    assert desk.stream(laptop) == [1]


def test_g09_a_device_that_keeps_finds_all_of_it(desk: Desk) -> None:
    phone = desk.attach()
    subscription = desk.subscribed(phone)
    desk.close(phone)
    desk.publish(desk.attach(BOB), 1)
    again = desk.attach(epoch=2, keep=True)
    assert desk.stream(again) == [1]
    assert query(desk, again) == [subscription]


def test_g10_a_removal_by_an_operator_is_reported(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link)
    desk.broker._subscriptions.end(subscription, "removed")
    desk.give()
    assert ended_unasked(desk, link) == [(subscription.id, "removed")]
    assert query(desk, link) == []


def test_g10_g12_a_query_gives_absent_devices_the_same_ends(desk: Desk) -> None:
    phone = desk.attach()
    short, lasting = desk.subscribed(phone, "A == 1", lifetime_s=10.0), desk.subscribed(phone, "A == 2")
    desk.close(phone)
    desk.later(100.0)
    back = desk.attach(resume=0)
    assert ended_unasked(desk, back) == []
    assert query(desk, back) == [lasting]
    assert renewed(desk, back, short.id).id == short.id


def test_an_end_is_logged_before_it_is_reported(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link)
    desk.held = True
    laptop = desk.attach(device="laptop", keep=False)
    assert subscription.id not in desk.broker.state.subscriptions
    assert ended_unasked(desk, link) == []
    desk.held = False
    desk.sync()
    assert ended_unasked(desk, link) == [(subscription.id, "discarded")]
    assert query(desk, laptop) == []


def test_g03_a_subscription_outlives_the_connection_and_the_broker(desk: Desk) -> None:
    desk.close(link := desk.attach())
    link = desk.attach()
    subscription = desk.subscribed(link, lifetime_s=1_000.0)
    desk.close(link)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    desk.restart()
    desk.later(500.0)
    desk.publish(desk.attach(BOB, epoch=2), 2)
    back = desk.attach()
    assert desk.stream(back) == [1, 2]
    assert query(desk, back) == [subscription]
    assert subscription.owner == ALICE
