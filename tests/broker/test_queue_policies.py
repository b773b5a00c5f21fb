"""Queue policies that an operator adds (SPEC G-23)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, Desk, rows_of
from wanderbus import records
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import ExtensionFailed
from wanderbus.broker.queues.policy_arguments import SHOWN_MAX, Policy, Queue
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import NotifyGap, RequestRefused
from wanderbus.subscription import QueuePolicy


def latest(queue: Queue) -> Collection[int]:
    """Keep the newest of each ship."""
    seen: set[object] = set()
    dropped = []
    for each in reversed(queue.newest):
        if (ship := each.event.get("Ship")) in seen:
            dropped.append(each.number)
        seen.add(ship)
    return dropped


def cheapest_first(queue: Queue) -> Collection[int]:
    """Drop the cheapest events when a bound is exceeded."""
    return [min(queue.newest, key=lambda each: each.event.get("N")).number] if queue.over else []


class PolicyDesk(Desk):
    """A desk whose broker has some custom policies and reports their failures."""

    def __init__(self, policies: Mapping[str, Policy], config: BrokerConfig | None = None) -> None:
        self.policies = policies
        self.failed: list[ExtensionFailed] = []
        super().__init__(config)

    def start(self) -> None:
        self.broker = Broker(self.recovered(), self.config, policies=QueuePolicies(self.policies))
        self.timers.clear()
        self.give(ServerStarted())

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        self.failed += [output for output in outputs if isinstance(output, ExtensionFailed)]

    def away(self, queue: QueuePolicy, expression: str = "") -> int:
        """Let Alice subscribe and disconnect; return the link of Bob, who publishes."""
        link = self.attach()
        self.subscribed(link, expression, queue=queue)
        self.close(link)
        return self.attach(BOB)


def named(name: str, **bounds: Any) -> QueuePolicy:
    return QueuePolicy(policy=name, **bounds)


def notified(desk: Desk, link: int) -> list[object]:
    """The numbers ``N`` that came down a link."""
    return [heard for heard in desk.stream(link) if isinstance(heard, int)]


def dropped(desk: Desk) -> list[tuple[int, str]]:
    return [(record.first, record.reason) for record in desk.written(records.Dropped)]


@pytest.mark.parametrize("restart", [False, True], ids=["", "restart without the policy"])
@pytest.mark.parametrize("by_default", [False, True], ids=["of the subscription", "of the system"])
def test_g23_a_policy_of_the_operator_drops_what_it_chooses(restart: bool, by_default: bool) -> None:
    config = BrokerConfig(queue=msgspec.structs.replace(BrokerConfig().queue, policy="latest" if by_default else None))
    desk = PolicyDesk({"latest": latest}, config)
    bob = desk.away(QueuePolicy() if by_default else named("latest"))
    for n, ship in enumerate("ABACB", 1):
        desk.publish(bob, n, Ship=ship)
    assert dropped(desk) == [(1, "policy.latest"), (2, "policy.latest")]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
    if restart:
        desk.policies = {}
        desk.restart()
    back = desk.attach(epoch=2)
    assert notified(desk, back) == [3, 4, 5]
    gaps = desk.received(back, NotifyGap)
    assert sum(loss.count for gap in gaps for loss in gap.lost) == 2
    assert {loss.reason for gap in gaps for loss in gap.lost} == {"policy.latest"}


@pytest.mark.parametrize("published", [(5, 1, 9, 3, 7), (1, 5, 9, 3, 7)], ids=["", "the first has left"])
@pytest.mark.parametrize("by_default", [False, True], ids=["of the subscription", "of the system"])
def test_g23_a_policy_decides_who_gives_way_to_a_bound(published: Sequence[int], by_default: bool) -> None:
    policy = named("cheapest_first", notifications_max=3)
    desk = PolicyDesk({"cheapest_first": cheapest_first}, BrokerConfig(queue=policy) if by_default else None)
    bob = desk.away(QueuePolicy() if by_default else policy)
    for n in published:
        desk.publish(bob, n)
    assert [reason for _, reason in dropped(desk)] == ["policy.cheapest_first"] * 2
    assert notified(desk, desk.attach(epoch=2)) == [5, 9, 7]


def test_g23_another_subscription_of_the_user_keeps_what_a_policy_drops() -> None:
    desk = PolicyDesk({"latest": latest})
    link = desk.attach()
    plain = desk.subscribed(link, "N > 0")
    bob = desk.away(named("latest"))
    for n in (1, 2):
        desk.publish(bob, n, Ship="A")
    assert notified(desk, desk.attach(epoch=2)) == [1, 2]
    (record,) = desk.written(records.Dropped)
    assert (record.first, len(record.subscriptions)) == (1, 1)
    assert plain.id not in record.subscriptions


@pytest.mark.parametrize("count", [1, SHOWN_MAX, 3 * SHOWN_MAX])
def test_g23_a_policy_sees_both_ends_and_no_more(count: int) -> None:
    seen: list[Queue] = []

    def note(queue: Queue) -> Collection[int]:
        seen.append(queue)
        return ()

    desk = PolicyDesk({"note": note})
    bob = desk.away(named("note"), "N > 0")
    for n in range(1, count + 1):
        desk.publish(bob, n)
        desk.publish(bob, -n)
    last = seen[-1]
    assert len(seen) == last.waiting == count
    numbers = list(range(1, count + 1))
    assert [each.event["N"] for each in last.oldest] == numbers[:SHOWN_MAX]
    assert [each.event["N"] for each in last.newest] == numbers[-SHOWN_MAX:]
    assert (last.now_us, last.over) == (desk.wall_us, None)
    assert last.newest[0].at_us == desk.wall_us
    assert count > SHOWN_MAX or last.waiting_bytes == sum(each.size for each in last.newest)


@pytest.mark.parametrize("queue", [named("moon"), named("moon", notifications_max=3)])
def test_g23_a_policy_that_is_not_registered_is_refused(queue: QueuePolicy) -> None:
    desk = PolicyDesk({"latest": latest})
    answer = desk.subscribe(desk.attach(), queue=queue)
    assert isinstance(answer, RequestRefused)
    assert "unknown queue policy 'moon' (this broker has: latest)" in answer.reason


def broken(_queue: Queue) -> Collection[int]:
    raise ZeroDivisionError("half of nothing")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (broken, "ZeroDivisionError: half of nothing"),
        (lambda _: [99], "the policy dropped 99, which is not among the given numbers"),
        (lambda _: [0], "the policy dropped 0"),
        (lambda _: None, "TypeError"),
        (lambda _: 1, "TypeError"),
        (lambda _: ["1"], "not among the given numbers"),
    ],
)
def test_g23_a_policy_that_fails_leaves_it_to_when_full_and_is_counted(policy: Any, reason: str) -> None:
    desk = PolicyDesk({"faulty": policy})
    bob = desk.away(named("faulty", notifications_max=2))
    for n in (1, 2, 3):
        desk.publish(bob, n)
    assert notified(desk, desk.attach(epoch=2)) == [2, 3]
    assert [failed.count for failed in desk.failed] == [1, 2, 3]
    assert all(reason in failed.reason for failed in desk.failed), [failed.reason for failed in desk.failed]
    assert [text for _, text in dropped(desk)] == ["subscription.queue.notifications_max"]
    row = desk.broker.state.sessions[f"{ALICE}/default"]
    assert row.dropped == {"subscription.queue.notifications_max": 1}
