"""T-06: events that a matching engine beside the broker matches, later than they are accepted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from tests.broker.engine_desk import EngineDesk
from tests.broker.office import OLGA, ROLES, answers
from wanderbus.broker import subscriptions
from wanderbus.broker.engine import requests
from wanderbus.broker.explained import Explained
from wanderbus.broker.explanation import Explanation
from wanderbus.broker.history import catch_up
from wanderbus.broker.sessions.handover_messages import (
    FenceSession,
    ImportSession,
    KeepSession,
    SessionExported,
    SessionMoveRefused,
)
from wanderbus.event import EventId, Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Inspect, Notify, NotifyGap, PublishAccepted, Renew, RequestRefused, Restrict, Unsubscribe
from wanderbus.records import Matched, Published, Started, Subscribed, Unsubscribed, decode_record
from wanderbus.subscription import EVERY_SUBJECT, Frequency, Interval, QueuePolicy, Since, Subscription


@pytest.fixture
def desk() -> EngineDesk:
    """A broker that has just started for the first time, with an engine that answers when the test lets it."""
    desk = EngineDesk()
    desk.answers = False
    return desk


def match_all(desk: EngineDesk) -> None:
    while desk.match():
        pass


def test_t06_an_event_is_acknowledged_before_it_is_matched_and_delivered_after(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone)
    desk.publish(publisher, 1)
    assert desk.accepted(publisher) == [1]
    assert desk.stream(phone) == []
    (published,) = desk.written(Published)
    assert (published.engine, published.delivery.notified) == ("spark", ())
    match_all(desk)
    assert desk.stream(phone) == [1]
    (matched,) = desk.written(Matched)
    assert [each.id for each in matched.events] == [published.acceptance.id]
    assert matched.next == len(desk.log) - 1


def test_t06_each_subscription_holds_exactly_from_its_offset(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.publish(publisher, 1)
    first = desk.subscribed(phone, "N > 0")
    desk.publish(publisher, 2)
    desk.ask(phone, Unsubscribe(50, first.id))
    desk.publish(publisher, 3)
    desk.send(phone, Renew(51, first.id, None))
    desk.publish(publisher, 4)
    match_all(desk)
    assert desk.stream(phone) == [2, 4]


def test_t06_a_subscription_that_expires_gets_the_events_before_and_no_other(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    expiring = desk.subscribed(phone, lifetime_s=10)
    desk.publish(publisher, 1)
    desk.later(20)
    desk.publish(publisher, 2)
    desk.send(phone, Renew(51, expiring.id, None))
    desk.publish(publisher, 3)
    match_all(desk)
    assert desk.stream(phone) == [1, 3]


def test_t06_an_expired_subscription_that_is_renewed_before_its_end_was_noticed_has_a_gap_in_its_life(
    desk: EngineDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "EXPIRED_PER_PUBLISH_MAX", 0)
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    expiring = desk.subscribed(phone, lifetime_s=10)
    desk.publish(publisher, 1)
    desk.later(20)
    desk.publish(publisher, 2)
    desk.send(phone, Renew(51, expiring.id, None))
    desk.publish(publisher, 3)
    match_all(desk)
    assert desk.stream(phone) == [1, 3]


def test_t06_an_expired_subscription_that_an_event_matches_ends(
    desk: EngineDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "EXPIRED_PER_PUBLISH_MAX", 0)
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone, lifetime_s=10)
    desk.later(20)
    desk.publish(publisher, 1)
    assert not desk.written(Unsubscribed)
    match_all(desk)
    assert [each.reason for each in desk.written(Unsubscribed)] == ["expired"]
    assert desk.stream(phone) == []


def test_t06_an_engine_that_begins_again_knows_what_has_ended_meanwhile(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    ended = desk.subscribed(phone, restrictions=(Frequency(20),))
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, ended.id))
    desk.engine.forget()
    match_all(desk)
    assert desk.stream(phone) == [1]
    desk.send(phone, Renew(51, ended.id, None))
    desk.publish(publisher, 2)
    match_all(desk)
    assert desk.stream(phone) == [1], "the time of its last notification is known"


@pytest.mark.parametrize("with_rows", [None, False, True])
def test_t06_h03_an_event_has_the_restrictions_that_held_when_it_was_accepted(
    desk: EngineDesk, with_rows: bool | None
) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    over, always = (Interval(0, 1),), tuple[Interval, ...]()
    changed = desk.subscribed(phone)
    for n, restrictions in enumerate((over, always, over), 1):
        desk.publish(publisher, n)
        desk.ask(phone, Restrict(50 + n, changed.id, restrictions))
    desk.publish(publisher, 4)
    if with_rows is not None:
        desk.save()
        desk.restart(with_rows=with_rows)
        phone = desk.attach()
    match_all(desk)
    assert desk.stream(phone) == [1, 3]
    (matched,) = desk.written(Matched)
    assert [each.restricted for each in matched.events] == [(), ((changed.id, 0),), (), ((changed.id, 0),)]
    pairs = [Explanation(each.id, changed) for each in matched.events]
    for pair in pairs:
        for payload in desk.log:
            pair.apply(decode_record(payload))
    assert [each.explained().outcome for each in pairs] == ["queued", "restricted", "queued", "restricted"]


@pytest.mark.parametrize("with_rows", [True, False])
def test_t06_a_killed_broker_asks_again_from_the_durable_watermark(desk: EngineDesk, with_rows: bool) -> None:
    desk.engine.events_max = 3
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone)
    for n in range(1, 11):
        desk.publish(publisher, n)
    for _ in range(3):
        desk.match()
    before = desk.stream(phone)
    assert 0 < len(before) < 10
    if with_rows:
        desk.save()
    desk.restart(with_rows=with_rows)
    assert rows_of(desk.broker.state) == rows_of(desk.recovered(from_log_alone=True))
    phone = desk.attach(epoch=2)
    match_all(desk)
    numbers = [n for n in desk.stream(phone) if n not in before]
    assert before + numbers == list(range(1, 11))
    assert sum(len(each.events) for each in desk.written(Matched)) == 10


def test_t06_an_engine_that_has_lost_its_memory_begins_again(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone)
    for n in range(1, 4):
        desk.publish(publisher, n)
        match_all(desk)
        desk.engine.forget()
    match_all(desk)
    assert desk.stream(phone) == [1, 2, 3]


def test_t06_events_wait_in_the_log_while_the_engine_is_away(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone)
    match_all(desk)
    desk.publish(publisher, 1)
    desk.is_away()
    assert not desk.match()
    desk.publish(publisher, 2)
    assert desk.broker.engine.away_since_us == desk.wall_us
    assert desk.broker.state.first_needed() == {"engine": desk.received(publisher, PublishAccepted)[0].id.number}
    desk.later(1.5)
    match_all(desk)
    assert desk.stream(phone) == [1, 2]
    assert not desk.broker._engine_events.away_reason
    assert desk.broker.state.first_needed() == {}


def test_t06_restrictions_use_the_time_of_each_event(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone, restrictions=(Frequency(20),))
    for n in range(1, 7):
        desk.publish(publisher, n)
        desk.later(10)
    match_all(desk)
    assert desk.stream(phone) == [1, 3, 5]
    assert desk.broker.state.sessions[f"{ALICE}/default"].restricted == 3


def test_t06_bounds_of_queues_apply_when_an_event_is_matched(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(reads=False), desk.attach(BOB, "desk")
    subscription = desk.subscribed(phone, queue=QueuePolicy(notifications_max=2), reads=False)
    for n in range(1, 6):
        desk.publish(publisher, n)
    match_all(desk)
    assert desk.waiting(subscription.id) == 2
    desk.read(phone, subscription.id)
    assert desk.stream(phone)[-2:] == [4, 5]


def test_t06_a_filter_that_is_too_costly_for_an_event_leaves_a_gap() -> None:
    desk = EngineDesk(BrokerConfig(filter_work_max=2_000))
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone, "UPPER(T) = 'X'", language="cesql")
    desk.publish(publisher, 1, T="x" * 20_000)
    desk.publish(publisher, 2, T="x")
    (gap,) = desk.received(phone, NotifyGap)
    assert [each.reason for each in gap.lost] == ["filter_work_max"]
    assert desk.stream(phone)[-1] == 2


def test_t06_an_ended_subscription_leaves_its_coming_events_to_its_heir(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    ended = desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, ended.id))
    desk.close(phone)
    phone = desk.attach(epoch=2, reads=False)
    successor = desk.subscribed(phone)
    desk.publish(publisher, 2)
    match_all(desk)
    assert desk.stream(phone) == [1, 2]
    assert all(successor.id in each.subscriptions for each in desk.received(phone, Notify))


def test_t06_an_abandoned_subscription_gets_nothing_more(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    ended = desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, ended.id, abandon=True))
    match_all(desk)
    assert desk.stream(phone) == []
    assert len(desk.broker.state.queue) == 0


def test_t06_a_queue_that_one_of_two_devices_abandons_waits_for_the_other_alone(desk: EngineDesk) -> None:
    phone, laptop, publisher = desk.attach(), desk.attach(device="laptop"), desk.attach(BOB, "desk")
    ended = desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, ended.id, abandon=True))
    match_all(desk)
    assert desk.stream(laptop) == [1]
    desk.take(laptop, 1)
    assert len(desk.broker.state.queue) == 0


@pytest.mark.parametrize("is_changed", [False, True])
def test_t06_a_second_heir_takes_nothing_that_the_first_is_still_to_get(desk: EngineDesk, *, is_changed: bool) -> None:
    """Also if the first was changed since, so that the second is another subscription beside it."""
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    first = desk.subscribed(phone, "N > 0", reads=False)
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, first.id))
    successor = desk.subscribed(phone, "N > 0", reads=False)
    assert [each.inherits for each in desk.written(Subscribed)] == [None, first.id]
    if is_changed:
        desk.ask(phone, Restrict(51, successor.id, (Frequency(10.0),)))
    else:
        desk.ask(phone, Unsubscribe(51, successor.id))
    second = desk.subscribed(phone, "N > 0", reads=False)
    assert [each.inherits for each in desk.written(Subscribed)][2:] == [None if is_changed else successor.id]
    match_all(desk)
    (matched,) = desk.written(Matched)
    (notified,) = matched.events[0].notified
    assert notified.subscriptions == (successor.id if is_changed else second.id,)
    assert rows_of(desk.broker.state) == rows_of(desk.recovered(from_log_alone=True))


def test_t06_a_device_abandons_what_its_subscription_has_inherited_too(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    ended = desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, ended.id))
    desk.close(phone)
    phone = desk.attach(epoch=2, reads=False)
    successor = desk.subscribed(phone)
    desk.publish(publisher, 2)
    desk.ask(phone, Unsubscribe(51, successor.id, abandon=True))
    match_all(desk)
    assert desk.stream(phone) == []
    assert len(desk.broker.state.queue) == 0


def test_t06_a_device_abandons_all_lives_of_a_subscription(desk: EngineDesk) -> None:
    phone, laptop, publisher = desk.attach(), desk.attach(device="laptop"), desk.attach(BOB, "desk")
    subscription = desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.ask(phone, Unsubscribe(50, subscription.id))
    desk.ask(phone, Renew(51, subscription.id, None))
    desk.ask(phone, Unsubscribe(52, subscription.id, abandon=True))
    match_all(desk)
    assert desk.stream(laptop) == [1]
    desk.take(laptop, 1)
    assert len(desk.broker.state.queue) == 0


def test_t06_subjects_of_the_broker_are_matched_at_once_and_those_of_the_engine_later() -> None:
    desk = EngineDesk(BrokerConfig(spark_subjects=("Fl*",)))
    desk.answers = False
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone, subject=EVERY_SUBJECT)
    desk.publish(publisher, 1, "Flight")
    desk.publish(publisher, 2)
    assert desk.stream(phone) == [2]
    match_all(desk)
    assert desk.stream(phone) == [2, 1]


def test_t06_a_subscription_since_the_past_gets_each_event_of_the_engine_once(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.reads_history = False
    for n in (1, 2):
        desk.publish(publisher, n)
    match_all(desk)
    desk.publish(publisher, 3)  # in the last piece, and not matched yet
    desk.subscribed(phone, since=Since())
    desk.publish(publisher, 4)  # behind the last piece, and matched while it is read
    match_all(desk)
    desk.publish(publisher, 5)  # behind the last piece, and matched after it
    desk.read_history()
    match_all(desk)
    desk.publish(publisher, 6)
    match_all(desk)
    assert desk.stream(phone) == [1, 2, 3, 4, 5, 6]


def test_t06_a_subscription_that_became_live_before_a_kill_gets_nothing_twice(
    desk: EngineDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "HELD_MAX", 4)
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.reads_history = False
    desk.publish(publisher, 1)
    desk.subscribed(phone, since=Since())
    desk.publish(publisher, 2)
    match_all(desk)  # held alone, so the watermark is not durable
    assert not desk.written(Matched)
    desk.read_history()
    assert desk.stream(phone) == [1, 2]
    desk.restart()
    phone = desk.attach(epoch=2)
    match_all(desk)
    assert desk.stream(phone) == [1, 2]
    assert not desk.written(Matched)


def test_t06_a_watermark_without_matches_is_written_seldom(desk: EngineDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WATERMARK_RECORDS_MIN", 10)
    publisher = desk.attach(BOB, "desk")
    match_all(desk)
    for n in range(1, 31):
        desk.publish(publisher, n)
        match_all(desk)
    assert 2 <= len(desk.written(Matched)) <= 3
    length = len(desk.log)
    match_all(desk)
    assert len(desk.log) == length


def test_t06_a_subject_stays_with_the_engine_until_its_events_are_matched(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.config = BrokerConfig()
    desk.restart()
    phone, publisher = desk.attach(epoch=2), desk.attach(BOB, "desk", epoch=2)
    desk._published.clear()
    desk.publish(publisher, 2)
    assert desk.stream(phone) == []
    match_all(desk)
    assert desk.stream(phone) == [1, 2]
    desk.restart()
    assert desk.written(Started)[-1].spark_subjects == ()
    publisher = desk.attach(BOB, "desk", epoch=3)
    desk._published.clear()
    desk.publish(publisher, 3)
    assert desk.written(Published)[-1].engine == ""
    assert desk.asked is None


def test_t06_without_subjects_for_it_the_engine_is_not_asked() -> None:
    desk = Desk()
    publisher = desk.attach(BOB, "desk")
    desk.publish(publisher, 1, SUBJECT)
    assert desk.broker.state.first_needed() == {}
    assert desk.written(Published)[0].engine == ""


@pytest.mark.parametrize(("one", "other"), [("*", "Alarm"), ("Al?rm", "*m"), ("a*c", "*b*"), ("[ab]x", "ax")])
def test_t06_a_subject_of_the_engine_may_not_refuse_events_for_full_queues(one: str, other: str) -> None:
    with pytest.raises(ValueError, match="spark_subjects"):
        BrokerConfig(spark_subjects=(one,), refuse_when_full=(other,))


def test_t06_patterns_without_a_common_subject_are_allowed() -> None:
    BrokerConfig(spark_subjects=("Flight*", "a?"), refuse_when_full=("Alarm", "?", "abc"))


def test_t06_an_explanation_names_the_engine_while_an_event_waits_and_the_delivery_then(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    subscription = desk.subscribed(phone)
    desk.publish(publisher, 1)
    event = desk.received(publisher, PublishAccepted)[0].id
    assert explained(desk, event, subscription).reason == "the event waits in the log for the matching engine"
    match_all(desk)
    assert explained(desk, event, subscription).outcome == "queued"
    desk.take(phone, 1)
    assert explained(desk, event, subscription).outcome == "delivered"


def explained(desk: EngineDesk, event: EventId, subscription: Subscription) -> Explained:
    pair = Explanation(event, subscription)
    for payload in desk.log:
        pair.apply(decode_record(payload))
    return pair.explained()


def test_t06_a_position_of_the_engine_is_a_point_in_the_past(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    desk.subscribed(phone)
    for n in (1, 2, 3):
        desk.publish(publisher, n)
    match_all(desk)
    since = Since(position=Position(desk.epoch(), desk.received(phone, Notify)[1].number))
    desk.subscribed(phone, "N > 0", since=since)
    assert desk.stream(phone) == [1, 2, 3, 3]


def test_t06_operators_see_whether_the_engine_answers_and_how_far_behind_it_is() -> None:
    desk = EngineDesk(BrokerConfig(roles=ROLES), answers=False)
    olga, bob = desk.attach(OLGA, "desk"), desk.attach(BOB, "desk")

    def shown() -> Mapping[str, Any]:
        (answer,) = answers(desk, olga, Inspect(1, "engine", None))
        row: Mapping[str, Any] = answer.rows[0]
        return row

    assert shown()["state"] == "not asked yet"
    match_all(desk)
    desk.publish(bob, 1)
    row = shown()
    assert (row["engine"], row["state"], row["subjects"], row["away_s"]) == ("spark", "answers", ["*"], None)
    assert row["records_behind"] == len(desk.log) - row["matched_below"] > 0
    desk.is_away(retry_s=5)
    desk.later(2)
    row = shown()
    assert (row["state"], row["away_s"], row["reason"]) == ("away", 2.0, "the engine is away")
    desk.later(4)
    match_all(desk)
    assert (shown()["state"], shown()["records_behind"]) == ("answers", 0)
    (refused,) = answers(desk, bob, Inspect(1, "engine", None))
    assert isinstance(refused, RequestRefused)
    assert "role 'operator'" in refused.reason


def test_l01_a_session_stays_while_the_engine_is_away_and_its_devices_are_served(desk: EngineDesk) -> None:
    """They are turned away only once the engine has come to what was there when the session was about to leave."""
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    wanted = desk.subscribed(phone)
    match_all(desk)
    desk.publish(publisher, 1)
    desk.is_away()
    fence = FenceSession(ALICE, "default", 2, target="s2", subscriptions=(wanted.id,))
    desk.give(fence)
    outputs = desk.step(KeepSession(ALICE, "default"))
    desk.perform(outputs)
    (refused,) = [each for each in outputs if isinstance(each, SessionMoveRefused)]
    assert re.search("its matching engine is [0-9]+ records? behind, and away: the engine is away", refused.reason)
    desk.later(1.5)
    match_all(desk)
    assert desk.stream(phone) == [1]
    desk.give(fence)
    assert desk.broker.state.exports


def test_t06_a_session_takes_the_events_along_that_waited_for_the_engine(desk: EngineDesk) -> None:
    phone, publisher = desk.attach(), desk.attach(BOB, "desk")
    for _ in range(20):  # its log is longer than that of the next server
        desk.publish(publisher, 0)
    subscription = desk.subscribed(phone)
    desk.publish(publisher, 1)
    desk.publish(publisher, 2)
    fence = FenceSession(ALICE, "default", 2)
    outputs = desk.step(fence)
    desk.perform(outputs)
    assert not any(isinstance(each, SessionExported) for each in outputs)
    (refused,) = desk.received(desk.attach(reads=False), RequestRefused)
    assert "has moved to another server" in refused.reason
    desk.publish(publisher, 3)
    match_all(desk)
    exports = desk.broker.state.exports
    other = EngineDesk(BrokerConfig(server="other"), answers=False)
    other.give(ImportSession(exports[f"{ALICE}/default"].export))
    assert other.waiting(subscription.id) == 2
    publisher, phone = other.attach(BOB, "desk"), other.attach()
    other.publish(publisher, 4)
    match_all(other)
    assert other.stream(phone) == [1, 2, 4]
    assert rows_of(other.broker.state) == rows_of(other.recovered(from_log_alone=True))
