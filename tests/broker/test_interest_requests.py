"""A subscription is answered when it counts at every leader of its subjects (SPEC J-10, K-02)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import ALICE, BOB
from wanderbus.broker.messages import ArrivalMatched, InterestEffective, LinkOpened
from wanderbus.broker.servers.server_users import server_user
from wanderbus.channels.merging import Merging
from wanderbus.protocol import Attach, Done, NotifyServer, Renew, Subscribe, Unsubscribe
from wanderbus.records import Arrived

PATTERN = f"pattern pair match A: {NORTHERN} (N == 1) then B: Trade (N == 2) within 10 seconds"


@pytest.fixture
def desk() -> AccessDesk:
    return AccessDesk()


def subscribe(request: int, expression: str = "", subject: str = NORTHERN, **options: Any) -> Subscribe:
    """A request for a subscription that is read at once."""
    return Subscribe(request, subject, expression, None, (), False, reader=request, **options)


def done(desk: AccessDesk, link: int) -> list[int]:
    """The requests that were answered on a link."""
    return [each.request for each in desk.received(link, Done)]


def begun(desk: AccessDesk) -> list[str]:
    """The names of the subscriptions that began since the last call."""
    return [name for change in desk.changes() for name in change.added]


def counts(desk: AccessDesk, *names: str) -> None:
    """Report subscriptions as counting at all leaders."""
    desk.give(InterestEffective(names))


def test_it_is_answered_when_effective(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1, "N > 1"))
    (change,) = desk.changes()
    ((name, entries),) = change.added.items()
    assert [(subject, interest.text) for subject, interest in entries] == [(NORTHERN, "N > 1")]
    assert done(desk, alice) == []
    counts(desk, name)
    assert done(desk, alice) == [1]
    counts(desk, name, "unknown")
    assert done(desk, alice) == [1]


def test_events_reach_it_before_it_is_answered_and_are_sent_when_it_is(desk: AccessDesk) -> None:
    alice = desk.attach(reads=False)
    desk.send(alice, subscribe(1))
    desk.arrives(1)
    assert desk.stream(alice) == []
    counts(desk, *begun(desk))
    assert desk.stream(alice) == [1]


def test_it_is_reported_once_it_is_durable(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.held = True
    desk.send(alice, subscribe(1))
    assert desk.changes() == []
    desk.sync()
    assert len(begun(desk)) == 1


def test_one_of_own_channels_alone_is_answered_at_once(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1, subject=OWN))
    assert desk.changes() == []
    assert done(desk, alice) == [1]


@pytest.mark.parametrize("subject", ["*", "Up", "Down"])
def test_one_to_every_subject_or_to_a_parent_or_child_has_to_count(desk: AccessDesk, subject: str) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1, subject=subject))
    assert done(desk, alice) == []
    counts(desk, *begun(desk))
    assert done(desk, alice) == [1]


def test_a_pattern_has_to_count_at_the_leaders_of_all_its_steps(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1, PATTERN, "pair", language="pattern"))
    (change,) = desk.changes()
    ((name, entries),) = change.added.items()
    assert [subject for subject, _ in entries] == [NORTHERN, OWN]
    counts(desk, name)
    assert done(desk, alice) == [1]


def test_a_repeated_request_waits_too_and_later_ones_do_not(desk: AccessDesk) -> None:
    alice, bob = desk.attach(), desk.attach(device="desk")
    desk.send(alice, subscribe(1))
    desk.send(bob, subscribe(2))
    assert done(desk, bob) == []
    counts(desk, *begun(desk))
    assert (done(desk, alice), done(desk, bob)) == ([1], [2])
    desk.send(bob, subscribe(3))
    assert done(desk, bob) == [2, 3]
    assert desk.changes() == []


def test_a_link_that_was_closed_meanwhile_gets_no_answer(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1))
    desk.close(alice)
    counts(desk, *begun(desk))
    assert done(desk, alice) == []


def test_its_end_is_reported_once_it_is_durable(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1))
    (name,) = begun(desk)
    counts(desk, name)
    identity = desk.received(alice, Done)[0].subscriptions[0].id
    desk.held = True
    desk.send(alice, Unsubscribe(2, identity))
    assert desk.changes() == []
    desk.sync()
    assert [change.removed for change in desk.changes()] == [(name,)]


def test_one_that_ends_before_it_counts_is_answered_and_nothing_is_kept(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1))
    (identity,) = desk.broker.state.sessions[f"{ALICE}/default"].subscriptions
    desk.send(alice, Unsubscribe(2, identity))
    assert done(desk, alice) == [1, 2]
    assert (desk.broker.diagnostics.waiting(), desk.broker._interest._reported) == ({}, {})


def test_one_that_is_renewed_after_its_end_does_not_count_because_its_former_life_does(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1))
    (former,) = begun(desk)
    (identity,) = desk.broker.state.sessions[f"{ALICE}/default"].subscriptions
    desk.send(alice, Unsubscribe(2, identity), Renew(3, identity, None))
    (name,) = begun(desk)
    counts(desk, former)
    assert done(desk, alice) == [1, 2]
    counts(desk, name)
    assert done(desk, alice) == [1, 2, 3]


def test_every_subscription_is_reported_after_a_restart(desk: AccessDesk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.send(alice, subscribe(1), subscribe(2, subject=OWN))
    desk.send(bob, subscribe(1, "N > 1"))
    counts(desk, *begun(desk))
    desk.restart()
    (first, second) = begun(desk)
    alice = desk.attach()
    desk.send(alice, subscribe(3))
    assert done(desk, alice) == []
    counts(desk, first)
    assert done(desk, alice) == [3]
    assert second


def test_subscriptions_of_servers_are_not_passed_on(desk: AccessDesk) -> None:
    desk.give(LinkOpened(50, server_user("east", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True), subscribe(1, subject="*"))
    assert desk.changes() == []
    assert done(desk, 50) == [1]
    desk.restart()
    assert desk.changes() == []


def test_an_arrival_is_for_users_alone_because_its_leader_sends_it_to_the_other_servers(desk: AccessDesk) -> None:
    desk.give(LinkOpened(50, server_user("east", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True), subscribe(1, subject="*"))
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.send(alice, subscribe(1, subject="*"))
    counts(desk, *begun(desk))
    desk.arrives(1)
    (record,) = desk.written(Arrived)
    assert [each.user for each in record.delivery.notified] == [ALICE]
    desk.publish(bob, 2, OWN)
    assert [each.id.origin for each in desk.received(50, NotifyServer)] == ["south"]


def test_the_layer_below_is_told_whether_an_arrival_matched_a_user_if_merging_adapts(desk: AccessDesk) -> None:
    desk.give(LinkOpened(50, server_user("east", "example.org"), "server", is_server=True))
    desk.send(50, Attach(1, "default", None, keep=True), subscribe(1, subject="*"))
    alice = desk.attach()
    desk.send(alice, subscribe(1, "N > 1"))
    desk.arrives(1)
    desk.arrives(2)
    desk.merging_by_subject[NORTHERN] = Merging("imperfect")
    desk.arrives(3)
    matched = [each for each in desk.collected if isinstance(each, ArrivalMatched)]
    assert matched == [ArrivalMatched("north", NORTHERN, False), ArrivalMatched("north", NORTHERN, True)]


def test_a_subscription_to_a_parent_gets_the_events_of_its_children(desk: AccessDesk) -> None:
    alice = desk.attach()
    desk.send(alice, subscribe(1, subject="Up"))
    counts(desk, *begun(desk))
    desk.arrives(1, "Down")
    desk.arrives(2, "Up")
    assert desk.stream(alice) == [1, 2]
