"""T-05: a subscription that begins in the past gets each event once, in order, and continues live."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.desk import ALICE, BOB, START_US, SUBJECT, Desk, rows_of
from tests.filters.xml_schema import is_valid
from wanderbus.broker.history import catch_up
from wanderbus.broker.history.piece import read_piece
from wanderbus.broker.messages import HistoryRead
from wanderbus.broker.sessions.handover_messages import FenceSession, ImportSession
from wanderbus.event import EventId, Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Done,
    Notify,
    Renew,
    RequestRefused,
    Subscribe,
    SubscriptionEnded,
    Unsubscribe,
    presentation,
)
from wanderbus.records import Published, Replayed, Subscribed, decode_record
from wanderbus.subscription import Daily, Frequency, Interval, QueuePolicy, Since

CAROL = "sip:carol@example.org"
EARLIEST = Since()


def with_past(desk: Desk, count: int = 5) -> int:
    """Publish events 1 to ``count`` while nobody subscribes; return the publisher's link."""
    link = desk.attach(BOB, "desk")
    for n in range(1, count + 1):
        desk.publish(link, n)
    return link


def offset_of(desk: Desk, n: int) -> int:
    """The offset of the event ``n``."""
    return next(
        offset
        for offset, frame in enumerate(desk.frames)
        if isinstance(record := decode_record(frame.payload), Published) and record.event["N"] == n
    )


def is_live(desk: Desk, subscription: str) -> bool:
    return not desk.broker.state.subscriptions[subscription].history


def drain(desk: Desk, link: int) -> None:
    """Read and acknowledge until nothing is left."""
    for _ in range(200):
        while desk.pieces:
            desk.read_history()
        received = desk.received(link, Notify)
        if received:
            desk.take(link, received[-1].number)
        desk.later(0.2)
        if not desk.pieces and not desk.broker.state.queue:
            return


