"""Bounds by number, bytes and age, of subscription, session, user and broker (SPEC G-15 to G-18, G-21, U-02, X24)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus import records
from wanderbus.broker.links import _losses
from wanderbus.broker.queues import queue_limits as bounds
from wanderbus.broker.queues.queue_items import QueuedGap
from wanderbus.broker.state.rows import SessionRow
from wanderbus.event import Event, EventId, Loss
from wanderbus.limits import EVENT_BYTES_MAX, MESSAGE_BYTES_MAX
from wanderbus.parameters.broker import SUBSCRIPTIONS_MAX, BrokerConfig
from wanderbus.protocol import Leave, Notify, NotifyGap, Publish, PublishAccepted, PublishRefused, encode, size_of
from wanderbus.subscription import Frequency, QueuePolicy, WhenFull

CAROL = "sip:carol@example.org"
SIZE = size_of(Event(SUBJECT, {"N": 1}))


def away(desk: Desk, user: str = ALICE, **options: Any) -> str:
    """A user subscribes to everything and goes; give the subscription's id."""
    link = desk.attach(user)
    subscription = desk.subscribed(link, **options)
    desk.close(link)
    return subscription.id


def publish(desk: Desk, count: int, *, first: int = 1) -> None:
    link = desk.attach(BOB, "desk", epoch=first)
    for n in range(first, first + count):
        desk.publish(link, n)


def session_of(desk: Desk, user: str = ALICE) -> SessionRow:
    row = desk.broker.state.sessions[f"{user}/default"]
    assert row.generated == row.delivered + row.queued + sum(row.dropped.values())
    return row


def losses(desk: Desk, link: int) -> list[tuple[Loss, ...]]:
    return [gap.lost for gap in desk.received(link, NotifyGap)]


@pytest.mark.parametrize(
    ("policy", "expected", "reason"),
    [
        (QueuePolicy(notifications_max=3), [(1, 2), 3, 4, 5], "queue.notifications_max"),
        (QueuePolicy(bytes_max=3 * SIZE), [(1, 2), 3, 4, 5], "queue.bytes_max"),
        (QueuePolicy(notifications_max=3, when_full="drop_newest"), [1, 2, 3, (4, 5)], "queue.notifications_max"),
        (QueuePolicy(bytes_max=3 * SIZE, when_full="drop_newest"), [1, 2, 3, (4, 5)], "queue.bytes_max"),
        (QueuePolicy(bytes_max=SIZE - 1), [(1, 5)], "queue.bytes_max"),
    ],
)
@pytest.mark.parametrize("whose", ["system", "subscription"])
def test_u02_a_full_queue_drops_by_its_policy(
    policy: QueuePolicy, expected: list[object], reason: str, whose: str
) -> None:
    desk = Desk(BrokerConfig(queue=policy) if whose == "system" else None)
    identity = away(desk, queue=policy if whose == "subscription" else None)
    publish(desk, 5)
    back = desk.attach()
    assert desk.stream(back) == expected
    if whose == "subscription":
        reason = f"subscription.{reason}"
    gone = 5 - session_of(desk).queued
    assert session_of(desk).dropped == {reason: gone}
    assert losses(desk, back) == [(Loss(identity, reason, gone),)]


@pytest.mark.parametrize(("system", "own", "kept"), [(2, 4, 2), (4, 2, 2)])
def test_g18_the_stricter_bound_wins(system: int, own: int, kept: int) -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=system)))
    away(desk, queue=QueuePolicy(notifications_max=own))
    publish(desk, 6)
    assert session_of(desk).waiting == kept


@pytest.mark.parametrize(("own", "expected"), [("drop_newest", [1, 2, (3, 3)]), ("drop_oldest", [(1, 1), 2, 3])])
def test_u02_a_subscription_chooses_what_its_own_bound_gives_up(own: WhenFull, expected: list[object]) -> None:
    other: WhenFull = "drop_oldest" if own == "drop_newest" else "drop_newest"
    desk = Desk(BrokerConfig(queue=QueuePolicy(when_full=other)))
    away(desk, queue=QueuePolicy(notifications_max=2, when_full=own))
    publish(desk, 3)
    assert desk.stream(desk.attach()) == expected


