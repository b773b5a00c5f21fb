"""Sessions with patterns that move: the target steps through its log before time goes on (SPEC L-01, T-07)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.broker.access_desk import NORTHERN
from tests.broker.desk import ALICE, BOB, rows_of
from tests.broker.test_awaited_sessions import (
    EPOCH,
    Access,
    Server,
    awaiting,
    exported,
    fence,
    head_of,
    north_head,
    server,
)
from tests.broker.test_long_queues import LongMove
from wanderbus.broker.explanation import Explanation
from wanderbus.broker.sessions.handover_messages import AwaitedEffective, ImportSession, SessionMoveRefused
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import NotifyGap, Renew, Unsubscribe
from wanderbus.records import Published, Replayed, decode_record
from wanderbus.subscription import PATTERN, Subscription

ABSENCE = """pattern calm match A: Trade (N == 1) then not C: Trade (N == 2) then B: Trade (N == 3)
within 1 hour emit calm with N = B.N"""
PAIRS = "pattern pairs match A: Trade then B: Trade within 1 minute emit pairs with N = A.N + B.N / 10"


def subscribed(desk: Server, link: int, text: str = ABSENCE, subject: str = "calm") -> Subscription:
    return desk.subscribed(link, text, subject=subject, language=PATTERN)


class Move:
    """Alice's session of ``south`` with a pattern, which has seen ``before``; ``west`` awaits it, and Bob is there."""

    def __init__(self, *before: int, text: str = ABSENCE, subject: str = "calm", west: Server | None = None) -> None:
        self.source, self.target = server("south"), west or server("west")
        self.phone = self.source.attach(ALICE, "phone")
        self.subscription = subscribed(self.source, self.phone, text, subject)
        at_source = self.source.attach(BOB, "desk")
        for n in before:
            self.source.publish(at_source, n)
        awaiting(self.target, self.subscription)
        self.bob = self.target.attach(BOB, "desk")
        self.head = head_of(self.target)

    def publish(self, *several: int) -> None:
        """Publish at the target, one event a second."""
        for n in several:
            self.target.publish(self.bob, n)
            self.target.later(1.0)

    def go(self, *, reads: bool = True) -> None:
        """Move the session; the target reads its log at once, or when a test lets it."""
        self.target.reads_history = reads
        fence(self.source, self.head)
        self.target.give(ImportSession(exported(self.source)))

    def found(self) -> list[object]:
        """The stream of the session at the target."""
        return self.target.stream(self.target.attach(ALICE, "phone", epoch=2))

    def check(self) -> None:
        """Assert that the state is that of the log, and of the rows with the log."""
        state = self.target.broker.state
        assert rows_of(self.target.recovered(from_log_alone=True)) == rows_of(state)
        assert rows_of(self.target.recovered()) == rows_of(state)


@pytest.mark.parametrize(
    ("before", "behind", "live", "found"),
    [
        ((1,), (2,), (3,), []),
        ((1,), (2,), (3, 3), []),
        ((1,), (2, 3), (), []),
        ((1,), (3,), (), [3]),
        ((1,), (), (3,), [3]),
        ((), (1,), (3,), [3]),
        ((), (1, 2), (3,), []),
        ((1, 2), (1,), (3,), [3]),
        ((1, 3), (1,), (2, 3), [3]),
    ],
)
@pytest.mark.parametrize("is_apart", [False, True])
def test_l01_a_pattern_goes_on_with_what_came_meanwhile(
    before: Sequence[int], behind: Sequence[int], live: Sequence[int], found: Sequence[int], is_apart: bool
) -> None:
    move = Move(*before)
    move.target.offset_us = -50_000_000 if is_apart else 0
    move.publish(*behind)
    move.go(reads=False)
    move.publish(*live)
    move.target.later(120.0)
    move.check()
    move.target.read_history()
    move.target.later(120.0)
    assert move.found() == list(found)
    move.check()


def test_l01_the_clock_does_not_go_on_before_the_log_is_read() -> None:
    """An hour passes at the target, in which it has B and has not read C yet."""
    move = Move(1)
    move.publish(2)
    move.go(reads=False)
    move.publish(3)
    move.target.later(1_800.0)
    pattern = move.target.broker.state.patterns
    assert pattern.next_us is None
    assert pattern.kept(move.subscription.id) == 1, "nothing that came at the target has a place before it"
    move.target.read_history()
    move.target.later(7_200.0)
    assert move.found() == []


def test_l01_an_absence_is_certain_once_the_log_is_read() -> None:
    text = "pattern silent match A: Trade (N == 1) then not B: Trade (N == 2) within 1 minute emit silent with N = A.N"
    move = Move(1, text=text, subject="silent")
    move.publish(2)
    move.go(reads=False)
    move.target.later(600.0)
    move.target.read_history()
    move.target.later(600.0)
    assert move.found() == []


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("step", ["imported", "read", "live"])
def test_l01_a_target_that_restarts_at_a_step_goes_on(step: str, with_rows: bool) -> None:
    move = Move(1)
    target = move.target
    move.publish(4, 1)
    move.go(reads=step != "imported")
    if step == "live":
        move.publish(4)
    if with_rows:
        target.save()
    target.restart(with_rows=with_rows)
    move.bob = target.attach(BOB, "desk", epoch=2)
    move.publish(3)
    if step == "imported":
        target.reads_history = True
        target.read_history()
    target.later(1.0)
    move.check()
    assert move.found() == [3, 3], "each 1 begins a match"


