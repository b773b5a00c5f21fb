"""Sessions whose queue follows in pieces: read while it comes, and everything else behind it (SPEC L-02 to L-04)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, Desk, rows_of
from tests.broker.test_awaited_sessions import EPOCH, KEY, Server, awaiting, exported, head_of, server
from wanderbus.broker.sessions.handover_messages import (
    ContinueQueue,
    DropExport,
    FenceSession,
    ImportSession,
    QueueReached,
    SessionExported,
    SessionOwned,
)
from wanderbus.broker.state.exported_session import encode_piece
from wanderbus.broker.state.rows import SessionRow
from wanderbus.event import Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    OPERATIONS,
    Inspect,
    Leave,
    Listing,
    Notify,
    Purge,
    Read,
    Reader,
    RequestRefused,
    Unsubscribe,
)
from wanderbus.records import Dropped, QueueContinued, SessionFenced
from wanderbus.subscription import QueuePolicy

SMALL = 300
"""Bytes of a piece with two or three notifications."""


def fence(source: Server, target: Desk, *, queue_bytes: int = SMALL) -> None:
    session = source.broker.state.sessions[KEY]
    subscriptions, heads = tuple(session.subscriptions), (head_of(target),)
    source.give(FenceSession(ALICE, "default", EPOCH, "west", subscriptions, heads, queue_bytes=queue_bytes))


class LongMove:
    """Alice's session of ``south``, where 20 notifications wait, after the import of its head at ``west``.

    Of two ``devices``, the first one has acknowledged 15. The subscription may have ended.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        devices: tuple[Server, int, int] | None = None,
        *,
        ends: bool = False,
        **options: Any,
    ) -> None:
        self.source = source = server("south") if devices is None else devices[0]
        self.target = server("west") if config is None else Server(config)
        phone = source.attach(ALICE, "phone") if devices is None else devices[1]
        bob = source.attach(BOB, "desk")
        self.subscription = source.subscribed(phone, "N > 0", **options)
        if devices is None:
            source.close(phone)
        for n in range(1, 21):
            source.publish(bob, n)
        if devices is not None:
            source.take(phone, 15)
        if ends:
            source.ask(source.attach(ALICE, "phone", epoch=1), Unsubscribe(7, self.subscription.id))
        awaiting(self.target, *(() if ends else [self.subscription]))
        self.bob = self.target.attach(BOB, "desk")
        fence(source, self.target)
        self.target.give(ImportSession(exported(source)))

    @property
    def session(self) -> SessionRow:
        """The row at the target."""
        return self.target.broker.state.sessions[KEY]

    def piece(self, size: int = SMALL) -> ContinueQueue:
        """Return the next piece."""
        left = self.source.broker.state.queue.left(KEY)
        assert left is not None
        return ContinueQueue(ALICE, "default", EPOCH, encode_piece(left.piece(self.session.arrived, size)))

    def go_on(self, pieces: int | None = None) -> None:
        """Let pieces follow: all, or so many."""
        while self.session.source and pieces != 0:
            self.target.give(self.piece())
            pieces = None if pieces is None else pieces - 1

    def check(self) -> None:
        """Assert that the counters are those of what waits, and that the log has them."""
        row, state = self.session, self.target.broker.state
        queue = state.queue.get(KEY)
        entries = [] if queue is None else list(queue)
        assert row.queued == sum(each.waiting for each in entries)
        assert (row.waiting, row.queued_bytes) == (len(entries), sum(len(each.event.data) for each in entries))
        assert row.generated == row.delivered + row.queued + sum(row.dropped.values())
        assert state.queued_bytes == sum(each.queued_bytes for each in state.sessions.values())
        assert rows_of(self.target.recovered(from_log_alone=True)) == rows_of(state)


def test_l02_the_head_is_served_while_the_rest_of_the_queue_follows() -> None:
    move = LongMove()
    assert move.target.of_kind(SessionOwned) == []
    assert move.target.of_kind(QueueReached) == [QueueReached(ALICE, "default", EPOCH, 2)]
    phone = move.target.attach(ALICE, "phone", epoch=2)
    assert move.target.stream(phone) == [1, 2]
    move.go_on(1)
    assert move.target.stream(phone) == [1, 2, 3, 4]
    move.check()
    move.go_on()
    assert move.target.stream(phone) == list(range(1, 21))
    assert move.target.of_kind(SessionOwned) == [SessionOwned(ALICE, "default", EPOCH)]
    assert len(move.target.written(QueueContinued)) == 9
    move.check()