def test_g18_an_entry_dropped_for_one_subscription_stays_for_the_others(desk: Desk) -> None:
    link = desk.attach()
    tight = desk.subscribed(link, "N > 0", queue=QueuePolicy(notifications_max=1))
    free = desk.subscribed(link, "N < 100")
    desk.close(link)
    publish(desk, 3)
    back = desk.attach()
    notifies = desk.received(back, Notify)
    handles = desk.reading[back]
    readers = [(handles[free.id],), (handles[free.id],), (handles[tight.id], handles[free.id])]
    assert [notify.readers for notify in notifies] == readers
    assert [notify.subscriptions for notify in notifies] == [(tight.id, free.id)] * 3, "it says what it matched"
    reason = "subscription.queue.notifications_max"
    assert losses(desk, back) == [(Loss(tight.id, reason, 2),)]
    row = session_of(desk)
    assert (row.generated, row.queued, row.dropped, row.waiting) == (6, 4, {reason: 2}, 3)
    assert desk.waiting(tight.id) == 1
    assert row.queued_bytes == 3 * SIZE


def test_u02_the_reasons_of_one_gap_are_all_named(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, queue=QueuePolicy(notifications_max=2))
    desk.close(link)
    publish(desk, 3)
    desk.config = BrokerConfig(queue=QueuePolicy(notifications_max=1))
    desk.restart()
    publish(desk, 1, first=4)
    back = desk.attach()
    assert desk.stream(back) == [(1, 3), 4]
    (gap,) = desk.received(back, NotifyGap)
    assert [loss.reason for loss in gap.lost] == ["subscription.queue.notifications_max", "queue.notifications_max"]


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"user_queued_bytes_max": 3 * SIZE}, "user_queued_bytes_max"),
        ({"queued_bytes_max": 3 * SIZE}, "queued_bytes_max"),
    ],
)
def test_x23_the_session_with_the_most_bytes_gives_way(bounds: dict[str, int], reason: str) -> None:
    """The longest queue is shortened, also when the publish goes into a short one."""
    desk = Desk(BrokerConfig(**bounds))  # type: ignore[arg-type]
    for session, expression in (("long", "N < 4"), ("short", "N > 3")):
        link = desk.attach(session=session, device=session)
        desk.subscribed(link, expression)
        desk.close(link)
    publish(desk, 4)
    rows = {row.name: row for row in desk.broker.state.sessions_of(ALICE)}
    assert (rows["long"].dropped, rows["long"].waiting) == ({reason: 1}, 2)
    assert (rows["short"].dropped, rows["short"].waiting) == ({}, 1)
    assert desk.broker.state.queued_bytes == 3 * SIZE
    assert desk.stream(desk.attach(session="long", device="long")) == [(1, 1), 2, 3]


def test_u02_a_user_who_fills_their_own_bound_does_not_touch_others() -> None:
    desk = Desk(BrokerConfig(user_queued_bytes_max=2 * SIZE))
    away(desk)
    away(desk, CAROL, expression="N > 4")
    publish(desk, 5)
    assert session_of(desk).dropped == {"user_queued_bytes_max": 3}
    assert session_of(desk, CAROL).dropped == {}


def test_u02_notifications_for_a_device_that_left_take_no_room() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(when_full="drop_newest"), queued_bytes_max=3 * SIZE))
    away(desk)
    desk.attach(CAROL)
    laptop = desk.attach(CAROL, "laptop")
    desk.subscribed(laptop, this_device_only=True)
    desk.send(laptop, Leave(1))
    publish(desk, 3)
    assert session_of(desk, CAROL).dropped == {"device_left": 3}
    assert session_of(desk).dropped == {}
    assert desk.broker.state.queued_bytes == 3 * SIZE


def test_a_slow_device_receives_a_gap_caused_by_another_notification() -> None:
    """A connected session that gives way is sent the gap at once, without a new notification."""
    desk = Desk(BrokerConfig(queued_bytes_max=3 * SIZE, unacknowledged_max=1))
    slow = desk.attach()
    desk.subscribed(slow, "N < 4")
    away(desk, CAROL, expression="N > 3")
    publish(desk, 3)
    desk.take(slow, 1)
    assert desk.stream(slow) == [1, 2]
    publish(desk, 2, first=4)
    desk.take(slow, 2)
    assert desk.stream(slow) == [1, 2, 3]


# Refusing -----------------------------------------------------------------------------------------------------------


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"queue": QueuePolicy(notifications_max=2)}, "queue.notifications_max"),
    ({"queue": QueuePolicy(bytes_max=2 * SIZE)}, "queue.bytes_max"),
    ({"user_queued_bytes_max": 2 * SIZE}, "user_queued_bytes_max"),
    ({"queued_bytes_max": 3 * SIZE}, "queued_bytes_max"),
]