def test_t05_the_past_comes_first_and_new_events_follow(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    subscription = desk.subscribed(phone, since=EARLIEST)
    desk.publish(publisher, 6)
    assert desk.stream(phone) == [1, 2, 3, 4, 5, 6]
    assert [each.is_history for each in desk.received(phone, Notify)] == [True] * 5 + [False]
    assert is_live(desk, subscription.id)
    assert subscription.since == EARLIEST


def test_t05_only_matching_events_of_the_subject_come(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.publish(publisher, 6, subject="Other")
    desk.subscribed(phone, "N > 3", since=EARLIEST)
    assert desk.stream(phone) == [4, 5]


def test_t05_events_published_while_the_last_piece_is_read_are_held(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    subscription = desk.subscribed(phone, since=EARLIEST)
    for n in (6, 7):
        desk.publish(publisher, n)
    assert desk.stream(phone) == []
    desk.read_history()
    desk.publish(publisher, 8)
    assert desk.stream(phone) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert is_live(desk, subscription.id)
    assert [each.is_history for each in desk.received(phone, Notify)] == [True] * 5 + [False] * 3


def test_t05_too_many_held_events_are_read_from_the_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "HELD_MAX", 2)
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    desk.subscribed(phone, since=EARLIEST)
    for n in (6, 7, 8):
        desk.publish(publisher, n)
    drain(desk, phone)
    desk.publish(publisher, 9)
    assert desk.stream(phone) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_t05_a_piece_ends_with_durable_records(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    desk.held = True
    desk.give()
    desk.send(phone, Subscribe(90, SUBJECT, "", None, (), False, since=EARLIEST))
    desk.publish(publisher, 6)
    assert not desk.pieces
    desk.sync()
    assert desk.pieces[0].end <= len(desk.log)


@pytest.mark.parametrize("with_rows", [True, False])
@pytest.mark.parametrize("moment", ["asked", "in the middle", "live"])
def test_t05_a_killed_broker_continues_at_the_cursor(
    desk: Desk, moment: str, with_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "PIECE_RECORDS_MAX", 3)
    publisher, phone = with_past(desk, 9), desk.attach()
    desk.reads_history = False
    desk.subscribed(phone, since=EARLIEST)
    desk.publish(publisher, 10)
    if moment != "asked":
        desk.read_history()
        desk.later(1)
        desk.read_history()
    if moment == "live":
        drain(desk, phone)
    if with_rows:
        desk.save()
    before = desk.stream(phone)
    desk.restart(with_rows=with_rows)
    assert rows_of(desk.broker.state) == rows_of(desk.recovered(from_log_alone=True))
    publisher, phone = desk.attach(BOB, "desk", epoch=2), desk.attach(epoch=2)
    desk._published[publisher] = 0
    desk.publish(publisher, 11)
    drain(desk, phone)
    seen = list(before)
    seen += [n for n in desk.stream(phone) if n not in seen]
    assert seen == list(range(1, 12))


def test_t05_since_a_time_an_event_or_a_position(desk: Desk) -> None:
    publisher = desk.attach(BOB, "desk")
    for n in range(1, 6):
        desk.publish(publisher, n)
        desk.later(1)
    phone = desk.attach()
    at = Since(at_us=START_US + 2_000_000)
    desk.subscribed(phone, "N > 0", since=at)
    assert desk.stream(phone) == [3, 4, 5]
    number = desk.received(phone, Notify)[1].number
    state = desk.broker.state
    event = EventId(state.server, state.incarnation, offset_of(desk, 1))
    desk.subscribed(phone, "N > 1", since=Since(event=event))
    assert desk.stream(phone) == [3, 4, 5, 2, 3, 4, 5]
    desk.subscribed(phone, "N > 2", since=Since(position=Position(desk.epoch(), number)))
    assert desk.stream(phone) == [3, 4, 5, 2, 3, 4, 5, 5]


@pytest.mark.parametrize(
    ("since", "reason"),
    [
        (Since(at_us=START_US + 10**9), "is in the future"),
        (Since(event=EventId("other", 1, 1)), "has no such event"),
        (Since(position=Position(1, 1)), "has no such notification"),
        (Since(at_us=1, position=Position(1, 1)), "since names one point"),
    ],
)
def test_t05_points_that_are_not_in_the_past_are_refused(desk: Desk, since: Since, reason: str) -> None:
    with_past(desk)
    answer = desk.subscribe(desk.attach(), since=since)
    assert isinstance(answer, RequestRefused)
    assert reason in answer.reason
    assert "\n" not in answer.reason


def test_t05_a_removed_past_is_refused_with_the_reason(desk: Desk) -> None:
    with_past(desk)
    desk.log_begins = 4
    state = desk.broker.state
    answer = desk.subscribe(desk.attach(), since=Since(event=EventId(state.server, state.incarnation, 1)))
    assert answer == RequestRefused(1, "the log begins at record 4")
    assert not desk.broker.state.subscriptions


def test_t05_a_subscription_ends_if_its_history_is_removed_meanwhile(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    subscription = desk.subscribed(phone, since=EARLIEST)
    desk.log_begins = 4
    desk.read_history()
    assert [each.reason for each in desk.history_failures] == ["the log has no record 0"]
    assert [each.reason for each in desk.received(phone, SubscriptionEnded)] == ["history_failed"]
    desk.send(phone, Renew(91, subscription.id, None))
    desk.publish(publisher, 6)
    assert desk.stream(phone) == [6]


def test_t05_a_subscription_whose_source_is_away_asks_again_while_others_read_on(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    waiting = desk.subscribed(phone, "N >= 0", since=EARLIEST)
    piece = desk.pieces.pop(0)
    desk.give(HistoryRead(piece.piece, piece.first, failed="the lake is away", retry_s=2.0))
    other = desk.subscribed(phone, since=EARLIEST)
    desk.read_history()
    desk.publish(publisher, 6)
    desk.later(1.9)
    assert is_live(desk, other.id)
    assert not desk.pieces
    desk.later(0.2)
    assert [each.subscription.id for each in desk.pieces] == [waiting.id]
    drain(desk, phone)
    assert is_live(desk, waiting.id)
    assert not desk.history_failures
    assert Counter(desk.stream(phone)) == dict.fromkeys(range(1, 7), 2)


def test_t05_the_same_request_finds_the_subscription_only_with_the_same_point(desk: Desk) -> None:
    with_past(desk)
    phone = desk.attach()
    first = desk.subscribed(phone, since=EARLIEST)
    assert desk.subscribed(phone, since=EARLIEST).id == first.id
    assert desk.stream(phone) == [1, 2, 3, 4, 5]
    assert desk.subscribed(phone).id != first.id


def test_t05_reading_the_past_drops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=4, when_full="drop_oldest")))
    publisher, phone = with_past(desk, 30), desk.attach()
    subscription = desk.subscribed(phone, since=EARLIEST)
    assert desk.waiting(subscription.id) <= 4
    desk.publish(publisher, 31)
    drain(desk, phone)
    assert desk.stream(phone) == list(range(1, 32))
    assert is_live(desk, subscription.id)


def test_t05_nothing_is_read_while_nobody_takes(desk: Desk) -> None:
    with_past(desk, 3)
    phone = desk.attach(reads=False)
    subscription = desk.subscribed(phone, since=EARLIEST, reads=False, queue=QueuePolicy(notifications_max=1))
    desk.later(600)
    assert desk.waiting(subscription.id) == 1
    assert sum(len(each.events) for each in desk.written(Replayed)) == 1


def test_t05_an_old_event_does_not_wait_too_long_at_once() -> None:
    desk = Desk(BrokerConfig(queue=QueuePolicy(age_max_s=60)))
    with_past(desk)
    desk.later(3600)
    phone = desk.attach()
    desk.subscribed(phone, since=EARLIEST)
    assert desk.stream(phone) == [1, 2, 3, 4, 5]


def test_t05_restrictions_use_the_time_of_each_event(desk: Desk) -> None:
    publisher = desk.attach(BOB, "desk")
    for n in range(1, 7):
        desk.publish(publisher, n)
        desk.later(10)
    phone = desk.attach()
    desk.subscribed(phone, "N > 0", since=EARLIEST, restrictions=(Frequency(20),))
    assert desk.stream(phone) == [1, 3, 5]
    window = Interval(START_US + 15_000_000, START_US + 35_000_000)
    desk.subscribed(phone, "N >= 0", since=EARLIEST, restrictions=(window,))
    assert desk.stream(phone)[3:] == [3, 4]
    assert desk.broker.state.sessions[f"{ALICE}/default"].restricted == 3 + 4
    never = Daily("00:00", "00:01", "UTC")
    desk.subscribed(phone, "N > -1", since=EARLIEST, restrictions=(never,))
    assert len(desk.stream(phone)) == 5


def test_t05_history_is_paced(desk: Desk) -> None:
    desk = Desk(BrokerConfig(backlog_per_s=100, unacknowledged_max=1_000))
    with_past(desk, 599)
    desk.later(2.0)
    phone = desk.attach()
    desk.subscribed(phone, since=EARLIEST)
    assert len(desk.stream(phone)) == catch_up.PIECE_EVENTS_MAX
    desk.later(2.6)
    assert len(desk.stream(phone)) == 2 * catch_up.PIECE_EVENTS_MAX
    desk.later(2.6)
    assert desk.stream(phone) == list(range(1, 600))


def test_u03_history_is_not_paced_while_nobody_else_is_active() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=1_000))
    with_past(desk, 599)
    desk.later(2.0)
    phone = desk.attach()
    desk.subscribed(phone, since=EARLIEST)
    assert desk.stream(phone) == list(range(1, 600))


