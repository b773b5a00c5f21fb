"""Subscriptions to compound events (SPEC T-07, S-06)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, START_US, Desk, rows_of
from wanderbus import protocol
from wanderbus.broker.explained import Explained
from wanderbus.broker.explanation import Explanation
from wanderbus.broker.messages import DiskFreed, DiskFull
from wanderbus.broker.sessions.handover_messages import FenceSession, ImportSession
from wanderbus.event import Event, EventId
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Notify, NotifyGap, RequestRefused, SubscriptionEnded, Unsubscribe
from wanderbus.records import Detected, Published, Unsubscribed, decode_record
from wanderbus.subscription import PATTERN, Frequency, Since, Subscription

LATE = """pattern late by Tail
match A: arrival (Delay > 30) then not C: swap then B: departure where (B.Delay > A.Delay)
within 2 hours
emit late_turnaround with Tail = A.Tail, added = B.Delay - A.Delay"""
SILENT = (
    "pattern silent by Tail match A: arrival then not B: departure within 1 minute emit no_departure with Tail = A.Tail"
)


def subscribe(
    desk: Desk, link: int, text: str = LATE, subject: str = "late_turnaround", **options: Any
) -> Subscription:
    """Subscribe to a pattern."""
    return desk.subscribed(link, text, subject=subject, language=PATTERN, **options)


def detections(desk: Desk, link: int) -> list[dict[str, Any]]:
    """Attributes of the notifications on a link, without the ids of their events."""
    found = [protocol.decode_event(bytes(each.event)) for each in desk.received(link, Notify)]
    return [{name: value for name, value in each.attributes.items() if name != "events"} for each in found]


def detected(desk: Desk) -> list[Detected]:
    """The records of the log that matched a pattern."""
    return [record for payload in desk.log if isinstance(record := decode_record(payload), Detected)]


def check_state(desk: Desk) -> None:
    """The live state is that of the log, with the rows of the state file and without."""
    assert rows_of(desk.recovered()) == rows_of(desk.broker.state)
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_detection_is_a_notification(desk: Desk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    subscribe(desk, alice)
    for n, (subject, tail, delay) in enumerate(
        [("arrival", "x", 40), ("arrival", "y", 50), ("departure", "x", 60), ("swap", "y", 0), ("departure", "y", 70)]
    ):
        desk.publish(bob, n, subject, Tail=tail, Delay=delay)
        desk.later(1)
    (found,) = desk.received(alice, Notify)
    event = protocol.decode_event(bytes(found.event))
    published = [str(record.acceptance.id) for each in desk.log if isinstance(record := decode_record(each), Published)]
    assert event.subject == "late_turnaround"
    assert {"Tail": "x", "added": 20}.items() <= event.attributes.items()
    assert event["events"] == [published[0], published[2]]
    assert str(event["detection"]).startswith("late:")
    assert event.published_us == START_US + 2_000_000
    check_state(desk)


def test_events_of_one_instant_are_in_order_of_the_log(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice)
    desk.publish(alice, 1, "departure", Tail="x", Delay=60)
    desk.publish(alice, 2, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 3, "departure", Tail="x", Delay=60)
    assert not desk.received(alice, Notify), "another event may come at the same instant"
    desk.later(0.001)
    assert len(desk.received(alice, Notify)) == 1


def test_absence_is_complete_at_the_end_of_its_time(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice, SILENT, "no_departure")
    desk.publish(alice, 1, "arrival", Tail="x")
    desk.publish(alice, 2, "arrival", Tail="y")
    desk.later(30)
    desk.publish(alice, 3, "departure", Tail="y")
    desk.later(29.9)
    assert not desk.received(alice, Notify)
    desk.later(0.2)
    assert [each["Tail"] for each in detections(desk, alice)] == ["x"]


def test_restart_continues_with_the_state_of_the_log(desk: Desk) -> None:
    for with_rows in (False, True):
        for saves in (False, True):
            desk = Desk()
            alice = desk.attach()
            subscribe(desk, alice)
            desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
            if saves:
                desk.save()
            desk.later(1)
            desk.publish(alice, 2, "arrival", Tail="y", Delay=40)
            check_state(desk)
            desk.restart(with_rows=with_rows)
            alice = desk.attach(epoch=2)
            desk.publish(alice, 3, "departure", Tail="x", Delay=60)
            desk.publish(alice, 4, "departure", Tail="y", Delay=60)
            desk.later(1)
            assert [each["Tail"] for each in detections(desk, alice)] == ["x", "y"], (with_rows, saves)
            check_state(desk)


def test_detection_that_is_not_durable_is_made_again(desk: Desk) -> None:
    """A crash behind the event and before the record of the detection loses nothing and repeats nothing."""
    alice = desk.attach()
    subscribe(desk, alice)
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 2, "departure", Tail="x", Delay=60)
    log = list(desk.log)
    desk.later(1)
    for kept in (log, desk.log):
        again = Desk(log=kept)
        again.now = 5
        link = again.attach(epoch=2)
        again.later(1)
        assert len(again.received(link, Notify)) == 1
        assert sum(len(each.events) for each in detected(again)) == 1
        check_state(again)


def test_detection_is_sent_once_it_is_durable(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice)
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 2, "departure", Tail="x", Delay=60)
    desk.held = True
    desk.later(1)
    assert not desk.received(alice, Notify)
    desk.sync()
    assert len(desk.received(alice, Notify)) == 1


def test_matching_engine_gets_no_patterns() -> None:
    desk = Desk(BrokerConfig(spark_subjects=("late*", "x")))
    alice = desk.attach()
    subscribe(desk, alice)
    wanted = desk.subscribed(alice, subject="x")
    assert list(desk.broker._engine_events.subscriptions()) == [wanted]


def test_several_detections_of_one_record_have_ids_and_numbers_of_their_own(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice)
    for n in range(3):
        desk.publish(alice, n, "arrival", Tail="x", Delay=40 + n)
    desk.publish(alice, 4, "departure", Tail="x", Delay=60)
    desk.later(1)
    (record,) = (each for each in detected(desk) if each.events)
    assert len({each.id for each in record.events}) == 3
    found = desk.received(alice, Notify)
    assert [each.number for each in found] == [1, 2, 3]
    assert [each["added"] for each in detections(desk, alice)] == [20, 19, 18]
    desk.take(alice, 3)
    assert not desk.broker.state.events.rows
    check_state(desk)


def test_restrictions_hold_for_detections(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice, restrictions=(Frequency(3600),))
    for n in range(3):
        desk.publish(alice, n, "arrival", Tail="x", Delay=40 + n)
    desk.publish(alice, 4, "departure", Tail="x", Delay=60)
    desk.later(1)
    assert [each["added"] for each in detections(desk, alice)] == [20]
    assert desk.broker.state.sessions[f"{ALICE}/default"].restricted == 2
    check_state(desk)


def test_away_user_gets_detections_later(desk: Desk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    subscribe(desk, alice, SILENT, "no_departure")
    desk.close(alice)
    desk.publish(bob, 1, "arrival", Tail="x")
    desk.later(100)
    alice = desk.attach(epoch=2)
    assert [each["Tail"] for each in detections(desk, alice)] == ["x"]


def test_pattern_and_filter_in_one_session(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice)
    desk.subscribed(alice, "Delay > 30", subject="arrival")
    desk.subscribed(alice, "", subject="*")
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 2, "departure", Tail="x", Delay=60)
    desk.later(1)
    subjects = [protocol.decode_event(bytes(each.event)).subject for each in desk.received(alice, Notify)]
    assert subjects == ["arrival", "departure", "late_turnaround"]


EVENT_TIME = """pattern p by Tail match A: arrival then B: departure within 1 hour
on event time At lateness 10 seconds emit found with Tail = A.Tail"""


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(seconds=seconds)


def test_event_time_waits_for_the_lateness(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice, EVENT_TIME, "found")
    desk.later(1000)
    desk.publish(alice, 1, "departure", Tail="x", At=at(105))
    desk.publish(alice, 2, "arrival", Tail="x", At=at(100))
    desk.later(100)
    assert not desk.received(alice, Notify)
    desk.publish(alice, 3, "arrival", Tail="z", At=at(115))
    assert not desk.received(alice, Notify), "the watermark is at the departure, not above it"
    desk.publish(alice, 4, "arrival", Tail="z", At=at(115.5))
    desk.later(0.001)
    assert [each["Tail"] for each in detections(desk, alice)] == ["x"]
    desk.publish(alice, 5, "departure", Tail="z", At=at(90))
    desk.later(1)
    assert desk.broker.state.patterns.counts(_only(desk)).late == 1
    check_state(desk)


def test_event_from_the_future_does_not_make_the_others_late(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice, EVENT_TIME, "found")
    desk.publish(alice, 1, "arrival", Tail="z", At=at(1e7))
    desk.later(100)
    for n, (subject, seconds) in enumerate([("arrival", 50), ("departure", 60), ("arrival", 90)]):
        desk.publish(alice, n, subject, Tail="x", At=at(seconds))
    desk.later(1)
    assert [each["Tail"] for each in detections(desk, alice)] == ["x"]


def _only(desk: Desk) -> str:
    (identity,) = desk.broker.state.subscriptions
    return identity


def explained(desk: Desk, event: EventId, subscription: Subscription) -> Explained:
    found = Explanation(event, subscription)
    for offset, payload in enumerate(desk.log):
        if found.concerns(offset, payload):
            found.apply(decode_record(payload))
    return found.explained()


def test_outcomes_are_explained(desk: Desk) -> None:
    alice = desk.attach()
    wanted = subscribe(desk, alice, restrictions=(Frequency(3600),))
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 2, "arrival", Tail="x", Delay=41)
    desk.publish(alice, 3, "departure", Tail="x", Delay=60)
    desk.publish(alice, 4, "arrival", Tail="x", Delay=1)
    desk.later(1)
    desk.take(alice, 1)
    first, _, _, other = [r.acceptance.id for each in desk.log if isinstance(r := decode_record(each), Published)]
    one, blocked = (each for record in detected(desk) for each in record.events)
    assert explained(desk, first, wanted).outcome == "took_part"
    assert "steps A;" in explained(desk, first, wanted).reason
    assert explained(desk, other, wanted).outcome == "filtered"
    assert explained(desk, one.id, wanted).outcome == "delivered"
    assert explained(desk, blocked.id, wanted).outcome == "restricted"


# Ends ---------------------------------------------------------------------------------------------------------------


def test_end_completes_what_happened_before(desk: Desk) -> None:
    alice = desk.attach()
    wanted = subscribe(desk, alice)
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 2, "departure", Tail="x", Delay=60)
    desk.publish(alice, 3, "arrival", Tail="y", Delay=60)
    desk.send(alice, Unsubscribe(9, wanted.id))
    assert len(desk.received(alice, Notify)) == 1
    assert not list(desk.broker.state.patterns.items())
    assert not desk.broker.state.patterns.kept_of(ALICE)
    check_state(desk)


def test_expired_subscription_detects_up_to_its_expiry(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice, SILENT, "no_departure", lifetime_s=90)
    desk.publish(alice, 1, "arrival", Tail="x")
    desk.later(40)
    desk.publish(alice, 2, "arrival", Tail="y")
    log, rows, offset = desk.log, desk.rows, desk.rows_offset
    desk = Desk(log=log)
    assert not rows
    assert not offset
    desk.now = 1000
    desk.start()
    desk.later(100)
    alice = desk.attach(epoch=2)
    assert [each["Tail"] for each in detections(desk, alice)] == ["x"], "the absence of y was complete after the expiry"
    assert not desk.broker.state.subscriptions
    check_state(desk)


def test_expired_subscriptions_get_no_events(desk: Desk) -> None:
    """Also if they are so many that they have not ended yet."""
    alice = desk.attach()
    for n in range(20):
        subscribe(desk, alice, f"pattern p{n} match A: arrival then B: b within 1 hour", f"p{n}", lifetime_s=10)
    desk.later(11)
    desk.publish(alice, 1, "arrival")
    assert not desk.broker.state.subscriptions
    last = [record for each in desk.log if isinstance(record := decode_record(each), Published)][-1]
    assert not last.delivery.steps


def test_renewed_subscription_begins_with_an_empty_state(desk: Desk) -> None:
    alice = desk.attach()
    wanted = subscribe(desk, alice)
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.later(1)
    desk.send(alice, Unsubscribe(9, wanted.id))
    desk.ask(alice, protocol.Renew(10, wanted.id, None))
    desk.publish(alice, 2, "departure", Tail="x", Delay=60)
    desk.later(1)
    assert not desk.received(alice, Notify)
    desk.publish(alice, 3, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 4, "departure", Tail="x", Delay=60)
    desk.later(1)
    assert len(desk.received(alice, Notify)) == 1
    check_state(desk)


# Bounds ---------------------------------------------------------------------------------------------------------------


def test_events_beyond_the_bound_of_a_user_become_a_gap() -> None:
    desk = Desk(BrokerConfig(user_pattern_events_max=4))
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    subscribe(desk, alice)
    for n in range(6):
        desk.publish(bob, n, "arrival", Tail=f"{n}", Delay=40)
        desk.later(1)
    assert desk.broker.state.patterns.kept_of(ALICE) == 4
    gaps = desk.received(alice, NotifyGap)
    assert {loss.reason for each in gaps for loss in each.lost} == {"user_pattern_events_max"}
    assert sum(loss.count for each in gaps for loss in each.lost) == 2
    other = desk.subscribe(alice, SILENT, subject="no_departure", language=PATTERN)
    assert isinstance(other, RequestRefused)
    assert other.limit == "user_pattern_events_max"
    subscribe(desk, bob)
    desk.later(7300)
    desk.publish(bob, 7, "arrival", Tail="a", Delay=40)
    assert desk.broker.state.patterns.kept_of(ALICE) == 1, "partial matches end with their time, and make room"
    check_state(desk)


def test_large_events_count_by_their_size_also_after_a_restart() -> None:
    desk = Desk(BrokerConfig(user_pattern_events_max=80))
    alice, bob = desk.attach(), desk.attach(BOB, "laptop")
    subscribe(desk, alice)
    for n in range(3):
        desk.publish(bob, n, "arrival", Tail=f"{n}" * 20_000, Delay=40)
        desk.later(1)
    assert desk.broker.state.patterns.kept_of(ALICE) == 80, "20,000 characters are 19 KiB, as key and as value"
    assert desk.recovered().patterns.kept_of(ALICE) == 80
    gaps = desk.received(alice, NotifyGap)
    assert [(loss.reason, loss.count) for each in gaps for loss in each.lost] == [("user_pattern_events_max", 1)]
    check_state(desk)
    desk.later(7300)
    desk.publish(bob, 7, "arrival", Tail="a", Delay=40)
    assert desk.broker.state.patterns.kept_of(ALICE) == 1
    check_state(desk)


def test_pattern_whose_events_go_to_spark_later_ends_and_is_refused_then() -> None:
    desk = Desk()
    alice = desk.attach()
    kept = subscribe(desk, alice)
    other = subscribe(desk, alice, "pattern p match A: a then B: b within 1 hour", "p")
    desk.config = BrokerConfig(spark_subjects=("arr*",))
    desk.restart()
    ended = desk.written(Unsubscribed)
    assert [(each.subscription, each.reason) for each in ended] == [(kept.id, "matched_by_engine")]
    assert list(desk.broker.state.subscriptions.keys()) == [other.id]
    alice = desk.attach()
    refused = desk.ask(alice, protocol.Renew(9, kept.id, 60.0))
    assert isinstance(refused, RequestRefused)
    assert "Spark matches the events of the subject 'arrival'" in refused.reason
    check_state(desk)


def test_leaf_that_is_too_costly_becomes_a_gap() -> None:
    desk = Desk(BrokerConfig(filter_work_max=5_000))
    alice = desk.attach()
    text = "pattern p match A: a cesql[[Text LIKE '%x%y%']] then B: b within 1 hour"
    subscribe(desk, alice, text, "p")
    desk.publish(alice, 1, "a", Text="x" * 20_000)
    desk.later(1)
    assert [loss.reason for each in desk.received(alice, NotifyGap) for loss in each.lost] == ["filter_work_max"]
    assert not desk.broker.state.patterns.kept_of(ALICE)


def test_detection_that_is_too_large_becomes_a_gap(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice, "match A: a then B: b within 1 hour emit found with x = A.t, y = B.t", "found")
    desk.publish(alice, 1, "a", t="x" * 20_000)
    desk.publish(alice, 2, "b", t="x" * 20_000)
    desk.later(1)
    assert [loss.reason for each in desk.received(alice, NotifyGap) for loss in each.lost] == ["event_bytes_max"]
    assert not desk.received(alice, Notify)
    check_state(desk)


def test_full_disk_delays_detections(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice)
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    desk.publish(alice, 2, "departure", Tail="x", Delay=60)
    written = len(desk.log)
    desk.give(DiskFull())
    desk.later(10)
    assert len(desk.log) == written
    desk.give(DiskFreed())
    assert len(desk.received(alice, Notify)) == 1


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "subject", "options", "reason"),
    [
        ("match A: a within", "pattern", {}, "expected a duration"),
        ("match A: a within 1 hour", "other", {}, "the subject of a subscription to a pattern"),
        ("match A: a within 1 hour", "pattern", {"since": Since()}, "begins with new events"),
        ("match A: secret within 1 hour", "pattern", {}, "may not subscribe"),
        ("match A: * within 1 hour", "pattern", {}, "may not subscribe"),
        ("match A: s.x within 1 hour", "pattern", {}, "Spark matches the events"),
    ],
)
def test_pattern_that_cannot_be_used_is_refused(text: str, subject: str, options: dict[str, Any], reason: str) -> None:
    config = BrokerConfig(may_subscribe={"*": ("a*", "s*x", "pattern")}, spark_subjects=("s.*",))
    desk = Desk(config)
    answer = desk.subscribe(desk.attach(), text, subject=subject, language=PATTERN, **options)
    assert isinstance(answer, RequestRefused)
    assert reason in answer.reason
    if "duration" in reason:
        assert answer.position == len(text)


def test_repeated_request_finds_the_subscription(desk: Desk) -> None:
    alice = desk.attach()
    assert subscribe(desk, alice).id == subscribe(desk, alice).id


def test_subscriptions_are_listed(desk: Desk) -> None:
    alice = desk.attach()
    wanted = subscribe(desk, alice)
    desk.publish(alice, 1, "arrival", Tail="x", Delay=40)
    answer = desk.ask(alice, protocol.Query(7))
    assert isinstance(answer, Done)
    assert answer.subscriptions == (wanted,)
    assert not desk.received(alice, SubscriptionEnded)
    desk.later(1)
    row = desk.broker._admin._listings.subscription(desk.broker.state.subscriptions[wanted.id])
    assert (row["language"], row["subject"], row["pattern_events"]) == (PATTERN, "late_turnaround", 1)


def test_event_without_a_key_takes_no_part(desk: Desk) -> None:
    alice = desk.attach()
    subscribe(desk, alice)
    desk.send(alice, protocol.Publish(1, Event("arrival", {"Delay": 40})))
    desk.later(1)
    assert not desk.broker.state.patterns.kept_of(ALICE)
    assert not detected(desk)


# Handover -------------------------------------------------------------------------------------------------------------


def moved(source: Desk, target: Desk, owner_epoch: int) -> None:
    """Move Alice's session from one server to another."""
    source.give(FenceSession(ALICE, "default", owner_epoch))
    target.give(ImportSession(source.broker.state.exports[f"{ALICE}/default"].export))