@pytest.mark.parametrize(("bounds", "limit"), REFUSALS, ids=[limit for _, limit in REFUSALS])
def test_u02_refuse_when_full_refuses_before_any_fan_out(bounds: dict[str, Any], limit: str) -> None:
    desk = Desk(BrokerConfig(refuse_when_full=("Ord*", "Trad?"), **bounds))
    away(desk)
    carol = desk.attach(CAROL)
    desk.subscribed(carol)
    bob = desk.attach(BOB)
    for n in (1, 2):
        desk.publish(bob, n)
        desk.take(carol, n)
    log = list(desk.log)
    desk.publish(bob, 3)
    (refused,) = desk.received(bob, PublishRefused)
    assert (refused.number, refused.limit) == (3, limit)
    assert "alice" not in refused.reason
    assert desk.log == log, "nothing is recorded of it"
    assert desk.stream(carol) == [1, 2]
    alice = desk.attach()
    desk.take(alice, 1)
    desk.publish(bob, 4)
    assert desk.accepted(bob) == [1, 2, 4]
    assert desk.stream(carol) == [1, 2, 4]
    assert session_of(desk).dropped == {}


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (QueuePolicy(notifications_max=1), "subscription.queue.notifications_max"),
        (QueuePolicy(bytes_max=SIZE, when_full="drop_newest"), "subscription.queue.bytes_max"),
        (QueuePolicy(bytes_max=SIZE - 1), "subscription.queue.bytes_max"),
    ],
)
def test_u02_a_subscription_does_not_stop_others_from_hearing_of_an_event_by_a_bound_of_its_own(
    own: QueuePolicy, reason: str
) -> None:
    desk = Desk(BrokerConfig(refuse_when_full=("*",)))
    away(desk, queue=own)
    carol = desk.attach(CAROL)
    desk.subscribed(carol)
    publish(desk, 3)
    assert desk.stream(carol) == [1, 2, 3]
    assert session_of(desk).dropped == {reason: 3 - session_of(desk).queued}
    kept = {"drop_newest": [1, (2, 3)]}.get(own.when_full or "", [(1, 2), 3] if own.notifications_max else [(1, 3)])
    assert desk.stream(desk.attach()) == kept


def test_u02_other_subjects_are_dropped_as_ever() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=1), refuse_when_full=("trade", "Order")))
    away(desk)
    publish(desk, 2)
    assert session_of(desk).dropped == {"queue.notifications_max": 1}


def test_h11_a_refused_event_leaves_the_frequency_as_it_was() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=1), refuse_when_full=("*",)))
    identity = away(desk, restrictions=(Frequency(10.0),))
    publish(desk, 1)
    last_us = desk.broker.state.subscriptions[identity].last_us
    desk.later(20.0)
    publish(desk, 1, first=2)
    assert desk.broker.state.subscriptions[identity].last_us == last_us
    desk.take(desk.attach(), 1)
    publish(desk, 1, first=3)
    assert session_of(desk).generated == 2


def test_g17_notifications_above_the_maximum_age_block_nobody() -> None:
    """A full queue whose notifications are all too old refuses nothing."""
    policy = QueuePolicy(notifications_max=1, age_max_s=10.0)
    desk = Desk(BrokerConfig(queue=policy, refuse_when_full=("*",), sweep_s=None))
    away(desk)
    publish(desk, 1)
    desk.later(11.0)
    publish(desk, 1, first=2)
    assert desk.stream(desk.attach()) == [(1, 1), 2]


# Age ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found_by", ["pump", "sweep"])
@pytest.mark.parametrize("whose", ["system", "subscription"])
def test_g17_notifications_above_the_maximum_age_are_not_delivered(
    found_by: Literal["pump", "sweep"], whose: Literal["system", "subscription"]
) -> None:
    policy = QueuePolicy(age_max_s=1200.0)
    sweep_s = 30.0 if found_by == "sweep" else None
    desk = Desk(BrokerConfig(queue=policy if whose == "system" else QueuePolicy(), sweep_s=sweep_s))
    identity = away(desk, queue=policy if whose == "subscription" else None)
    publish(desk, 2)
    desk.later(600.0)
    publish(desk, 1, first=3)
    desk.later(600.0)
    assert session_of(desk).waiting == 3, "20 minutes are not longer than 20 minutes"
    desk.later(31.0)
    if found_by == "sweep":
        assert session_of(desk).waiting == 1
    back = desk.attach()
    assert desk.stream(back) == [(1, 2), 3]
    reason = "queue.age_max_s" if whose == "system" else "subscription.queue.age_max_s"
    assert losses(desk, back) == [(Loss(identity, reason, 2),)]
    assert session_of(desk).dropped == {reason: 2}
    assert len(desk.written(records.Dropped)) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_g17_g18_a_shorter_age_of_a_subscription_takes_its_matches_alone(desk: Desk, ended: bool) -> None:
    """An ended subscription too: its queued notifications are delivered as before the end (SPEC G-07)."""
    link = desk.attach()
    short = desk.subscribed(link, "N > 1", queue=QueuePolicy(age_max_s=10.0))
    long = desk.subscribed(link, "N > 0", queue=QueuePolicy(age_max_s=100.0))
    desk.close(link)
    publish(desk, 3)
    if ended:
        link = desk.attach(session="other", device="other")
        desk.broker._subscriptions.end(short, "removed")
    desk.later(11.0)
    back = desk.attach()
    assert [notify.readers for notify in desk.received(back, Notify)] == [(desk.reading[back][long.id],)] * 3
    assert losses(desk, back) == [(Loss(short.id, "subscription.queue.age_max_s", 2),)]
    desk.close(back)
    desk.later(100.0)
    assert desk.stream(desk.attach()) == [(1, 3), (2, 3)]
    assert session_of(desk).queued == 0