def test_l04_new_events_at_the_target_wait_behind_the_rest() -> None:
    move = LongMove()
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.publish(move.bob, 100)
    second = move.target.subscribed(phone, "N > 99")
    move.target.publish(move.bob, 101)
    assert move.target.stream(phone) == [1, 2]
    move.go_on()
    move.target.publish(move.bob, 102)
    assert move.target.stream(phone) == [*range(1, 21), 100, 101, 102], "each event is one notification"
    assert [move.target.waiting(each.id) for each in (move.subscription, second)] == [23, 2]
    assert not any(move.target.broker.state.subscriptions[each].history for each in (second.id, move.subscription.id))
    move.check()


@pytest.mark.parametrize("with_rows", [False, True])
def test_l02_the_pieces_and_their_place_survive_restarts_of_both_servers(with_rows: bool) -> None:
    move = LongMove()
    move.target.publish(move.bob, 100)
    for desk in (move.source, move.target):
        desk.save()
    move.go_on(3)
    move.source.give(DropExport(ALICE, "default", move.session.arrived))
    for desk in (move.source, move.target):
        desk.restart(with_rows=with_rows)
    assert (move.session.source, move.session.arrived) == ("south", 8)
    state = move.source.broker.state
    assert (list(state.exports), list(state.rests)) == ([], [KEY])
    assert len(state.events.rows) == 12, "the source keeps what is not acknowledged, and no more"
    move.go_on()
    move.source.give(DropExport(ALICE, "default"))
    assert [*state.rests, *state.events.rows, state.queue.left(KEY), state.queued_bytes] == [None, 0]
    assert move.target.stream(move.target.attach(ALICE, "phone", epoch=2)) == [*range(1, 21), 100]
    move.check()


def test_l02_a_piece_that_comes_twice_or_out_of_turn_is_not_added() -> None:
    move = LongMove()
    second = move.piece()
    move.go_on(1)
    third = move.piece()
    move.target.give(second)
    move.target.give(third)
    move.target.give(third)
    assert len(move.target.written(QueueContinued)) == 2
    fifth = msgspec.structs.replace(third, piece=encode_piece(_left(move).piece(12, SMALL)))
    move.target.give(fifth)
    assert len(move.target.written(QueueContinued)) == 2
    assert move.target.of_kind(QueueReached)[-1].through == 6, "the answer says what is here"
    move.go_on()
    assert move.target.stream(move.target.attach(ALICE, "phone", epoch=2)) == list(range(1, 21))


def _left(move: LongMove) -> Any:
    return move.source.broker.state.queue.left(KEY)


def test_l02_a_piece_is_confirmed_once_it_is_durable() -> None:
    move = LongMove()
    move.target.held = True
    before = len(move.target.of_kind(QueueReached))
    move.go_on(1)
    assert len(move.target.of_kind(QueueReached)) == before
    move.target.sync()
    assert len(move.target.of_kind(QueueReached)) == before + 1


def test_l02_a_device_that_is_far_ahead_gets_nothing_again() -> None:
    source = server("south")
    move = LongMove(devices=(source, source.attach(ALICE, "phone"), source.attach(ALICE, "pad")))
    target = move.target
    phone, pad = target.attach(ALICE, "phone", epoch=2), target.attach(ALICE, "pad", epoch=2)
    target.take(pad, 2)
    assert not target.waiting(move.subscription.id)
    move.go_on(2)
    target.save()
    target.restart(with_rows=True)
    phone, pad = target.attach(ALICE, "phone", epoch=3), target.attach(ALICE, "pad", epoch=3)
    move.go_on()
    assert target.stream(phone) == list(range(16, 21))
    assert target.stream(pad) == list(range(3, 21))
    target.take(pad, 20)
    target.take(phone, 20)
    move.check()
    assert (move.session.delivered, move.session.queued) == (20, 0)


@pytest.mark.parametrize("restarts", [False, True])
def test_l02_a_notification_that_was_read_at_the_source_is_not_sent_again_though_it_comes_later(restarts: bool) -> None:
    move = LongMove()
    first = move.target.attach(ALICE, "phone", epoch=2)
    move.target.take(first, 2)
    if restarts:
        move.target.save()
        move.target.restart(with_rows=True)
    given_at_source = Position(move.session.epochs[0][0], 12)
    phone = move.target.attach(ALICE, "phone", epoch=3, reads=False)
    handle = move.target.handle(phone, move.subscription.id)
    move.target.send(phone, Read((Reader(handle, move.subscription.id, given_at_source),)))
    move.go_on()
    assert move.target.stream(phone) == list(range(13, 21))
    move.check()
    assert move.session.delivered == 12


