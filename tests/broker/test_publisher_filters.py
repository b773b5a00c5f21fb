"""Filters for publishing agents, and the answers of subscriptions that wait for them (SPEC N-01, N-02, N-03)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus import filters
from wanderbus.broker.interest import subject_filter
from wanderbus.broker.interest.publisher_filters import PAUSE_LEASES, SUBJECTS_MAX
from wanderbus.broker.sessions.handover_messages import FenceSession
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Attach,
    ConfirmFilters,
    Done,
    Filters,
    Inspect,
    Kick,
    Listing,
    ReleaseFilters,
    RequestFilters,
    Subscribe,
    Unsubscribe,
)
from wanderbus.subscription import PATTERN

LEASE_S = 10.0


@pytest.fixture
def desk() -> Desk:
    return Desk(BrokerConfig(sweep_s=None, roles={ALICE: "operator"}))


def publisher(desk: Desk, user: str = BOB, device: str = "sensor", *, epoch: int = 1) -> int:
    """The link of an agent that filters."""
    link = desk.open(user, device)
    desk.send(link, Attach(epoch, "default", None, True, is_filtering=True))
    return link


def requested(desk: Desk, link: int, number: int = 1, subject: str = SUBJECT, *, confirms: bool = True) -> Filters:
    """Request filters, and return the answer, which is confirmed."""
    desk.send(link, RequestFilters(number, subject))
    answer = desk.received(link, Filters)[-1]
    assert answer.number == number
    if confirms:
        desk.send(link, ConfirmFilters(subject, answer.version))
    return answer


def wants(answer: Filters, n: int) -> bool:
    """Return whether the filters let an event through."""
    event = Event(answer.subject, {"N": n})
    return answer.expressions is None or any(filters.parse(each).matches(event) for each in answer.expressions)


def subscribe(desk: Desk, link: int, request: int, expression: str = "", **options: Any) -> None:
    """Send a request for a subscription."""
    desk.send(link, Subscribe(request, options.pop("subject", SUBJECT), expression, None, (), False, **options))


def done(desk: Desk, link: int) -> list[int]:
    """The requests that were answered on a link."""
    return [each.request for each in desk.received(link, Done)]


def test_filters_are_those_of_all_subscriptions_to_the_subject(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    assert requested(desk, bob).expressions == ()
    for number, (subject, expression) in enumerate([(SUBJECT, "N < 3"), ("*", "N == 7"), ("Alarm", "N == 5")], 10):
        subscribe(desk, alice, number, expression, subject=subject)
        desk.send(bob, ConfirmFilters(SUBJECT, desk.received(bob, Filters)[-1].version))
    answer = requested(desk, bob, 2)
    assert [n for n in range(10) if wants(answer, n)] == [0, 1, 2, 7]
    assert answer.lease_s == LEASE_S


def test_patterns_are_among_the_filters(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    text = f"pattern pair match A: {SUBJECT} (N == 1) then B: Alarm (N == 2) within 10 seconds"
    subscribe(desk, alice, 1, text, subject="", language=PATTERN)
    assert [n for n in range(4) if wants(requested(desk, bob), n)] == [1]


def test_a_wider_subscription_is_answered_once_the_agent_has_confirmed(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    subscribe(desk, alice, 1, "N == 1")
    pushed = desk.received(bob, Filters)[-1]
    assert pushed.number == 0
    assert wants(pushed, 1)
    assert done(desk, alice) == []
    desk.send(bob, ConfirmFilters(SUBJECT, pushed.version - 1))
    assert done(desk, alice) == []
    desk.send(bob, ConfirmFilters(SUBJECT, pushed.version))
    assert done(desk, alice) == [1]


def test_a_repeated_subscription_waits_too(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    subscribe(desk, alice, 1, "N == 1")
    subscribe(desk, alice, 2, "N == 1")
    assert done(desk, alice) == []
    desk.send(bob, ConfirmFilters(SUBJECT, desk.received(bob, Filters)[-1].version))
    assert done(desk, alice) == [1, 2]


def test_a_covered_subscription_and_one_of_another_subject_wait_for_nobody(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    subscribe(desk, alice, 1, "N < 5")
    requested(desk, bob)
    subscribe(desk, alice, 2, "N < 3")
    subscribe(desk, alice, 3, "N > 7", subject="Alarm")
    assert done(desk, alice) == [1, 2, 3]
    assert len(desk.received(bob, Filters)) == 1


def test_an_agent_is_sent_one_change_at_a_time(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    for number in (1, 2, 3):
        subscribe(desk, alice, number, f"N == {number}")
    assert len(desk.received(bob, Filters)) == 2
    desk.send(bob, ConfirmFilters(SUBJECT, desk.received(bob, Filters)[-1].version))
    assert done(desk, alice) == [1]
    last = desk.received(bob, Filters)[-1]
    assert [n for n in range(5) if wants(last, n)] == [1, 2, 3]
    desk.send(bob, ConfirmFilters(SUBJECT, last.version))
    assert done(desk, alice) == [1, 2, 3]


def test_a_subscription_that_ends_narrows_the_next_answer_only(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    first = desk.subscribed(alice, "N == 1")
    desk.subscribed(alice, "N == 2")
    requested(desk, bob)
    desk.send(alice, Unsubscribe(5, first.id))
    assert len(desk.received(bob, Filters)) == 1
    assert [n for n in range(4) if wants(requested(desk, bob, 2), n)] == [2]


def test_an_agent_that_does_not_confirm_delays_an_answer_until_its_lease_ends(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    desk.later(1.0)
    requested(desk, bob)
    desk.later(4.0)
    desk.close(bob)
    subscribe(desk, alice, 1, "N == 1")
    desk.later(LEASE_S - 4.1)
    assert done(desk, alice) == []
    desk.later(0.2)
    assert done(desk, alice) == [1]


def test_an_agent_that_let_others_wait_gets_no_filters_for_a_while(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    subscribe(desk, alice, 1, "N == 1")
    desk.send(bob, RequestFilters(2, SUBJECT))
    assert [each.number for each in desk.received(bob, Filters)] == [1, 0]
    desk.later(LEASE_S)
    assert done(desk, alice) == [1]
    deferred = desk.received(bob, Filters)[-1]
    assert (deferred.number, deferred.expressions) == (2, None)
    assert requested(desk, bob, 3).expressions is None
    desk.later(PAUSE_LEASES * LEASE_S)
    assert requested(desk, bob, 4).expressions is not None


def test_a_request_meanwhile_is_answered_after_the_confirmation(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    subscribe(desk, alice, 1, "N == 1")
    desk.send(bob, RequestFilters(2, SUBJECT))
    desk.send(bob, ConfirmFilters(SUBJECT, desk.received(bob, Filters)[-1].version))
    assert desk.received(bob, Filters)[-1].number == 2
    assert done(desk, alice) == [1]


def test_an_agent_that_attaches_again_has_no_filters(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    publisher(desk, epoch=1)
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == [1]


def test_another_life_of_a_device_does_not_end_the_lease_of_the_former(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    publisher(desk, epoch=2)
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == []
    desk.later(LEASE_S)
    assert done(desk, alice) == [1]


def test_an_agent_that_releases_its_filters_delays_nobody(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    requested(desk, bob)
    desk.send(bob, ReleaseFilters())
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == [1]


@pytest.mark.parametrize("with_rows", [False, True])
def test_leases_of_the_previous_life_count_after_a_restart(desk: Desk, with_rows: bool) -> None:
    requested(desk, publisher(desk))
    if with_rows:
        desk.save()
    desk.restart(with_rows=with_rows)
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == []
    desk.later(LEASE_S)
    assert done(desk, alice) == [1]


def test_agents_that_attach_again_after_a_restart_delay_nobody(desk: Desk) -> None:
    requested(desk, publisher(desk))
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1")
    publisher(desk)
    assert done(desk, alice) == [1]


def test_another_life_of_a_device_after_a_restart_does_not_end_the_lease_of_the_former(desk: Desk) -> None:
    requested(desk, publisher(desk, epoch=1))
    desk.restart()
    alice = desk.attach()
    publisher(desk, epoch=2)
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == []
    desk.later(LEASE_S)
    assert done(desk, alice) == [1]


def kick(desk: Desk, agent: int) -> None:
    """Remove the device of ``agent`` from its session, of which it notices nothing."""
    remover = desk.attach(BOB, "laptop")
    desk.send(remover, Kick(1, BOB, "sensor", True))
    desk.close(agent)


def fence(desk: Desk, agent: int) -> None:
    """Give the session of ``agent`` to another server, of which the agent notices nothing."""
    desk.give(FenceSession(BOB, "default", 2))
    desk.close(agent)


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("remove", [kick, fence])
def test_the_lease_of_a_removed_device_counts_after_a_restart(
    desk: Desk, remove: Callable[[Desk, int], None], with_rows: bool
) -> None:
    bob = publisher(desk)
    requested(desk, bob)
    remove(desk, bob)
    desk.later(1.0)
    if with_rows:
        desk.save()
    desk.restart(with_rows=with_rows)
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == []
    desk.later(LEASE_S - 1.0)
    assert done(desk, alice) == [1]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_removed_device_that_attaches_in_the_same_life_has_given_up_its_lease(desk: Desk, epoch: int) -> None:
    bob = publisher(desk, epoch=1)
    requested(desk, bob)
    kick(desk, bob)
    desk.attach(BOB, "sensor", epoch=epoch)
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == ([1] if epoch == 1 else [])


def test_the_lease_of_a_removed_device_that_has_run_out_delays_nobody_after_a_restart(desk: Desk) -> None:
    bob = publisher(desk)
    requested(desk, bob)
    kick(desk, bob)
    desk.later(LEASE_S)
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == [1]


def test_a_restart_delays_nobody_if_no_agent_filters(desk: Desk) -> None:
    desk.attach(BOB, "sensor")
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1")
    assert done(desk, alice) == [1]


@pytest.mark.parametrize(
    "config",
    [
        {"publisher_filter_lease_s": 0.0},
        {"spark_subjects": (SUBJECT,)},
        {"may_publish": {BOB: ("Alarm",)}},
    ],
    ids=lambda config: next(iter(config)),
)
def test_filters_that_are_refused_let_every_event_through(config: dict[str, Any]) -> None:
    desk = Desk(BrokerConfig(**config))
    answer = requested(desk, publisher(desk))
    assert (answer.expressions, answer.lease_s) == (None, 0.0)


def test_filters_of_too_many_subscriptions_let_every_event_through(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_filter, "SUBSCRIPTIONS_MAX", 3)
    alice, bob = desk.attach(), publisher(desk)
    for number in range(3):
        subscribe(desk, alice, number, f"N == {number}")
    assert requested(desk, bob).expressions is not None
    subscribe(desk, alice, 4, "N == 4")
    pushed = desk.received(bob, Filters)[-1]
    assert pushed.expressions is None
    assert 4 not in done(desk, alice)
    desk.send(bob, ConfirmFilters(SUBJECT, pushed.version))
    assert 4 in done(desk, alice)
    subscribe(desk, alice, 5, "N == 5")
    assert 5 in done(desk, alice)


def test_filters_that_are_too_long_let_every_event_through(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_filter, "EXPRESSIONS_CHARACTERS_MAX", 20)
    alice, bob = desk.attach(), publisher(desk)
    subscribe(desk, alice, 1, 'Name == "a name that is longer than twenty characters"')
    assert requested(desk, bob).expressions is None


def test_an_agent_gets_filters_of_a_bounded_number_of_subjects(desk: Desk) -> None:
    bob = publisher(desk)
    for number in range(SUBJECTS_MAX):
        requested(desk, bob, number + 1, f"subject {number}")
    assert requested(desk, bob, 1_000, "one more").expressions is None
    assert requested(desk, bob, 1_001, "subject 0").expressions is not None


def test_nothing_is_kept_of_agents_that_are_gone(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    subscription = desk.subscribed(alice)
    requested(desk, bob)
    desk.send(alice, Unsubscribe(7, subscription.id))
    desk.close(bob)
    desk.later(LEASE_S)
    desk.give()
    desk.broker._filters.sweep()
    filters = desk.broker._filters
    assert not filters._wanted._by_subject
    assert not any(vars(filters)[name] for name in ("_filters", "_subjects", "_links_of"))
    assert not filters.waiting


def test_counts_of_the_phases_are_shown_to_operators(desk: Desk) -> None:
    alice, bob = desk.attach(), publisher(desk)
    desk.subscribed(alice, "N == 1")
    desk.send(bob, RequestFilters(1, SUBJECT, 5, 4), ReleaseFilters(2, 3))
    desk.publish(bob, 1)
    desk.publish(bob, 2)
    desk.send(alice, Inspect(9, "filtering", None))
    (listing,) = desk.received(alice, Listing)
    counts = {row["phase"]: (row["examined"], row["held_back"]) for row in listing.rows}
    assert counts == {"publisher": (7, 6), "channel": (2, 1), "destination": (0, 0)}
