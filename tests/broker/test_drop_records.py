"""One record when several subscriptions drop the same numbers for the same reason (SPEC G-18, U-02)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.desk import BOB, SUBJECT, Desk
from tests.broker.test_queue_limits import SIZE, losses, publish, session_of
from wanderbus import records
from wanderbus.event import Event
from wanderbus.protocol import size_of
from wanderbus.subscription import QueuePolicy


def many(desk: Desk, count: int, policies: Sequence[QueuePolicy]) -> list[str]:
    """Alice has so many subscriptions with these bounds in turn, and goes."""
    link = desk.attach()
    identities = [
        desk.subscribed(link, f"N > {-each}", queue=policies[(each - 1) % len(policies)]).id
        for each in range(1, count + 1)
    ]
    desk.close(link)
    return identities


@pytest.mark.parametrize(
    "policy",
    [
        QueuePolicy(notifications_max=2),
        QueuePolicy(notifications_max=2, when_full="drop_newest"),
        QueuePolicy(bytes_max=2 * SIZE),
    ],
)
def test_u02_subscriptions_that_drop_the_same_for_the_same_reason_take_one_record(
    desk: Desk, policy: QueuePolicy
) -> None:
    identities = many(desk, 100, [policy])
    publish(desk, 5)
    dropped = desk.written(records.Dropped)
    assert [sorted(each.subscriptions) for each in dropped] == [sorted(identities)] * 3
    row = session_of(desk)
    assert (row.queued, sum(row.dropped.values())) == (200, 300)
    back = desk.attach()
    desk.later(1.0)
    gaps = losses(desk, back)
    assert sorted((loss.subscription, loss.count) for (loss,) in gaps) == [(each, 3) for each in sorted(identities)]


def test_u02_other_numbers_or_another_reason_take_another_record(desk: Desk) -> None:
    policies = [QueuePolicy(notifications_max=1), QueuePolicy(notifications_max=2), QueuePolicy(bytes_max=2 * SIZE)]
    identities = many(desk, 6, policies)
    publish(desk, 3)
    one, two, size = (sorted(identities[place::3]) for place in range(3))
    dropped = desk.written(records.Dropped)
    assert sorted((each.first, each.last, each.reason, sorted(each.subscriptions)) for each in dropped) == [
        (1, 1, "subscription.queue.bytes_max", size),
        (1, 1, "subscription.queue.notifications_max", one),
        (1, 1, "subscription.queue.notifications_max", two),
        (2, 2, "subscription.queue.notifications_max", one),
    ]
    assert session_of(desk).dropped == {"subscription.queue.notifications_max": 6, "subscription.queue.bytes_max": 2}


def test_g17_matches_that_grow_too_old_together_take_one_record(desk: Desk) -> None:
    identities = many(desk, 50, [QueuePolicy(age_max_s=10.0)])
    publish(desk, 3)
    desk.later(80.0)
    (dropped,) = desk.written(records.Dropped)
    assert (dropped.first, dropped.last, sorted(dropped.subscriptions)) == (1, 3, sorted(identities))
    assert session_of(desk).dropped == {"subscription.queue.age_max_s": 150}


def test_g15_an_event_takes_the_place_of_as_many_as_each_subscription_has_to_give_up(desk: Desk) -> None:
    identities = many(desk, 4, [QueuePolicy(bytes_max=3 * SIZE), QueuePolicy(bytes_max=4 * SIZE)])
    publish(desk, 3)
    large = Event(SUBJECT, {"N": 4, "text": ""})
    desk.publish(desk.attach(BOB, "desk", epoch=9), 4, text="x" * (2 * SIZE - size_of(large) - 1))
    dropped = desk.written(records.Dropped)
    assert [(each.first, sorted(each.subscriptions)) for each in dropped] == [
        (1, sorted(identities)),
        (2, sorted(identities[::2])),
    ]
    assert session_of(desk).queued == 2 * 2 + 2 * 3
