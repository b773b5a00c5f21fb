"""Metrics of a broker that crashes, and whose sessions move (SPEC U-08)."""

from __future__ import annotations

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus.metrics import Sample
from wanderbus.protocol import Leave, Unsubscribe


def values(desk: Desk) -> dict[tuple[str, tuple[str, ...]], object]:
    return {(each.metric, each.labels): each.value for each in desk.broker.metrics.samples()}


def test_u08_counters_begin_at_a_crash_and_gauges_go_on() -> None:
    desk = Desk()
    alice, bob = desk.attach(ALICE), desk.attach(BOB)
    desk.subscribed(alice)
    desk.close(alice)
    desk.publish(bob, 1)
    desk.publish(bob, 2)
    before = values(desk)
    assert before["matches_generated_total", ()] == before["events_accepted_total", ()] == 2
    desk.restart()
    after = values(desk)
    assert after["matches_generated_total", ()] == after["events_accepted_total", ()] == 0
    assert after["matches_queued", ()] == before["matches_queued", ()] == 2
    assert after["devices", ("connected",)] == 0


def test_u08_counters_do_not_decrease_when_a_session_ends() -> None:
    desk = Desk()
    alice, bob = desk.attach(ALICE), desk.attach(BOB)
    subscription = desk.subscribed(alice)
    desk.publish(bob, 1)
    desk.take(alice, 1)
    before = values(desk)
    desk.send(alice, Unsubscribe(9, subscription.id), Leave(10))
    after = values(desk)
    assert Sample("matches_delivered_total", 1) in [*desk.broker.metrics.samples()]
    for key, value in before.items():
        if key[0].endswith("_total"):
            assert after[key] >= value, key  # type: ignore[operator]
