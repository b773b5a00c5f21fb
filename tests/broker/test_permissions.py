"""Permissions by subject, and subscriptions to every subject."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig, Role
from wanderbus.protocol import (
    Done,
    Notify,
    Publish,
    PublishAccepted,
    PublishRefused,
    RequestRefused,
    SubscriptionEnded,
    Unsubscribe,
)


def subscribe(desk: Desk, link: int, subject: str, expression: str = "") -> RequestRefused | None:
    answer = desk.subscribe(link, expression, subject=subject)
    return answer if isinstance(answer, RequestRefused) else None


@pytest.fixture
def desk() -> Desk:
    allowed = {BOB: ("Tr*", "News"), "*": ("News",)}
    return Desk(BrokerConfig(may_publish=allowed, may_subscribe=allowed))


def test_a_publish_that_is_not_allowed_is_refused_by_a_line_that_names_the_subject(desk: Desk) -> None:
    alice, bob = desk.attach(ALICE), desk.attach(BOB)
    before = len(desk.log)
    desk.send(alice, Publish(1, Event("Trade", {})), Publish(2, Event("News", {})))
    desk.send(bob, Publish(1, Event("Trade", {})), Publish(2, Event("trade", {})))
    (refused,) = desk.received(alice, PublishRefused)
    assert refused.reason == f"{ALICE} may not publish 'Trade'; the broker's may_publish allows News"
    (refused,) = desk.received(bob, PublishRefused)
    assert refused.reason == f"{BOB} may not publish 'trade'; the broker's may_publish allows Tr*, News"
    assert len(desk.received(alice, PublishAccepted)) == len(desk.received(bob, PublishAccepted)) == 1
    assert len(desk.log) == before + 2


def test_a_subscription_that_is_not_allowed_is_refused(desk: Desk) -> None:
    alice, bob = desk.attach(ALICE), desk.attach(BOB)
    refused = subscribe(desk, alice, "Trade")
    assert refused is not None
    assert refused.reason == f"{ALICE} may not subscribe to 'Trade'; the broker's may_subscribe allows News"
    assert subscribe(desk, bob, "Trade") is None
    refused = subscribe(desk, bob, "*")
    assert refused is not None
    assert "may not subscribe to '*'" in refused.reason


def test_without_permissions_everything_is_allowed() -> None:
    desk = Desk()
    alice = desk.attach(ALICE)
    assert subscribe(desk, alice, "*") is None
    desk.send(alice, Publish(1, Event("Trade", {})))
    assert len(desk.received(alice, PublishAccepted)) == 1


@pytest.mark.parametrize("together", [False, True])
def test_a_star_is_every_subject_and_the_expression_still_holds(together: bool) -> None:
    desk = Desk()
    alice, bob = desk.attach(ALICE), desk.attach(BOB)
    assert subscribe(desk, alice, "*", "n > 1") is None
    events = [Publish(n, Event(subject, {"n": n})) for n, subject in enumerate(("Trade", "News", "Sport", "Trade"), 1)]
    for several in [events] if together else [[each] for each in events]:
        desk.send(bob, *several)
    assert len(desk.received(alice, Notify)) == 3


def test_a_star_stays_through_a_restart_and_ends_with_its_subscription() -> None:
    desk = Desk()
    alice = desk.attach(ALICE)
    subscribe(desk, alice, "*")
    desk.start()
    alice, bob = desk.attach(ALICE), desk.attach(BOB)
    desk.send(bob, Publish(1, Event("Trade", {})))
    assert len(desk.received(alice, Notify)) == 1


def test_a_user_ends_any_own_subscription_from_operations_and_its_devices_are_notified() -> None:
    desk = Desk()
    alice = desk.attach(ALICE)
    subscription = desk.subscribed(alice)
    for user, session in ((BOB, "operations"), (ALICE, "work")):
        link = desk.attach(user, "other", session=session)
        assert desk.ask(link, Unsubscribe(1, subscription.id)) == Done(1, ())
        assert desk.received(alice, SubscriptionEnded) == []
        desk.close(link)
    asking = desk.attach(ALICE, "asking", session="operations")
    assert desk.ask(asking, Unsubscribe(1, subscription.id)) == Done(1, ())
    (ended,) = desk.received(alice, SubscriptionEnded)
    assert (ended.subscription.id, ended.reason) == (subscription.id, "unsubscribed")


@pytest.mark.parametrize("role", ["operator", "administrator"])
def test_an_administrator_ends_the_subscriptions_of_others_and_an_operator_does_not(role: Role) -> None:
    desk = Desk(BrokerConfig(roles={BOB: role}))
    alice = desk.attach(ALICE)
    subscription = desk.subscribed(alice)
    assert desk.ask(desk.attach(BOB, session="operations"), Unsubscribe(1, subscription.id)) == Done(1, ())
    reasons = [ended.reason for ended in desk.received(alice, SubscriptionEnded)]
    assert reasons == (["unsubscribed"] if role == "administrator" else [])