def test_g17_a_slow_connected_device_receives_a_gap_for_old_notifications() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(age_max_s=10.0), unacknowledged_max=1, sweep_s=5.0))
    link = desk.attach()
    desk.subscribed(link)
    publish(desk, 3)
    desk.later(16.0)
    desk.take(link, 1)
    assert desk.stream(link) == [1, (2, 3)]
    desk.take(link, 3)
    publish(desk, 1, first=4)
    assert desk.stream(link) == [1, (2, 3), 4]
    assert session_of(desk).queued == 1


# Numbers that were sent before they were dropped --------------------------------------------------------------------


def test_a_number_that_was_sent_and_then_dropped_can_still_be_taken() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    link = desk.attach()
    desk.subscribed(link)
    publish(desk, 5)
    assert desk.stream(link) == [1, 2, 3, 4, 5]
    for number in (1, 2, 4, 5):
        desk.take(link, number)
    row = session_of(desk)
    assert (len(desk.broker.state.queue), row.delivered, row.dropped) == (0, 2, {"queue.notifications_max": 3})
    publish(desk, 1, first=6)
    assert desk.stream(link)[-1] == 6


def test_u02_each_subscription_gets_a_gap_for_its_own_loss() -> None:
    config = BrokerConfig(server="wb0123456789", queue=QueuePolicy(notifications_max=1))
    desk = Desk(config)
    link = desk.attach()
    for n in range(config.user_subscriptions_max):
        desk.subscribed(link, f"N > {-n}")
    desk.close(link)
    publish(desk, 3)
    back = desk.attach()
    desk.later(1.0)
    assert desk.stream(back) == [(1, 2)] * config.user_subscriptions_max + [3]
    assert session_of(desk).dropped == {"queue.notifications_max": 2 * config.user_subscriptions_max}


def test_events_are_kept_once_and_as_long_as_anybody_waits_for_them(desk: Desk) -> None:
    away(desk)
    away(desk, CAROL)
    publish(desk, 2)
    state = desk.broker.state
    assert (len(state.events), len(state.queue)) == (2, 4)
    desk.save()
    desk.restart(with_rows=True)
    state = desk.broker.state
    first, second = (next(iter(state.queue.ensure(f"{user}/default"))) for user in (ALICE, CAROL))
    assert first.event is second.event
    desk.take(desk.attach(), 2)
    assert len(state.events) == 2
    desk.take(desk.attach(CAROL), 2)
    assert (len(state.events), len(state.queue)) == (0, 0)
    desk.save()
    assert desk.rows["events"] == desk.rows["queue"] == {}
    publish(desk, 1, first=3)
    for user in (ALICE, CAROL):
        desk.take(desk.attach(user), 3)
    assert "events" not in desk.broker.state.changes(), "one that came and went is not for the store"


def test_a_publish_that_is_repeated_after_a_refusal_of_its_bound_is_a_new_try() -> None:
    """The refusal is not recorded, so there is no response to repeat: the agent may use the number once more."""
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=1), refuse_when_full=("*",)))
    away(desk)
    bob = desk.attach(BOB)
    again = Publish(2, Event(SUBJECT, {"N": 2}))
    desk.publish(bob, 1)
    desk.send(bob, again)
    desk.take(desk.attach(), 1)
    desk.send(bob, again)
    assert [type(m) for m in desk.out[bob][-2:]] == [PublishRefused, PublishAccepted]


