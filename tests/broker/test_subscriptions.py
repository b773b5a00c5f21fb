"""Submitting, asking, renewing, restricting, ending; expiry (SPEC A-04, A-05, A-11, G-04 to G-09, H-06, X17, X20)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, START_US, SUBJECT, Desk
from wanderbus import filters, records
from wanderbus.broker.subscriptions import EXPIRED_PER_PUBLISH_MAX
from wanderbus.event import Event
from wanderbus.filters import xml
from wanderbus.limits import MESSAGE_BYTES_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Advertise,
    DeclareSchema,
    Done,
    Publish,
    PublishRefused,
    Query,
    Renew,
    RequestRefused,
    Restrict,
    Subscribe,
    Unsubscribe,
)
from wanderbus.subscription import Custom, Daily, Frequency, Interval, QueuePolicy, Restriction, Subscription

ALL_KINDS: tuple[Restriction, ...] = (
    Daily("16:00", "17:00", "America/Sao_Paulo"),
    Frequency(15.0, "away"),
    Interval(START_US, START_US + 5_000_000),
)


def query(desk: Desk, link: int) -> list[Subscription]:
    answer = desk.ask(link, Query(900))
    assert isinstance(answer, Done)
    return list(answer.subscriptions)


@pytest.mark.parametrize("restart", [False, True])
def test_a04_h01_every_field_survives_submit_and_query(desk: Desk, restart: bool) -> None:
    link = desk.attach()
    desk.later(2.0)
    submitted = desk.subscribed(
        link,
        "(Stock == PETR4) and (Price < 25)",
        subject="StockExchange",
        lifetime_s=60.0,
        restrictions=ALL_KINDS,
        this_device_only=True,
        queue=QueuePolicy(7, 1_000, 60.0, "drop_newest"),
    )
    assert submitted == Subscription(
        id=str(desk.broker.state.identity(len(desk.log) - 1)),
        owner=ALICE,
        session="default",
        subject="StockExchange",
        expression="(Stock == PETR4) and (Price < 25)",
        expires_us=START_US + 62_000_000,
        restrictions=ALL_KINDS,
        device="phone",
        queue=QueuePolicy(7, 1_000, 60.0, "drop_newest"),
    )
    if restart:
        desk.save()
        desk.restart(with_rows=True)
    assert query(desk, desk.attach()) == [submitted]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("language", "expression"),
    [
        ("eci", "Stock prefix PETR and Price < 25"),
        ("cesql", "Stock LIKE 'PETR%' AND LENGTH(Stock) = 5 AND Price < 25"),
        ("xml", xml.write(filters.parse("Stock prefix PETR and Price < 25").root)),
    ],
)
def test_u04_a_subscription_in_any_language(desk: Desk, language: str, expression: str, restart: bool) -> None:
    link = desk.attach()
    submitted = desk.subscribed(link, expression, language=language)
    assert (submitted.expression, submitted.language) == (expression, language)
    if restart:
        desk.restart()
        link = desk.attach()
    assert query(desk, link) == [submitted]
    publisher = desk.attach(BOB)
    desk.publish(publisher, 1, Stock="PETR4", Price=25)
    desk.publish(publisher, 2, Stock="PETR4", Price=24)
    assert desk.stream(link) == [2]


def test_an_expression_that_another_language_reads_is_refused(desk: Desk) -> None:
    answer = desk.subscribe(desk.attach(), "Price < 25 XOR TRUE", language="eci")
    assert isinstance(answer, RequestRefused)
    assert answer.position == 11


def test_a_language_that_there_is_not_is_refused(desk: Desk) -> None:
    link = desk.attach()
    answer = desk.subscribe(link, "Price < 25", language="sql")
    assert isinstance(answer, RequestRefused)
    assert (answer.reason, answer.position) == ("there is no filter language 'sql'; use one of eci, cesql, xml", None)
    assert query(desk, link) == []


def test_the_same_text_in_another_language_is_another_subscription(desk: Desk) -> None:
    link = desk.attach()
    first = desk.subscribed(link, "Price < 25")
    assert desk.subscribed(link, "Price < 25", language="cesql").id != first.id


def test_a05_keys_hold_users_and_no_addresses(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link)
    assert list(dict(desk.broker.state.sessions.items())) == [f"{ALICE}/default"]


def test_subscribing_twice_gives_the_subscription_that_is_there(desk: Desk) -> None:
    """A request is repeated after every reconnection: it must not add up (DESIGN 5.2)."""
    link = desk.attach()
    first = desk.subscribed(link, "A == 1")
    assert desk.subscribed(desk.attach(), "A == 1") == first
    assert len(desk.written(records.Subscribed)) == 1
    assert query(desk, desk.attach()) == [first]


def test_subscribing_again_with_a_lifetime_renews(desk: Desk) -> None:
    link = desk.attach()
    first = desk.subscribed(link, "A == 1", lifetime_s=10.0)
    desk.later(5.0)
    again = desk.subscribed(link, "A == 1", lifetime_s=10.0)
    assert again.id == first.id
    assert again.expires_us == START_US + 15_000_000
    desk.later(7.0)
    assert query(desk, link) == [again]


@pytest.mark.parametrize(
    "other",
    [
        {"expression": "A == 2"},
        {"subject": "Weather"},
        {"queue": QueuePolicy(5)},
        {"this_device_only": True},
        {"restrictions": (Frequency(1.0),)},
    ],
)
def test_subscriptions_that_differ_are_two(desk: Desk, other: dict[str, Any]) -> None:
    link = desk.attach()
    first = desk.subscribed(link, expression="A == 1")
    second = desk.subscribed(link, **({"expression": "A == 1"} | other))
    assert query(desk, link) == [first, second]


def test_g05_an_event_that_finds_many_expired_subscriptions_notifies_none(desk: Desk) -> None:
    """More than are ended at once."""
    link, bob = desk.attach(), desk.attach(BOB)
    for n in range(40):
        desk.subscribed(link, f"N > -{n + 1}", lifetime_s=10.0)
    desk.now += 11.0
    desk.publish(bob, 1)
    assert desk.stream(link) == []


def test_g05_one_millisecond_after_expiry_nothing_is_notified_and_one_before_it_is(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, lifetime_s=10.0)
    desk.later(9.999)
    desk.publish(link, 1)
    desk.later(0.002)
    desk.publish(link, 2)
    assert desk.stream(link) == [1]


def test_g05_expiry_counts_while_the_owner_is_away_and_the_broker_is_down(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, lifetime_s=10.0)
    desk.close(link)
    desk.later(10.0)
    desk.restart()
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    assert desk.stream(desk.attach()) == []


@pytest.mark.parametrize("n", [1, -1], ids=["matches", "does not match"])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "in one step with another"])
def test_g06_the_next_publish_removes_an_expired_subscription(desk: Desk, n: int, others: int) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, "N > 0", lifetime_s=1.0)
    lasting = desk.subscribed(link, "N > 0", subject="Other", lifetime_s=1000.0)
    desk.later(5.0)
    assert subscription.id in desk.broker.state.subscriptions
    desk.send(link, *[Publish(number, Event(SUBJECT, {"N": n})) for number in range(1, 2 + others)])
    assert [identity for identity, _ in desk.broker.state.subscriptions.items()] == [lasting.id]
    assert [(r.subscription, r.reason) for r in desk.written(records.Unsubscribed)] == [(subscription.id, "expired")]
    assert desk.stream(link) == []


def test_g06_one_publish_ends_no_more_than_its_bound_and_the_sweep_the_rest(desk: Desk) -> None:
    link = desk.attach()
    for n in range(3 * EXPIRED_PER_PUBLISH_MAX):
        desk.subscribed(link, f"N == {1000 + n}", lifetime_s=1.0)
    desk.later(5.0)
    for left in (2, 1):
        desk.publish(link, -1)
        assert len(desk.broker.state.subscriptions) == left * EXPIRED_PER_PUBLISH_MAX
    desk.later(60.0)
    assert not list(desk.broker.state.subscriptions.items())


def test_g06_a_query_shows_no_expired_subscription(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "A == 1", lifetime_s=1.0)
    lasting = desk.subscribed(link, "A == 2")
    desk.later(1.0)
    assert query(desk, link) == [lasting]


@pytest.mark.parametrize("ended", ["expired", "unsubscribed"])
def test_g07_notifications_queued_before_the_end_are_delivered(desk: Desk, ended: str) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, lifetime_s=10.0)
    desk.close(link)
    bob = desk.attach(BOB)
    desk.publish(bob, 1)
    if ended == "unsubscribed":
        other = desk.attach(device="desk")
        assert desk.ask(other, Unsubscribe(1, subscription.id)) == Done(1, ())
    else:
        desk.later(20.0)
    desk.publish(bob, 2)
    assert subscription.id not in desk.broker.state.subscriptions
    back = desk.attach()
    assert desk.stream(back) == [1]
    desk.take(back, 1)


def test_unsubscribing_is_done_also_when_it_had_ended(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link)
    assert desk.ask(link, Unsubscribe(5, subscription.id)) == Done(5, ())
    assert desk.ask(link, Unsubscribe(6, subscription.id)) == Done(6, ())
    desk.publish(link, 1)
    assert desk.stream(link) == []


def test_a11_renew_gives_a_new_expiry_or_none(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, lifetime_s=10.0)
    desk.later(6.0)
    answer = desk.ask(link, Renew(1, subscription.id, 10.0))
    assert isinstance(answer, Done)
    assert answer.subscriptions[0].expires_us == START_US + 16_000_000
    desk.later(6.0)
    desk.publish(link, 1)
    answer = desk.ask(link, Renew(2, subscription.id, None))
    assert isinstance(answer, Done)
    assert answer.subscriptions[0].expires_us is None
    desk.later(1e6)
    desk.publish(link, 2)
    assert desk.stream(link) == [1, 2]


def test_h10_restrict_replaces_the_restrictions(desk: Desk) -> None:
    link = desk.attach()
    subscription = desk.subscribed(link, restrictions=(Frequency(1000.0),))
    desk.publish(link, 1)
    desk.publish(link, 2)
    answer = desk.ask(link, Restrict(1, subscription.id, ()))
    assert isinstance(answer, Done)
    assert answer.subscriptions[0].restrictions == ()
    desk.publish(link, 3)
    assert desk.stream(link) == [1, 3]


def test_a_renewed_or_restricted_subscription_that_has_ended_is_refused(desk: Desk) -> None:
    link = desk.attach()
    for message in (Renew(1, "wb-99", 5.0), Restrict(2, "wb-99", ())):
        answer = desk.ask(link, message)
        assert isinstance(answer, RequestRefused)
        assert "no subscription 'wb-99'" in answer.reason


def test_another_user_cannot_touch_or_see_a_subscription(desk: Desk) -> None:
    alice = desk.attach()
    subscription = desk.subscribed(alice)
    for intruder in (desk.attach(BOB), desk.attach(device="other", session="work")):
        assert query(desk, intruder) == []
        assert isinstance(desk.ask(intruder, Renew(1, subscription.id, 1.0)), RequestRefused)
        assert isinstance(desk.ask(intruder, Restrict(2, subscription.id, (Frequency(1e9),))), RequestRefused)
        assert desk.ask(intruder, Unsubscribe(3, subscription.id)) == Done(3, ())
    assert query(desk, alice) == [subscription]


def test_g03_g08_a_wiped_agent_finds_its_subscriptions(desk: Desk) -> None:
    link = desk.attach()
    subscriptions = [desk.subscribed(link, f"A == {n}") for n in range(3)]
    desk.close(link)
    assert query(desk, desk.attach(epoch=2)) == subscriptions


def test_g09_x20_discard_drops_subscriptions_and_queue_but_not_those_bound_elsewhere(desk: Desk) -> None:
    phone = desk.attach()
    desk.subscribed(phone, "N > 0")
    own = desk.subscribed(phone, "N > 1", this_device_only=True)
    laptop = desk.attach(device="laptop")
    elsewhere = desk.subscribed(laptop, "N > 2", this_device_only=True)
    desk.close(phone)
    desk.publish(laptop, 5)
    again = desk.attach(epoch=2, keep=False)
    assert query(desk, again) == [elsewhere]
    assert desk.stream(again) == []
    assert own.id not in desk.broker.state.subscriptions
    assert {record.reason for record in desk.written(records.Unsubscribed)} == {"discarded"}
    desk.publish(laptop, 9)
    assert desk.stream(again) == []
    assert desk.stream(laptop) == [5, 9]


REFUSALS: list[tuple[dict[str, Any], str, str | None, int | None]] = [
    ({"expression": "A == "}, "expected a value", None, 5),
    ({"subject": ""}, "subject", None, None),
    ({"subject": "s" * 257}, "subject", None, None),
    ({"queue": QueuePolicy(0)}, "queue.notifications_max", None, None),
    ({"queue": QueuePolicy(-1)}, "queue.notifications_max", None, None),
    ({"queue": QueuePolicy(bytes_max=0)}, "queue.bytes_max", None, None),
    ({"queue": QueuePolicy(age_max_s=0.0)}, "queue.age_max_s", None, None),
    ({"queue": QueuePolicy(age_max_s=-5.0)}, "queue.age_max_s", None, None),
    ({"queue": QueuePolicy(age_max_s=float("inf"))}, "queue.age_max_s", None, None),
    ({"queue": QueuePolicy(age_max_s=float("nan"))}, "queue.age_max_s", None, None),
    ({"lifetime_s": 0.0}, "lifetime", None, None),
    ({"lifetime_s": float("nan")}, "lifetime", None, None),
    ({"lifetime_s": float("inf")}, "lifetime", None, None),
    ({"restrictions": (Frequency(1.0), Frequency(2.0))}, "one frequency", None, None),
    ({"restrictions": (Frequency(0.0),)}, "period", None, None),
    ({"restrictions": (Frequency(float("inf")),)}, "period", None, None),
    ({"restrictions": (Frequency(float("nan")),)}, "period", None, None),
    ({"restrictions": (Interval(5, 5),)}, "interval", None, None),
    ({"restrictions": (Daily("25:00", "26:00"),)}, "invalid time of day", None, None),
    ({"restrictions": (Daily("10:00", "10:00"),)}, "two different", None, None),
    ({"restrictions": (Daily("10:00+01:00", "11:00"),)}, "zone is a separate field", None, None),
    ({"restrictions": (Daily("10:00", "11:00", "Mars/Olympus"),)}, "unknown time zone", None, None),
    ({"restrictions": (Daily("10:00", "11:00", "../../../etc/passwd"),)}, "unknown time zone", None, None),
    ({"restrictions": (Daily("10:00", "11:00", "\x01" * 20_000),)}, "unknown time zone", None, None),
    ({"restrictions": (Daily("16", "17:00"),)}, "invalid time of day", None, None),
    ({"restrictions": (Daily("16:00:00.5", "17:00"),)}, "invalid time of day", None, None),
    ({"restrictions": (Daily("1600", "17:00"),)}, "invalid time of day", None, None),
    ({"restrictions": (Daily("24:00", "17:00"),)}, "invalid time of day", None, None),
    ({"restrictions": (Daily("16:00", "17:00", weekdays=(0,)),)}, "1 for Monday to 7", None, None),
    ({"restrictions": (Daily("16:00", "17:00", weekdays=(8,)),)}, "1 for Monday to 7", None, None),
    ({"restrictions": (Daily("16:00", "17:00", weekdays=(1,) * 8),)}, "1 for Monday to 7", None, None),
    ({"restrictions": (Daily("16:00", "17:00", ""),)}, "unknown time zone", None, None),
    ({"restrictions": (Custom("moon", {}),)}, "'moon'", None, None),
    ({"restrictions": (Interval(1, 2),) * 65}, "64 restrictions", "restrictions_max", None),
    ({"expression": f"A == '{chr(0x1F600) * 9_000}'"}, "limit is 32768", "subscription_bytes_max", None),
]


@pytest.mark.parametrize(
    ("options", "reason", "limit", "position"), REFUSALS, ids=[str(i) for i in range(len(REFUSALS))]
)
def test_h06_a_refusal_has_reason_position_and_limit(
    desk: Desk, options: dict[str, Any], reason: str, limit: str | None, position: int | None
) -> None:
    link = desk.attach()
    answer = desk.subscribe(link, **options)
    assert isinstance(answer, RequestRefused)
    assert reason in answer.reason
    assert (answer.limit, answer.position) == (limit, position)
    assert query(desk, link) == []


def test_user_subscriptions_max_is_named_in_its_refusal() -> None:
    desk = Desk(BrokerConfig(user_subscriptions_max=2))
    link = desk.attach()
    first = desk.subscribed(link, "A == 1", lifetime_s=5.0)
    desk.subscribed(link, "A == 2")
    answer = desk.subscribe(link, "A == 3")
    assert isinstance(answer, RequestRefused)
    assert answer.limit == "user_subscriptions_max"
    assert desk.subscribed(link, "A == 1", lifetime_s=5.0).id == first.id
    desk.later(6.0)
    desk.subscribed(link, "A == 3")


def test_g08_a_long_list_comes_in_parts_that_fit_a_message() -> None:
    desk = Desk(BrokerConfig(user_filter_characters_per_s=1e6))
    link = desk.attach()
    subscriptions = [desk.subscribed(link, f"A == '{'x' * 12_000}{n}'") for n in range(10)]
    desk.out[link].clear()
    desk.send(link, Query(7))
    parts = desk.received(link, Done)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert len(parts) == 5
    assert [s for part in parts for s in part.subscriptions] == subscriptions
    assert sum(len(s.expression) for s in subscriptions) > MESSAGE_BYTES_MAX


@pytest.mark.parametrize("subject", ["Price.*", "Price.>", "Price/#", "a/+/b"])
def test_a03_j13_wildcards_are_refused_everywhere_and_never_literal(subject: str) -> None:
    desk = Desk(BrokerConfig(roles={ALICE: "administrator"}))
    link = desk.attach()
    pattern = "pattern late by Tail match A: {} then B: Trade within 2 hours emit {}"
    for request in (
        Subscribe(1, subject, "", None, (), False),
        Subscribe(1, "", pattern.format("Trade", f'"{subject}"'), None, (), False, language="pattern"),
        Subscribe(1, "", pattern.format(f'"{subject}"', "late"), None, (), False, language="pattern"),
        Advertise(1, subject, ""),
        DeclareSchema(1, subject, ()),
    ):
        answer = desk.ask(link, request)
        assert isinstance(answer, RequestRefused)
        assert "parent subject" in answer.reason, request
    desk.send(link, Publish(1, Event(subject, {})))
    (refused,) = desk.received(link, PublishRefused)
    assert "parent subject" in refused.reason