def test_l02_no_cursor_is_left_once_nothing_can_come() -> None:
    move = LongMove()
    phone = move.target.attach(ALICE, "phone", epoch=2)
    other = move.target.subscribed(phone, "N > 500")
    move.target.take(phone, 2)
    place = Position(move.session.epochs[0][0], 20)
    again = move.target.attach(ALICE, "phone", epoch=2, reads=False)
    handles = {each: move.target.handle(again, each) for each in (other.id, move.subscription.id)}
    move.target.send(again, Read(tuple(Reader(handle, each, place) for each, handle in handles.items())))
    move.go_on()
    rows = move.target.broker.state.subscriptions
    assert [rows[each].cursors for each in handles] == [None, None]


def test_l02_a_device_that_leaves_lets_the_cursor_of_another_one_count_for_the_rest() -> None:
    source = server("south")
    phone, pad = source.attach(ALICE, "phone"), source.attach(ALICE, "pad")
    move = LongMove(devices=(source, phone, pad))
    phone, pad = move.target.attach(ALICE, "phone", epoch=2), move.target.attach(ALICE, "pad", epoch=2)
    move.target.send(pad, Leave(1))
    move.go_on()
    assert (move.session.generated, move.session.delivered, move.session.queued) == (20, 15, 5)
    assert move.target.stream(phone) == list(range(16, 21))
    move.check()


def test_l02_every_piece_is_marked_as_possibly_sent_by_the_source() -> None:
    move = LongMove()
    link = move.target.attach(ALICE, "phone", epoch=2)
    move.target.take(link, 2)
    move.target.close(link)
    again = move.target.attach(ALICE, "phone", epoch=3)
    move.go_on()
    assert move.target.stream(again) == list(range(3, 21))
    assert all(each.redelivered for each in move.target.received(again, Notify))


def test_l02_a_device_that_leaves_meanwhile_is_waited_for_no_longer() -> None:
    move = LongMove()
    pad, phone = move.target.attach(ALICE, "pad"), move.target.attach(ALICE, "phone", epoch=2)
    move.go_on(3)
    move.target.take(phone, 8)
    assert move.target.waiting(move.subscription.id) == 8, "the pad has acknowledged nothing"
    move.target.send(pad, Leave(1))
    assert move.target.waiting(move.subscription.id) == 0
    move.go_on()
    assert move.target.stream(phone) == list(range(1, 21))
    move.check()


def test_l02_a_subscription_that_ends_meanwhile_leaves_its_rest_to_the_one_that_inherits_it() -> None:
    move = LongMove()
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.take(phone, 2)
    move.target.ask(phone, Unsubscribe(77, move.subscription.id))
    move.target.close(phone)
    phone = move.target.attach(ALICE, "phone", epoch=3, reads=False)
    heir = move.target.subscribed(phone, "N > 0")
    assert heir.id != move.subscription.id
    move.target.publish(move.bob, 100)
    move.go_on()
    assert move.target.waiting(heir.id) == 19
    assert move.target.stream(phone) == [*range(3, 21), 100]
    move.check()


def test_l02_a_subscription_that_ended_before_the_move_leaves_its_rest_as_well() -> None:
    move = LongMove(ends=True)
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.take(phone, 2)
    move.target.close(phone)
    phone = move.target.attach(ALICE, "phone", epoch=3, reads=False)
    heir = move.target.subscribed(phone, "N > 0")
    move.target.publish(move.bob, 100)
    move.go_on()
    assert move.target.stream(phone) == [*range(3, 21), 100]
    assert move.target.waiting(heir.id) == 19
    move.check()


def test_l02_an_ended_subscription_is_kept_until_its_rest_has_come() -> None:
    move = LongMove(config=BrokerConfig(server="west", sweep_s=10.0, tombstone_s=20.0))
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.take(phone, 2)
    move.target.ask(phone, Unsubscribe(77, move.subscription.id))
    move.target.later(60)
    move.go_on()
    assert move.target.stream(phone) == list(range(1, 21))


