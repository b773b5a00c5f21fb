"""Lifetime of a subscription, and its state after the end (SPEC G-03 to G-12, X17 to X21)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import BOB, START_US, SUBJECT, Desk
from wanderbus import records
from wanderbus.broker import subscriptions
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Query, Renew, RequestRefused, Restrict, Subscribe, SubscriptionEnded, Unsubscribe
from wanderbus.subscription import Frequency, Subscription

DAY_S = 86_400.0
SECOND_US = 1_000_000


def subscribe(desk: Desk, link: int, lifetime_s: float | None = None, expires_us: int | None = None) -> Any:
    """Subscribe with one or the other form of expiry."""
    return desk.ask(link, Subscribe(1, SUBJECT, "", lifetime_s, (), False, expires_us=expires_us))


def query(desk: Desk, link: int) -> list[Subscription]:
    answer = desk.ask(link, Query(900))
    assert isinstance(answer, Done)
    return list(answer.subscriptions)


def renewed(desk: Desk, link: int, identity: str, lifetime_s: float | None = None) -> Subscription:
    answer = desk.ask(link, Renew(1, identity, lifetime_s))
    assert isinstance(answer, Done), answer
    return answer.subscriptions[0]


def ended_unasked(desk: Desk, link: int) -> list[tuple[str, str]]:
    """Notices on a link about ended subscriptions that the device did not end itself."""
    return [(message.subscription.id, message.reason) for message in desk.received(link, SubscriptionEnded)]


# When it expires (G-04, X17) --------------------------------------------------------------------------------------


def test_g04_expiry_is_an_instant_or_a_time_from_now(desk: Desk) -> None:
    link = desk.attach()
    desk.later(3.0)
    desk.subscribed(link, lifetime_s=5.0)
    assert subscribe(desk, link, lifetime_s=5.0).subscriptions[0].expires_us == START_US + 8 * SECOND_US
    instant = START_US + 9 * SECOND_US
    answer = subscribe(desk, link, expires_us=instant)
    assert answer.subscriptions[0].expires_us == instant
    identity = answer.subscriptions[0].id
    answer = desk.ask(link, Renew(1, identity, None, instant + 1))
    assert isinstance(answer, Done)
    assert [s.expires_us for s in answer.subscriptions] == [instant + 1]
    desk.now = 9.0
    desk.publish(link, 1)
    desk.step()
    desk.now = 9.1
    desk.publish(link, 2)
    assert desk.stream(link) == [1]


LIFETIMES = [
    ({}, {}, None),
    ({"lifetime_s_default": 60.0}, {}, 60.0),
    ({"lifetime_s_default": 60.0}, {"lifetime_s": 5.0}, 5.0),
    ({"lifetime_s_default": 60.0, "lifetime_s_max": 100.0}, {}, 60.0),
    ({"lifetime_s_max": 100.0}, {"lifetime_s": 100.0}, 100.0),
    ({"lifetime_s_min": 10.0}, {"lifetime_s": 10.0}, 10.0),
    ({"lifetime_s_min": 10.0}, {}, None),
]


@pytest.mark.parametrize("renewing", [False, True])
@pytest.mark.parametrize(("bounds", "asked", "lifetime_s"), LIFETIMES)
def test_x17_an_unset_lifetime_is_the_operators_default(
    renewing: bool, bounds: dict[str, Any], asked: dict[str, Any], lifetime_s: float | None
) -> None:
    desk = Desk(BrokerConfig(**bounds))
    link = desk.attach()
    if renewing:
        identity = subscribe(desk, link, lifetime_s=50.0).subscriptions[0].id
        answer: Any = desk.ask(link, Renew(1, identity, asked.get("lifetime_s")))
    else:
        answer = subscribe(desk, link, **asked)
    expected = None if lifetime_s is None else START_US + round(lifetime_s * 1e6)
    assert answer.subscriptions[0].expires_us == expected


REFUSED_LIFETIMES = [
    ({"lifetime_s_max": 100.0}, {"lifetime_s": 100.1}, "lifetime_s_max"),
    ({"lifetime_s_max": 100.0}, {"expires_us": START_US + 101 * SECOND_US}, "lifetime_s_max"),
    ({"lifetime_s_max": 100.0}, {}, "lifetime_s_max"),
    ({"lifetime_s_min": 10.0}, {"lifetime_s": 9.9}, "lifetime_s_min"),
    ({"lifetime_s_min": 10.0}, {"expires_us": START_US + 9 * SECOND_US}, "lifetime_s_min"),
    ({}, {"lifetime_s": 5.0, "expires_us": START_US + 5 * SECOND_US}, None),
    ({}, {"lifetime_s": 0.0}, None),
    ({}, {"lifetime_s": -1.0}, None),
    ({}, {"lifetime_s": float("nan")}, None),
    ({}, {"expires_us": START_US}, None),
    ({}, {"expires_us": START_US - 1}, None),
    ({}, {"expires_us": 2**63 - 1}, None),
]


@pytest.mark.parametrize("renewing", [False, True])
@pytest.mark.parametrize(("bounds", "asked", "limit"), REFUSED_LIFETIMES)
def test_x17_a_lifetime_out_of_bounds_is_refused_with_the_name_of_the_limit(
    renewing: bool, bounds: dict[str, Any], asked: dict[str, Any], limit: str | None
) -> None:
    desk = Desk(BrokerConfig(**bounds))
    link = desk.attach()
    if renewing:
        identity = subscribe(desk, link, lifetime_s=50.0).subscriptions[0].id
        answer: Any = desk.ask(link, Renew(1, identity, asked.get("lifetime_s"), asked.get("expires_us")))
    else:
        answer = subscribe(desk, link, **asked)
    assert isinstance(answer, RequestRefused)
    assert answer.limit == limit


# Sweeping (G-06, X18) ---------------------------------------------------------------------------------------------


def test_g06_x18_a_sweep_ends_what_has_expired_while_nothing_is_published(desk: Desk) -> None:
    link = desk.attach()
    short = desk.subscribed(link, "A == 1", lifetime_s=10.0)
    renewed_once = desk.subscribed(link, "A == 2", lifetime_s=10.0)
    lasting = desk.subscribed(link, "A == 3")
    renewed(desk, link, renewed_once.id, 1_000.0)
    desk.later(9.0)
    desk.broker.state.wall_us = desk.wall_us
    assert not desk.broker._subscriptions.sweep()
    assert desk.written(records.Unsubscribed) == []
    desk.later(1.0)
    desk.step()
    assert not desk.broker._subscriptions.sweep()
    desk.give()
    assert [(r.subscription, r.reason) for r in desk.written(records.Unsubscribed)] == [(short.id, "expired")]
    assert {s.id for s in query(desk, link)} == {renewed_once.id, lasting.id}
    assert ended_unasked(desk, link) == [(short.id, "expired")]


def test_g06_x18_the_sweep_runs_by_default_and_can_be_turned_off() -> None:
    for sweep_s, left in ((60.0, 0), (None, 1)):
        desk = Desk(BrokerConfig(sweep_s=sweep_s))
        desk.subscribed(desk.attach(), lifetime_s=10.0)
        desk.later(200.0)
        assert len(desk.broker.state.subscriptions) == left


def test_x18_one_sweep_does_a_bounded_share_and_reports_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SWEEP_MAX", 10)
    desk = Desk(BrokerConfig(sweep_s=None))
    link = desk.attach()
    for n in range(25):
        desk.subscribed(link, f"A == {n}", lifetime_s=5.0)
    desk.later(10.0)
    desk.step()
    left = []
    while desk.broker._subscriptions.sweep():
        left.append(len(desk.broker.state.subscriptions))
    assert left == [15, 5]
    assert len(desk.broker.state.subscriptions) == 0
    assert len(desk.broker.state.tombstones) == 25


def test_x18_all_that_expired_goes_in_time_also_if_it_is_more_than_a_sweep_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "SWEEP_MAX", 10)
    desk = Desk(BrokerConfig(sweep_s=60.0))
    link = desk.attach()
    for n in range(95):
        desk.subscribed(link, f"A == {n}", lifetime_s=5.0)
    desk.later(90.0)
    assert len(desk.broker.state.subscriptions) == 0


# After the end (G-11, X21) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [None, False, True])
@pytest.mark.parametrize("reason", ["expired", "asked"])
def test_g11_x21_renewing_brings_back_the_same_id_and_state(desk: Desk, reason: str, restart: bool | None) -> None:
    link = desk.attach()
    before = desk.subscribed(link, lifetime_s=10.0, restrictions=(Frequency(3_600.0),))
    desk.publish(link, 1)
    if reason == "asked":
        desk.ask(link, Unsubscribe(1, before.id))
    desk.later(100.0)
    assert query(desk, link) == []
    if restart is not None:
        desk.save()
        desk.restart(with_rows=restart)
        link = desk.attach(epoch=2, resume=1)
    again = renewed(desk, link, before.id, 50_000.0)
    assert again.id == before.id
    assert again.expires_us == desk.wall_us + 50_000 * SECOND_US
    assert query(desk, link) == [again]
    out = len(desk.stream(link))
    desk.publish(link, 2)
    desk.later(3_600.0)
    desk.publish(link, 3)
    assert desk.stream(link)[out:] == [3]


def test_g11_x21_submitting_again_makes_a_new_id_without_the_old_state(desk: Desk) -> None:
    link = desk.attach()
    before = desk.subscribed(link, lifetime_s=10.0, restrictions=(Frequency(3_600.0),))
    desk.publish(link, 1)
    desk.later(100.0)
    after = desk.subscribed(link, lifetime_s=10.0, restrictions=(Frequency(3_600.0),))
    assert after.id != before.id
    desk.publish(link, 2)
    assert desk.stream(link) == [1, 2]


def test_x21_a_subscription_that_ended_is_forgotten_in_the_end() -> None:
    desk = Desk(BrokerConfig(tombstone_s=DAY_S))
    link = desk.attach()
    before = desk.subscribed(link, lifetime_s=10.0)
    desk.ask(link, Unsubscribe(1, before.id))
    desk.later(DAY_S - 1)
    renewed(desk, link, before.id)
    desk.later(2 * DAY_S)
    assert [s.id for s in query(desk, link)] == [before.id]
    desk.ask(link, Unsubscribe(1, before.id))
    desk.later(DAY_S)
    answer = desk.ask(link, Renew(1, before.id, None))
    assert isinstance(answer, RequestRefused)
    desk.later(100.0)
    assert len(desk.broker.state.tombstones) == 0
    assert [record.subscriptions for record in desk.written(records.Forgotten)] == [(before.id,)]
    assert isinstance(desk.ask(link, Renew(1, before.id, None)), RequestRefused)


@pytest.mark.parametrize("restart", [False, True])
def test_x21_a_user_has_no_more_of_them_than_subscriptions(restart: bool) -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=3))
    link = desk.attach()
    ended = []
    for n in range(5):
        ended.append(desk.subscribed(link, f"A == {n}").id)
        desk.ask(link, Unsubscribe(1, ended[-1]))
        if restart:
            desk.save()
            desk.restart(with_rows=True)
            link = desk.attach(epoch=n + 2)
    assert [key for key, _ in desk.broker.state.tombstones.items()] == ended[-3:]


def test_x21_another_user_or_session_cannot_bring_it_back(desk: Desk) -> None:
    link = desk.attach()
    before = desk.subscribed(link)
    desk.ask(link, Unsubscribe(1, before.id))
    for intruder in (desk.attach(BOB), desk.attach(device="other", session="work")):
        assert isinstance(desk.ask(intruder, Renew(1, before.id, 5.0)), RequestRefused)
    assert query(desk, link) == []
    renewed(desk, desk.attach(device="tablet"), before.id)


def test_restricting_one_that_has_ended_is_refused_and_does_not_revive(desk: Desk) -> None:
    link = desk.attach()
    before = desk.subscribed(link, lifetime_s=1.0)
    desk.later(1.0)
    for _ in range(2):
        assert isinstance(desk.ask(link, Restrict(1, before.id, ())), RequestRefused)
        assert query(desk, link) == []


# How many (user_subscriptions_max) --------------------------------------------------------------------------------


def test_user_subscriptions_max_counts_over_all_sessions_of_the_user() -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=2))
    home, work = desk.attach(), desk.attach(device="desk", session="work")
    first = desk.subscribed(home, "A == 1")
    desk.subscribed(work, "A == 2")
    for link in (home, work):
        answer = desk.subscribe(link, "A == 3")
        assert isinstance(answer, RequestRefused)
        assert answer.limit == "user_subscriptions_max"
    desk.subscribed(desk.attach(BOB), "A == 3")
    desk.restart()
    work = desk.attach(device="desk", session="work", epoch=2)
    assert isinstance(desk.subscribe(work, "A == 3"), RequestRefused)
    desk.ask(desk.attach(epoch=2), Unsubscribe(1, first.id))
    desk.subscribed(work, "A == 3")


def test_user_subscriptions_max_holds_for_one_that_is_renewed_after_its_end() -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=2))
    link = desk.attach()
    first = desk.subscribed(link, "A == 1")
    desk.ask(link, Unsubscribe(1, first.id))
    desk.subscribed(link, "A == 2", lifetime_s=10.0)
    desk.subscribed(link, "A == 3")
    answer = desk.ask(link, Renew(1, first.id, None))
    assert isinstance(answer, RequestRefused)
    assert answer.limit == "user_subscriptions_max"
    desk.later(10.0)
    renewed(desk, link, first.id)


def test_x21_one_that_is_forgotten_to_make_room_for_others_is_refused_like_any_other() -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=1, sweep_s=None))
    link = desk.attach()
    first = desk.subscribed(link, "A == 1")
    desk.ask(link, Unsubscribe(1, first.id))
    desk.subscribed(link, "A == 2", lifetime_s=10.0)
    desk.later(10.0)
    answer = desk.ask(link, Renew(1, first.id, None))
    assert isinstance(answer, RequestRefused)
    assert "no subscription" in answer.reason


def test_expired_ones_of_another_session_do_not_count() -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=1, sweep_s=None))
    desk.subscribed(desk.attach(), "A == 1", lifetime_s=10.0)
    desk.later(10.0)
    desk.subscribed(desk.attach(device="desk", session="work"), "A == 2")