def test_l01_events_that_the_source_had_are_passed_over() -> None:
    """West has published 1, which came to the source before the fence, as the head says."""
    move = Move(text=PAIRS, subject="pairs")
    move.publish(1)
    move.head = head_of(move.target)
    move.publish(2, 3)
    move.go()
    move.target.later(120.0)
    assert move.found() == [2.3]


def test_l01_events_that_arrive_late_and_lie_before_the_cut_are_not_taken_again() -> None:
    source, target = Access(), Access(BrokerConfig(server="south", domain="example.org"))
    wanted = source.subscribed(source.attach(), PAIRS.replace("Trade", NORTHERN), subject="pairs", language=PATTERN)
    awaiting(target, wanted, source="south")
    source.arrives(1)
    source.arrives(2)
    source.later(1.0)
    fence(source, north_head(2, 1))
    target.give(ImportSession(exported(source)))
    for number in (1, 2, 3):
        target.arrives(number)
    target.later(120.0)
    assert target.stream(target.attach(ALICE, "phone", epoch=2)) == [1.2, 2.3]


def test_l01_one_event_can_be_for_a_filter_and_for_a_pattern() -> None:
    source, target = server("south"), server("west")
    phone = source.attach(ALICE, "phone")
    both = subscribed(source, phone, PAIRS, "pairs"), source.subscribed(phone, "N > 1")
    awaiting(target, *both)
    bob, head = target.attach(BOB, "desk"), head_of(target)
    for n in (1, 2):
        target.publish(bob, n)
    fence(source, head)
    target.give(ImportSession(exported(source)))
    target.later(1.0)
    assert target.stream(target.attach(ALICE, "phone", epoch=2)) == [2, 1.2]
    (replayed,) = target.written(Replayed)
    assert [(dict(each.steps), each.offset) for each in replayed.stepped] == [
        ({both[0].id: 3}, replayed.stepped[0].offset),
        ({both[0].id: 3}, replayed.stepped[1].offset),
    ]


def test_l01_beyond_its_room_the_pattern_gets_gaps() -> None:
    west = Server(msgspec.structs.replace(server("west").config, user_pattern_events_max=3))
    move = Move(1, text=PAIRS, subject="pairs", west=west)
    move.publish(2, 3, 4, 5)
    move.go()
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.later(1.0)
    (lost,) = move.target.received(phone, NotifyGap)[0].lost
    assert (lost.reason, lost.count) == ("user_pattern_events_max", 2), "4 and 5; what waits is then matched"
    assert [each for each in move.target.stream(phone) if isinstance(each, float)] == [1.2, 2.3]
    move.check()


def test_l01_a_target_whose_engine_has_its_events_takes_no_pattern() -> None:
    west = Server(msgspec.structs.replace(server("west").config, spark_subjects=("Trade",)))
    move = Move(1, west=west)
    (refused,) = west.of_kind(SessionMoveRefused)
    assert refused.reason == f"{move.subscription.id} is a pattern, and the matching engine of west has its events"
    assert not west.of_kind(AwaitedEffective)
    assert not west.broker.state.awaited


def test_l01_a_pattern_that_moves_on_takes_along_what_it_has_read() -> None:
    move = Move(1)
    move.publish(4)
    move.go()
    later = Move(west=None)
    later.source, later.subscription = move.target, move.subscription
    later.target = server("east")
    awaiting(later.target, move.subscription, source="west", epoch=EPOCH + 1)
    later.bob, head = later.target.attach(BOB, "desk"), head_of(later.target)
    later.publish(3)
    move.target.moves = []
    fence(move.target, head, epoch=EPOCH + 1, target="east")
    later.target.give(ImportSession(exported(move.target)))
    later.target.later(1.0)
    assert later.found() == [3]


def test_l01_a_renewed_pattern_begins_anew_behind_the_log() -> None:
    move = Move(1)
    move.publish(1)
    move.go(reads=False)
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.ask(phone, Unsubscribe(7, move.subscription.id))
    move.target.ask(phone, Renew(8, move.subscription.id, None))
    move.publish(3)
    move.target.later(1.0)
    assert move.target.stream(phone) == []
    assert move.target.broker.state.subscriptions[move.subscription.id].history == ()
    move.check()


def test_l02_a_pattern_that_begins_before_all_of_the_queue_is_here_detects_behind_it() -> None:
    move = LongMove()
    phone = move.target.attach(ALICE, "phone", epoch=2)
    pattern = subscribed(move.target, phone, PAIRS, "pairs")
    for n in (30, 31):
        move.target.publish(move.bob, n)
    move.target.later(120.0)
    assert move.target.stream(phone) == [1, 2]
    move.go_on()
    move.target.later(120.0)
    assert move.target.stream(phone) == [*range(1, 21), 30, 31, 33.1]
    assert not move.target.broker.state.subscriptions[pattern.id].history
    move.check()


def test_l01_explain_names_the_steps_that_were_read() -> None:
    move = Move(1)
    move.publish(3)
    move.go()
    events = [record for record in map(decode_record, move.target.log) if isinstance(record, Published)]
    explanation = Explanation(events[-1].acceptance.id, move.subscription)
    for payload in move.target.log:
        explanation.apply(decode_record(payload))
    explained = explanation.explained()
    assert (explained.outcome, "steps B" in explained.reason) == ("took_part", True)