def test_l02_a_device_discards_the_part_that_has_come() -> None:
    move = LongMove()
    phone = move.target.attach(ALICE, "phone", epoch=2, reads=False)
    move.target.ask(phone, Unsubscribe(77, move.subscription.id, abandon=True))
    (dropped,) = move.target.written(Dropped)
    assert (dropped.first, dropped.last) == (1, 2)


def test_l02_lost_events_are_a_gap_behind_the_rest() -> None:
    move = LongMove()
    state = move.target.broker.state
    phone = move.target.attach(ALICE, "phone", epoch=2)
    move.target.broker._rollback.found("the log is an earlier copy")
    move.target.give()
    assert move.target.stream(phone) == [1, 2]
    assert len(state.sessions[KEY].owed) == 1
    move.go_on()
    assert move.target.stream(phone) == [*range(1, 21), (21, 21)]
    move.check()


@pytest.mark.parametrize("is_live", [True, False])
def test_l02_the_session_moves_on_once_all_of_its_queue_is_here(is_live: bool) -> None:
    move = LongMove()
    phone = move.target.attach(ALICE, "phone", epoch=2, reads=False)
    if not is_live:
        move.target.ask(phone, Unsubscribe(77, move.subscription.id))
    third = server("east")
    kept = tuple(move.session.subscriptions)
    awaiting(third, *(move.subscription for _ in kept), source="west", epoch=EPOCH + 1)
    move.target.give(FenceSession(ALICE, "default", EPOCH + 1, "east", kept, (head_of(third),)))
    assert not move.target.written(SessionFenced)
    move.go_on()
    assert move.target.written(SessionFenced)
    third.give(ImportSession(move.target.of_kind(SessionExported)[-1].export))
    assert third.stream(third.attach(ALICE, "phone", epoch=3)) == list(range(1, 21))


def test_l02_a_source_that_gets_the_session_back_keeps_nothing_of_its_first_move() -> None:
    move = LongMove()
    source, target = move.source, move.target
    source.give(DropExport(ALICE, "default", move.session.arrived))
    move.go_on()
    awaiting(source, move.subscription, source="west", epoch=EPOCH + 1)
    kept = tuple(move.session.subscriptions)
    target.give(FenceSession(ALICE, "default", EPOCH + 1, "south", kept, (head_of(source),)))
    source.give(ImportSession(target.of_kind(SessionExported)[-1].export))
    state = source.broker.state
    assert (list(state.rests), state.queue.left(KEY)) == ([], None)
    assert source.stream(source.attach(ALICE, "phone", epoch=3)) == list(range(1, 21))
    assert rows_of(source.recovered(from_log_alone=True)) == rows_of(state)


def test_l04_the_bounds_of_the_target_hold_for_each_piece() -> None:
    config = BrokerConfig(server="west", sweep_s=None, user_queued_bytes_max=400)
    move = LongMove(config=config)
    move.go_on()
    assert move.session.queued_bytes <= 400
    assert move.session.dropped["user_queued_bytes_max"] == len(move.target.written(Dropped))
    move.check()
    stream = move.target.stream(move.target.attach(ALICE, "phone", epoch=2))
    lost = move.session.dropped["user_queued_bytes_max"]
    assert stream == [(1, lost), *range(lost + 1, 21)]


def test_l04_a_notification_that_is_too_old_is_dropped_wherever_it_waited() -> None:
    move = LongMove(queue=QueuePolicy(age_max_s=60))
    move.go_on(1)
    for desk in (move.source, move.target):
        desk.later(61)
    move.go_on()
    phone = move.target.attach(ALICE, "phone", epoch=2)
    assert move.target.received(phone, Notify) == []
    move.check()


def test_l02_an_operator_sees_that_the_rest_is_on_its_way_and_purges_later() -> None:
    move = LongMove()
    office = move.target.attach(ALICE, "office", session=OPERATIONS, reads=False)

    def source() -> object:
        move.target.send(office, Inspect(4, "sessions", ALICE))
        rows = move.target.received(office, Listing)[-1].rows
        (found,) = [row["arriving_from"] for row in rows if row["session"] == "default"]
        return found

    assert source() == "south"
    answer = move.target.ask(office, Purge(5, ALICE, "default", None))
    assert isinstance(answer, RequestRefused)
    assert "is on its way here from south" in answer.reason
    move.go_on()
    assert source() == ""
