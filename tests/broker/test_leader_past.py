"""T-05: a subscription to a channel of another server begins in the past, and has one seam (SPEC K-02, K-03)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import named, rows_of
from wanderbus.broker.history import catch_up
from wanderbus.broker.history.leader_pieces import RETRY_S
from wanderbus.broker.messages import AskLeader, EventArrived, InterestEffective, LeaderAnswered, LeaderEventsLost
from wanderbus.broker.state.exported_session import decode_export, encode_export, export_session
from wanderbus.broker.state.replays import continued
from wanderbus.broker.state.rows import LogSpan
from wanderbus.event import Event, EventId, Position
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Done,
    ListEvents,
    Listing,
    Renew,
    RequestRefused,
    Subscribe,
    SubscriptionEnded,
    Unsubscribe,
    encode_event,
)
from wanderbus.records import Replayed, Subscribed
from wanderbus.subscription import Since

INCARNATION = 3


class PastDesk(AccessDesk):
    """A desk that collects the questions to the leader ``north``, whose events have their offset there as ``N``."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.asked: list[ListEvents] = []
        self.arrivals = 0
        super().__init__(config)

    def perform(self, outputs: Sequence[Output]) -> None:
        """Collect the questions, and execute the others."""
        asked = [each for each in outputs if isinstance(each, AskLeader)]
        assert {each.leader for each in asked} <= {"north"}
        self.asked += [each.request for each in asked if isinstance(each.request, ListEvents)]
        super().perform(outputs)

    def answer(self, *numbers: int, end: int, is_at_end: bool = True, incarnation: int = INCARNATION) -> None:
        """Answer the oldest question with these events, all below ``end``."""
        question = self.asked.pop(0)
        head: dict[str, Any] = {"incarnation": incarnation, "end": end}
        rows = [self._row(number) for number in numbers]
        listing = Listing(question.request, (head, *rows), next=None if is_at_end else str(end))
        self.give(LeaderAnswered(listing))

    def _row(self, number: int) -> dict[str, Any]:
        event = msgspec.msgpack.decode(encode_event(Event(NORTHERN, {"N": number})))
        return {"number": number, "id": ["north", INCARNATION, number], "at_us": self.wall_us, "event": event}

    def refuse(self, reason: str = "north cannot be reached now") -> None:
        """Refuse the oldest question."""
        self.give(LeaderAnswered(RequestRefused(self.asked.pop(0).request, reason)))

    def sends(self, number: int) -> None:
        """Let the event at this offset of the leader arrive."""
        self.arrivals += 1
        event, place = Event(NORTHERN, {"N": number}), EventId("north", INCARNATION, number)
        self.give(EventArrived("north", 5, self.arrivals, self.arrivals - 1, place, self.wall_us, event))

    def count(self) -> None:
        """Let all subscriptions count that were reported since the last call."""
        self.give(*[InterestEffective((name,)) for change in self.changes() for name in change.added])

    def since(self, link: int, since: Since | None = None, **options: Any) -> None:
        """Request a subscription that begins in the past."""
        request = Subscribe(1, NORTHERN, "N >= 0", None, (), False, reader=1, since=since or Since(), **options)
        self.send(link, request)

    def begun(self, link: int, first: int = 4) -> None:
        """Begin a subscription at this offset, which counts."""
        self.since(link)
        self.answer(end=first)
        self.count()


@pytest.fixture
def desk() -> PastDesk:
    return PastDesk()


def numbers(desk: PastDesk, link: int) -> list[object]:
    """The ``N`` of each event that was sent on a link."""
    return named(desk.out[link])


