"""Subscriptions that are not kept end with the devices that asked for them (SPEC G-03, G-07)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from wanderbus import records
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Kick, Leave, Renew, Subscribe, SubscriptionEnded

GRACE_S = 100.0


@pytest.fixture
def desk() -> Desk:
    return Desk(BrokerConfig(device_grace_s=GRACE_S))


def held(desk: Desk, link: int, *, is_kept: bool = False) -> str:
    """Subscribe as an application does that reads in a block."""
    desk._requests += 1
    handle = desk._handles = desk._handles + 1
    answer = desk.ask(link, Subscribe(desk._requests, SUBJECT, "", None, (), False, reader=handle, is_kept=is_kept))
    assert isinstance(answer, Done)
    (subscription,) = answer.subscriptions
    desk.reading.setdefault(link, {})[subscription.id] = handle
    return subscription.id


def publish(desk: Desk, *numbers: int) -> None:
    for n in numbers:
        desk.publish(desk.attach(BOB, epoch=n), n)


def is_live(desk: Desk, subscription: str) -> bool:
    return subscription in desk.broker.state.subscriptions


@pytest.mark.parametrize("with_rows", [None, False, True])
def test_a_subscription_that_nobody_ended_ends_after_the_grace_and_queues_no_more(
    desk: Desk, with_rows: bool | None
) -> None:
    phone = desk.attach()
    subscription = held(desk, phone)
    desk.close(phone)
    publish(desk, 1)
    desk.later(GRACE_S - 10)
    if with_rows is not None:
        desk.save()
        desk.restart(with_rows=with_rows)
    assert is_live(desk, subscription)
    desk.later(70.0)
    assert not is_live(desk, subscription)
    assert [record.reason for record in desk.written(records.Unsubscribed)] == ["left_behind"]
    publish(desk, 2)
    back = desk.attach(epoch=2)
    assert desk.stream(back) == [1], "what waited before is delivered (SPEC G-07)"
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_a_kept_subscription_stays_however_long_its_device_is_away(desk: Desk) -> None:
    phone = desk.attach()
    subscription = held(desk, phone, is_kept=True)
    desk.close(phone)
    desk.later(10 * GRACE_S)
    assert is_live(desk, subscription)


def test_a_subscription_is_kept_from_the_first_call_on_that_keeps_it(desk: Desk) -> None:
    phone = desk.attach()
    subscription = held(desk, phone)
    assert held(desk, phone, is_kept=True) == subscription
    desk.close(phone)
    desk.later(10 * GRACE_S)
    assert is_live(desk, subscription)


@pytest.mark.parametrize("how", ["grace", "asked", "kicked"])
def test_a_subscription_of_two_devices_ends_with_the_last_of_them(desk: Desk, how: str) -> None:
    phone, laptop, keeper = desk.attach(), desk.attach(device="laptop"), desk.attach(device="keeper")
    subscription = held(desk, phone)
    assert held(desk, laptop) == subscription
    for link, device in ((phone, "phone"), (laptop, "laptop")):
        assert is_live(desk, subscription), device
        if how == "asked":
            desk.send(link, Leave(900))
        elif how == "kicked":
            desk.send(keeper, Kick(901, ALICE, device, True))
        else:
            desk.close(link)
            desk.later(GRACE_S + 1)
    assert not is_live(desk, subscription)
    assert [each.reason for each in desk.received(keeper, SubscriptionEnded)] == ["left_behind"]


def test_a_device_that_left_leaves_no_subscription_and_no_session(desk: Desk) -> None:
    phone = desk.attach()
    held(desk, phone)
    publish(desk, 1)
    desk.send(phone, Leave(9))
    assert desk.broker.state.sessions_of(ALICE) == ()
    assert not desk.broker.state.queue.get(f"{ALICE}/default")


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("others", [(), ("tablet",)])
def test_a_subscription_whose_holder_has_left_ends_though_the_power_failed_in_between(
    desk: Desk, *, others: tuple[str, ...], with_rows: bool
) -> None:
    phone = desk.attach()
    for device in others:
        desk.attach(device=device)
    subscription = held(desk, phone)
    publish(desk, 1)
    desk.send(phone, Leave(1))
    left = next(n for n, record in enumerate(map(records.decode_record, desk.log)) if isinstance(record, records.Left))
    del desk.log[left + 1 :]
    desk.restart(with_rows=with_rows)
    assert not is_live(desk, subscription)
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
    assert desk.waiting(subscription) == len(others), "another member may still read what waited"


@pytest.mark.parametrize("ends_too", [False, True])
def test_one_that_another_device_renews_after_its_end_is_held_by_that_device(desk: Desk, *, ends_too: bool) -> None:
    phone, tablet = desk.attach(), desk.attach(device="tablet")
    subscription = held(desk, phone)
    desk.send(phone, Leave(1))
    assert not is_live(desk, subscription)
    assert isinstance(desk.ask(tablet, Renew(2, subscription, None)), Done)
    assert is_live(desk, subscription)
    if ends_too:
        desk.send(tablet, Leave(3))
    else:
        desk.close(tablet)
        desk.later(GRACE_S + 61.0)
    assert not is_live(desk, subscription)
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