@pytest.mark.parametrize("behind_s", [0, 3_000])
def test_session_that_moves_takes_its_patterns_along(behind_s: int) -> None:
    """Also if the clock of the other server is behind, and the same offsets name other events there."""
    one, other = (Desk(BrokerConfig(server=name)) for name in ("one", "two"))
    one.now, other.now = 5_000.0, 5_000.0 - behind_s
    alice = one.attach()
    subscribe(one, alice)
    one.publish(alice, 1, "arrival", Tail="x", Delay=40)
    one.later(1)
    one.publish(alice, 2, "arrival", Tail="y", Delay=41)
    taken = len(one.log) - 1
    moved(one, other, 2)
    assert not list(one.broker.state.patterns.items())
    assert other.broker.state.patterns.kept_of(ALICE) == 2
    other.later(1)
    bob = other.attach(BOB, "laptop")
    while len(other.log) < taken:
        other.publish(bob, 9, "nothing")
    other.publish(bob, 3, "departure", Tail="y", Delay=60)
    other.publish(bob, 4, "departure", Tail="x", Delay=60)
    other.later(1 + behind_s)
    check_state(other)
    moved(other, one, 3)
    one.later(4_000)
    alice = one.attach(epoch=2)
    assert [each["Tail"] for each in detections(one, alice)] == ["x", "y"]
    check_state(one)
    check_state(other)