def test_its_place_is_looked_up_at_the_leader_and_it_is_read_once_it_counts(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.since(alice, Since(at_us=7))
    assert desk.asked == [ListEvents(1, NORTHERN, since=Since(at_us=7), epoch=1)]
    assert desk.changes() == []
    desk.answer(end=4)
    (record,) = desk.written(Subscribed)
    assert (record.history, record.log) == (4, ("north", INCARNATION))
    assert (desk.asked, desk.received(alice, Done)) == ([], [])
    desk.count()
    assert len(desk.received(alice, Done)) == 1
    assert desk.asked == [ListEvents(2, NORTHERN, 4, limit=256, expression="N >= 0", epoch=1)]


def test_history_arrivals_and_new_events_join_at_the_end_of_the_answer(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    for number in (5, 7, 10, 12):
        desk.sends(number)  # 5 and 7 are below the end of the answer
    assert numbers(desk, alice) == []
    desk.answer(5, 7, 8, end=9)
    assert numbers(desk, alice) == [5, 7, 8, 10, 12]
    desk.sends(8)
    desk.sends(13)
    assert numbers(desk, alice) == [5, 7, 8, 10, 12, 13]
    replayed = desk.written(Replayed)[-1]
    assert (replayed.log, replayed.read_below) == (("north", INCARNATION), 9)


def test_arrivals_that_were_read_are_discarded_also_after_a_restart(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.answer(5, 7, end=9)
    live = rows_of(desk.broker.state)
    desk.restart()
    assert rows_of(desk.broker.state)["subscriptions"] == live["subscriptions"]
    link = desk.attach(resume=2)
    desk.sends(7)
    desk.sends(8)
    desk.sends(9)
    assert numbers(desk, link) == [9]


def test_an_event_of_a_new_log_of_the_leader_is_not_taken_for_one_that_was_read(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.answer(end=9)
    event = Event(NORTHERN, {"N": 2})
    desk.give(EventArrived("north", 6, 1, 0, EventId("north", INCARNATION + 1, 2), desk.wall_us, event))
    assert numbers(desk, alice) == [2]


def test_a_piece_that_more_follows_is_no_seam(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.sends(12)
    desk.answer(5, end=6, is_at_end=False)
    desk.later(1.0)
    assert desk.asked[0].first == 6
    desk.sends(13)
    desk.answer(7, 12, end=13)
    assert numbers(desk, alice) == [5, 7, 12, 13]


def test_a_crash_before_the_seam_reads_again_from_the_durable_cursor(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.answer(5, end=6, is_at_end=False)
    desk.later(1.0)
    desk.sends(12)
    desk.asked.clear()
    desk.restart()
    link = desk.attach(resume=1)
    assert desk.asked == []
    desk.count()
    assert [(each.first, each.expression) for each in desk.asked] == [(6, "N >= 0")]
    desk.answer(12, end=13)
    assert numbers(desk, link) == [12]


def test_a_leader_that_cannot_be_reached_is_asked_again_and_nothing_is_lost(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.sends(8)
    desk.refuse()
    assert desk.asked == []
    desk.later(RETRY_S)
    desk.answer(8, end=9)
    assert numbers(desk, alice) == [8]


def test_a_lookup_that_the_leader_refuses_is_refused_to_the_user(desk: PastDesk) -> None:
    alice = desk.attach()
    desk.since(alice)
    desk.refuse("north, which leads the channel of 'Northern', cannot be reached now; try again later")
    (refused,) = desk.received(alice, RequestRefused)
    assert "cannot be reached now" in refused.reason
    assert desk.written(Subscribed) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subject": "*"}, "in the logs of north and south, without a common order"),
        ({"since": Since(position=Position(1, 2))}, "in the log of north, where this position means nothing"),
        ({"since": Since(at_us=1, event=EventId("north", 3, 1))}, "since names one point"),
    ],
)
def test_a_past_that_cannot_be_read_is_refused_at_once(desk: PastDesk, options: Any, reason: str) -> None:
    alice = desk.attach()
    answer = desk.subscribe(alice, **({"subject": NORTHERN, "since": Since()} | options))
    assert isinstance(answer, RequestRefused)
    assert reason in answer.reason
    assert desk.asked == []


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"incarnation": 9, "end": 9}, "north has begun a new log"),
        ({"incarnation": 3, "end": 9, "failed": "the disk is broken"}, "the disk is broken"),
    ],
)
def test_a_past_that_is_lost_ends_the_subscription_with_the_reason(desk: PastDesk, head: Any, reason: str) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.give(LeaderAnswered(Listing(desk.asked.pop(0).request, (head,))))
    assert [each.reason for each in desk.received(alice, SubscriptionEnded)] == ["history_failed"]
    assert reason in desk.history_failures[0].reason


def test_records_that_the_leader_has_removed_end_the_subscription(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    head: dict[str, Any] = {"incarnation": INCARNATION, "end": 9}
    desk.give(LeaderAnswered(Listing(desk.asked.pop(0).request, (head, {"kept_from": 6}))))
    assert "north keeps no record below 6 any more; 4 was next" in desk.history_failures[0].reason


@pytest.mark.parametrize("rows", [(), ({"number": 5},), ({"incarnation": "three"},)])
def test_an_answer_of_another_version_is_no_end_of_the_past(desk: PastDesk, rows: Any) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.give(LeaderAnswered(Listing(desk.asked.pop(0).request, rows)))
    desk.later(RETRY_S)
    desk.answer(5, end=9)
    assert numbers(desk, alice) == [5]


def test_events_that_are_lost_on_their_way_are_read_at_the_leader(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.give(LeaderEventsLost("north", 5, 0, 3, 3, "log_keep"))
    desk.arrivals = 3
    desk.answer(end=4)
    desk.later(1.0)
    desk.sends(9)
    desk.answer(5, 6, 9, end=10)
    desk.sends(10)
    assert numbers(desk, alice) == [5, 6, 9, 10]


def test_too_many_held_events_are_read_at_the_leader(desk: PastDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "HELD_MAX", 2)
    alice = desk.attach(reads=False)
    desk.begun(alice)
    for number in (10, 11, 12):
        desk.sends(number)
    desk.answer(5, end=9)
    assert numbers(desk, alice) == [5]
    desk.later(1.0)
    desk.answer(10, 11, 12, end=13)
    assert numbers(desk, alice) == [5, 10, 11, 12]


def test_a_renewed_subscription_goes_on_at_its_cursor_once_it_counts_again(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    identity = desk.received(alice, Done)[0].subscriptions[0].id
    desk.send(alice, Unsubscribe(2, identity))
    desk.answer(5, end=9)
    desk.send(alice, Renew(3, identity, None))
    assert desk.asked == []
    desk.count()
    assert [each.first for each in desk.asked] == [4]
    desk.answer(5, 6, end=9)
    assert numbers(desk, alice) == [5, 6]


def test_a_piece_of_the_time_before_a_renewal_is_no_seam(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    identity = desk.received(alice, Done)[0].subscriptions[0].id
    desk.send(alice, Unsubscribe(2, identity))
    desk.sends(8)
    desk.send(alice, Renew(3, identity, None))
    desk.count()
    desk.answer(5, end=7)
    desk.later(1.0)
    assert [each.first for each in desk.asked] == [7]
    desk.answer(8, end=9)
    assert numbers(desk, alice) == [5, 8]


def test_a_leader_that_does_not_answer_holds_back_no_log_of_this_server(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.publish(alice, 1, OWN)
    desk.begun(alice)
    desk.subscribed(alice, subject=OWN, since=Since())
    assert len(desk.asked) == 1
    assert numbers(desk, alice) == [1]


def test_an_exported_session_keeps_the_cursor_in_the_log_of_the_leader(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    exported = export_session(desk.broker.state, "sip:alice@example.org", "default", 2)
    (row,) = decode_export(encode_export(exported)).subscriptions
    assert row.history == (LogSpan("north", INCARNATION, 4, epoch=1),)
    continued(desk.broker.state, row)
    assert row.history == (LogSpan("north", INCARNATION, 4, epoch=1),)


def test_a_position_of_an_event_that_was_read_at_the_leader_is_a_place_in_the_own_log(desk: PastDesk) -> None:
    alice = desk.attach(reads=False)
    desk.begun(alice)
    desk.answer(500, end=900)
    desk.publish(alice, 7, OWN)
    desk.subscribed(alice, subject=OWN, since=Since(position=Position(desk.epoch(), 1)))
    assert numbers(desk, alice) == [500, 7]