def test_u03_history_leaves_room_for_others_who_are_active() -> None:
    desk = Desk(BrokerConfig(unacknowledged_max=1_000))
    with_past(desk, 599)
    phone = desk.attach()
    desk.subscribed(phone, since=EARLIEST)
    assert len(desk.stream(phone)) == catch_up.PIECE_EVENTS_BESIDE
    desk.later(0.05)
    assert len(desk.stream(phone)) <= 0.06 * 2_000
    desk.later(2.0)
    assert desk.stream(phone) == list(range(1, 600))


def test_t05_every_device_of_a_session_gets_the_past(desk: Desk) -> None:
    publisher, phone, tablet = with_past(desk), desk.attach(), desk.attach(device="tablet")
    desk.reads_history = False
    desk.subscribed(phone, since=EARLIEST)
    desk.close(tablet)
    desk.publish(publisher, 6)
    desk.read_history()
    tablet = desk.attach(device="tablet", epoch=1)
    assert desk.stream(phone) == desk.stream(tablet) == [1, 2, 3, 4, 5, 6]
    assert [each.is_history for each in desk.received(tablet, Notify)] == [True] * 5 + [False]


def test_t05_a_subscription_that_ends_reads_no_further_and_continues_when_it_is_renewed(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    subscription = desk.subscribed(phone, since=EARLIEST)
    desk.ask(phone, Unsubscribe(50, subscription.id))
    desk.publish(publisher, 6)
    desk.read_history()
    assert desk.stream(phone) == []
    desk.send(phone, Renew(51, subscription.id, None))
    desk.publish(publisher, 7)
    drain(desk, phone)
    assert desk.stream(phone) == [1, 2, 3, 4, 5, 6, 7]


def test_t05_a_subscription_that_is_revived_during_its_last_piece_reads_what_it_missed(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    subscription = desk.subscribed(phone, since=EARLIEST)
    desk.ask(phone, Unsubscribe(50, subscription.id))
    desk.publish(publisher, 6)
    desk.send(phone, Renew(51, subscription.id, None))
    desk.publish(publisher, 7)
    drain(desk, phone)
    assert desk.stream(phone) == [1, 2, 3, 4, 5, 6, 7]


def test_t05_the_successor_of_an_ended_subscription_continues_where_it_was(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 2)
    with_past(desk)
    phone = desk.attach()
    desk.reads_history = False
    ended = desk.subscribed(phone, since=EARLIEST)
    desk.read_history()
    desk.take(phone, 2)
    desk.ask(phone, Unsubscribe(50, ended.id))
    request = Subscribe(51, SUBJECT, "", None, (), False, reader=77, since=EARLIEST, succeeds=ended.id)
    desk.send(phone, request)
    successor = desk.received(phone, Done)[-1].subscriptions[0]
    desk.reading[phone] = {successor.id: 77}
    drain(desk, phone)
    assert desk.stream(phone) == [1, 2, 3, 4, 5]
    assert successor.id != ended.id
    assert desk.written(Subscribed)[-1].inherits == ended.id


def test_t05_the_cursor_moves_with_its_session(desk: Desk) -> None:
    publisher, phone = with_past(desk), desk.attach()
    desk.reads_history = False
    desk.subscribed(phone, since=EARLIEST)
    desk.publish(publisher, 6)
    desk.perform(desk.step(FenceSession(ALICE, "default", 2)))
    export = desk.broker.state.exports[f"{ALICE}/default"].export
    other = Desk(BrokerConfig(server="other"))
    other.reads_history = False
    other.give(ImportSession(export))
    (row,) = other.broker.state.subscriptions.values()
    assert [(each.server, each.next, each.end is None) for each in row.history] == [
        ("wb", 0, False),
        ("other", other.broker.state.offset, True),
    ]
    (wanted,) = other.pieces
    assert (wanted.server, wanted.first) == ("wb", 0)
    assert rows_of(other.broker.state) == rows_of(other.recovered(from_log_alone=True))
    other.pieces.clear()  # answered here, because it is of the former owner's log
    other.give(read_piece(wanted, desk.frames))
    phone = other.attach()
    drain(other, phone)
    assert other.stream(phone) == [1, 2, 3, 4, 5, 6]


def test_t05_the_first_needed_record_is_that_of_the_cursor_furthest_behind(desk: Desk) -> None:
    with_past(desk)
    assert desk.broker.state.first_needed() == {}
    phone = desk.attach()
    desk.reads_history = False
    state = desk.broker.state
    desk.subscribed(phone, since=Since(event=EventId(state.server, state.incarnation, 3)))
    ended = desk.subscribed(phone, "N > 0", since=EARLIEST)
    desk.ask(phone, Unsubscribe(50, ended.id))
    assert desk.broker.state.first_needed() == {"subscriptions": 0}
    drain(desk, phone)
    assert desk.broker.state.first_needed() == {"subscriptions": 0}
    desk.later(desk.config.tombstone_s + 600)
    assert desk.broker.state.first_needed() == {}


def test_t05_the_past_comes_in_xml_too(desk: Desk) -> None:
    publisher, phone = with_past(desk, 1), desk.attach()
    desk.subscribed(phone, since=EARLIEST, format="xml")
    desk.publish(publisher, 2)
    read = [presentation.read(each, desk.epoch()) for each in desk.received(phone, Notify)]
    assert [(each.event["N"], each.is_history) for each in read] == [(1, True), (2, False)]
    assert all(each.xml is not None and is_valid(each.xml) for each in read)


def test_t05_users_take_turns_however_many_subscriptions_they_have(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "PIECE_RECORDS_MAX", 2)
    with_past(desk, 6)
    phone, other = desk.attach(), desk.attach(CAROL, "tablet")
    desk.reads_history = False
    for n in range(5):
        desk.subscribed(phone, f"N > {n + 100}", since=EARLIEST)
    desk.subscribed(other, "N > 100", since=EARLIEST)
    owners = []
    for _ in range(6):
        owners.append(desk.pieces[0].subscription.owner)
        desk.read_history()
    assert owners.count(CAROL) in (2, 3)


def test_t05_an_answer_for_another_piece_changes_nothing(desk: Desk) -> None:
    with_past(desk)
    phone = desk.attach()
    desk.reads_history = False
    desk.subscribed(phone, since=EARLIEST)
    length = len(desk.log)
    desk.give(HistoryRead(77, 3))
    assert len(desk.log) == length
    drain(desk, phone)
    assert desk.stream(phone) == [1, 2, 3, 4, 5]