def test_g15_the_longest_queues_are_looked_for_once_however_many_notifications_have_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An event that goes to everybody must not cost a look at everybody for each of them."""
    users = 60
    desk = Desk(BrokerConfig(queued_bytes_max=10 * SIZE))
    for n in range(users):
        away(desk, f"sip:user{n}@example.org")
    looks: list[int] = []

    def counted(session: SessionRow) -> int:
        looks.append(session.queued_bytes)
        return session.queued_bytes

    monkeypatch.setattr(bounds, "queued_bytes", counted)
    publish(desk, 1)
    assert desk.broker.state.queued_bytes == 10 * SIZE
    assert len(looks) <= 3 * users


def test_u02_the_longest_messages_fit() -> None:
    """The largest event, for as many subscriptions as a user may have; a gap with many reasons."""
    identities = tuple(f"wb0a1b2c-{10**9 + n}" for n in range(SUBSCRIPTIONS_MAX))
    event = msgspec.Raw(msgspec.msgpack.encode("x" * (EVENT_BYTES_MAX - 3)))
    readers = tuple(range(60_000, 60_000 + SUBSCRIPTIONS_MAX))
    notify = Notify(10**9, EventId("wb0a1b2c", 1, 10**9), event, identities, False, readers)
    assert len(encode(notify)) <= MESSAGE_BYTES_MAX
    lost = _losses(identities[0], QueuedGap(1, 2, {f"subscription.queue.policy-{n:050}": 10**9 for n in range(1_000)}))
    assert sum(loss.count for loss in lost) == 1_000 * 10**9
    assert len(encode(NotifyGap(10**9, 10**9, lost, 1))) <= MESSAGE_BYTES_MAX
    with pytest.raises(ValueError, match="user_subscriptions_max must be at most"):
        BrokerConfig(user_subscriptions_max=SUBSCRIPTIONS_MAX + 1)


# The longest queue gives way (SPEC G-25) ----------------------------------------------------------------------------


@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("bound", ["notifications_max", "bytes_max"])
def test_g25_a_subscription_that_nobody_reads_pushes_out_nothing_of_one_that_is_read(
    when_full: WhenFull, bound: str
) -> None:
    most = 10 if bound == "notifications_max" else 10 * SIZE
    desk = Desk(BrokerConfig(queue=QueuePolicy(**{bound: most}, when_full=when_full)))  # type: ignore[arg-type]
    link = desk.attach()
    unread = desk.subscribed(link, "Kind == unread", reads=False)
    read = desk.subscribed(link, "Kind == read")
    link = desk.attach(reads=False)
    bob = desk.attach(BOB)
    for n in range(1, 4):
        desk.publish(bob, n, Kind="read")
    for n in range(4, 24):
        desk.publish(bob, n, Kind="unread")
    assert desk.waiting(read.id) == 3
    desk.read(link, read.id)
    assert desk.stream(link) == [1, 2, 3]
    row = session_of(desk)
    assert row.dropped == {f"queue.{bound}": 20 - desk.waiting(unread.id)}


def test_g25_one_drop_serves_all_unread_subscriptions_that_share_its_event() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=10)))
    link = desk.attach()
    for n in range(99):
        desk.subscribed(link, f"N > -{n}", reads=False)
    desk.close(link)
    publish(desk, 30)
    assert len(desk.written(records.Dropped)) == 20
    assert (session_of(desk).waiting, session_of(desk).queued) == (10, 990)


def test_g25_entries_without_a_waiting_subscription_leave_memory_in_the_middle_of_a_queue(desk: Desk) -> None:
    link = desk.attach()
    desk.subscribed(link, "N == 1", reads=False)
    read = desk.subscribed(link, "N > 0")
    bob = desk.attach(BOB)
    for n in range(1, 1_001):
        desk.publish(bob, n)
        desk.take(link, n, read.id)
    assert (len(desk.broker.state.queue), len(desk.broker.state.events)) == (1, 1)
    desk.save()
    assert len(desk.rows["queue"]) == len(desk.rows["events"]) == 1


def test_g18_a_full_broker_does_not_search_all_sessions_for_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0
    all_sessions = bounds.QueueLimits._of_users

    def counted(limits: bounds.QueueLimits) -> list[SessionRow]:
        nonlocal searches
        searches += 1
        return all_sessions(limits)

    monkeypatch.setattr(bounds.QueueLimits, "_of_users", counted)
    desk = Desk(BrokerConfig(queued_bytes_max=20 * SIZE))
    for number in range(10):
        link = desk.attach(f"sip:user{number}@example.org")
        desk.subscribed(link)
        desk.close(link)
    publish(desk, 50)
    assert len(desk.written(records.Dropped)) == 10 * 48
    assert {row.waiting for row in desk.broker.state.sessions.values() if row.user != BOB} == {2}
    assert searches == 1
