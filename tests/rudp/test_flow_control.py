"""Flow control: the window that the receiver grants, and the bound of the send queue (RFC 9000 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from wanderbus.parameters.transports import INITIAL_WINDOW_FRAMES
from wanderbus.rudp import ConnectionFailed, Consumed, PeerFinished
from wanderbus.rudp.connection import OVERFULL
from wanderbus.rudp.frames import FINISH, WINDOW, encode_data, encode_numbered

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair


def push(pair: Pair, now: float, count: int) -> None:
    """Have left send ``count`` messages, and carry all that follows."""
    pair.settle(now, pair.left.send(now, *[b"%d" % n for n in range(count)]))


def test_the_grant_is_renewed_when_half_of_it_was_consumed(pair: Pair) -> None:
    push(pair, 0.0, INITIAL_WINDOW_FRAMES // 2 - 1)
    assert pair.left.connection.sender.granted == INITIAL_WINDOW_FRAMES
    push(pair, 0.1, 1)
    assert pair.left.connection.sender.granted == INITIAL_WINDOW_FRAMES * 3 // 2
    push(pair, 0.2, 5_000)
    assert len(pair.right.received) == 5_512
    assert pair.right.endpoint.counters.refused == 0


def test_f10_receive_window_frames_takes_effect(make_pair: MakePair) -> None:
    """The first packet announces more than the initial window."""
    pair = make_pair(receive_window_frames=5_000)
    push(pair, 0.0, 1)
    assert pair.left.connection.sender.granted == 5_001


def test_a_window_frame_that_rides_on_data_is_taken_too(pair: Pair) -> None:
    sent = pair.left.send(0.0, *[b"x"] * 512)
    pair.right.send(0.0, *[b"y"] * 10_000)
    answers = pair.right.take(0.0, sent)
    assert not any(kind == WINDOW for kind, _ in pair.controls(answers)), "its own window is full"
    pair.settle(0.1, pair.left.take(0.1, answers))
    pair.settle(0.2, pair.left.fire()[1])
    while pair.right.timer_at is not None:
        pair.settle(1.0, pair.left.take(1.0, pair.right.fire()[1]))
    assert pair.left.connection.sender.granted == 1_536
    assert len(pair.left.received) == 10_000


def test_a_lost_window_frame_comes_again(pair: Pair) -> None:
    datagrams = pair.left.send(0.0, *[b"x"] * 512)
    answers = [answer for datagram in datagrams for answer in pair.right.take(0.0, [datagram])]
    assert (WINDOW, 1_536) in pair.controls(answers)
    _, again = pair.right.fire()
    pair.left.take(1.0, again)
    assert pair.left.connection.sender.granted == 1_536


def test_a_slow_consumer_holds_the_sender_back_and_nothing_is_lost(make_pair: MakePair) -> None:
    pair = make_pair(consume_at_once=False)
    push(pair, 0.0, 3_000)
    assert len(pair.right.received) == INITIAL_WINDOW_FRAMES
    assert pair.left.endpoint.unsent_bytes(pair.left.local_id) > 0
    assert pair.right.step(0.1, Consumed(pair.right.local_id, 511)) == []
    now, consumed = 1.0, 511
    while consumed < 3_000:
        answers = pair.right.step(now, Consumed(pair.right.local_id, 100))
        consumed += 100
        pair.settle(now, pair.left.take(now, answers))
        assert len(pair.right.received) <= consumed + INITIAL_WINDOW_FRAMES
        now += 0.1
    assert pair.right.received == [b"%d" % n for n in range(3_000)]
    assert pair.left.reports == pair.right.reports == []


def test_a_blocked_sender_stays_quiet_and_alive(make_pair: MakePair) -> None:
    """A receiver that does not consume is no peer that does not answer."""
    pair = make_pair(consume_at_once=False)
    push(pair, 0.0, 3_000)
    while pair.left.timer_at is not None:
        assert pair.left.fire()[1] == []
    assert pair.left.reports == []


def test_the_parts_of_a_message_count_as_consumed_only_with_it(make_pair: MakePair) -> None:
    pair = make_pair(consume_at_once=False, datagram_bytes_max=100, message_bytes_max=65_536)
    message = bytes(65_536)
    pair.settle(0.0, pair.left.send(0.0, message, message))
    assert pair.right.received == [message], "one alone has more frames than were granted, two have too many"
    answers = pair.right.step(1.0, Consumed(pair.right.local_id, 1))
    pair.settle(1.0, pair.left.take(1.0, answers))
    assert pair.right.received == [message, message]


def test_consuming_more_than_was_delivered_grants_no_more(make_pair: MakePair) -> None:
    pair = make_pair(consume_at_once=False)
    push(pair, 0.0, 10)
    pair.right.step(0.1, Consumed(pair.right.local_id, 10**9))
    push(pair, 0.2, 3_000)
    assert len(pair.right.received) == INITIAL_WINDOW_FRAMES


@pytest.mark.parametrize("number", [INITIAL_WINDOW_FRAMES, 2**40, 2**64 - 1])
def test_data_beyond_the_grant_is_neither_held_nor_acknowledged(pair: Pair, number: int) -> None:
    for kind in (encode_data(number, False, b"x"), encode_numbered(FINISH, number)):
        assert pair.right.step(0.0, pair.from_left(0, kind)) == []
    assert pair.right.endpoint.counters.refused == pair.right.endpoint.counters.dropped == 2
    assert pair.right.connection.receiver.held_bytes == 0
    assert len(pair.right.step(0.0, pair.from_left(0, encode_data(INITIAL_WINDOW_FRAMES - 1, False, b"x")))) == 1


def test_data_after_finish_is_refused(pair: Pair) -> None:
    pair.right.step(0.0, pair.from_left(0, encode_data(2, False, b"held") + encode_data(3, False, b"held")))
    pair.right.step(0.0, pair.from_left(1, encode_data(0, False, b"last") + encode_numbered(FINISH, 1)))
    assert pair.right.received == [b"last"]
    assert pair.right.connection.receiver.held_bytes == 0
    assert pair.right.step(0.0, pair.from_left(2, encode_data(2, False, b"more"))) == []
    assert pair.right.step(0.0, pair.from_left(3, encode_numbered(FINISH, 5))) == []
    assert pair.right.endpoint.counters.refused == 2
    assert len(pair.right.step(0.0, pair.from_left(4, encode_numbered(FINISH, 1)))) == 1, "a repeat is acknowledged"
    assert pair.right.reports.count(PeerFinished(pair.right.local_id)) == 1


def test_a_window_that_goes_back_or_is_huge_does_no_harm(pair: Pair) -> None:
    sender = pair.right.connection.sender
    for number, grant in enumerate((2_000, 5, 0)):
        pair.right.step(0.0, pair.from_left(number, encode_numbered(WINDOW, grant)))
    assert sender.granted == 2_000
    pair.right.step(0.0, pair.from_left(3, encode_numbered(WINDOW, 2**64 - 1)))
    pair.right.send(0.1, *[b"x"] * 5_000)
    assert sender.packets_in_flight <= 10


def test_f10_send_queue_bytes_max_fails_a_connection_that_nobody_empties(make_pair: MakePair) -> None:
    left = make_pair(send_queue_bytes_max=100_000, message_bytes_max=1_000).left
    for n in range(98):
        left.send(n / 1000, bytes(1_000))
    assert left.reports == []
    left.send(0.1, bytes(1_000))
    assert left.reports == [ConnectionFailed(left.local_id, OVERFULL)]
    assert left.timer_at is None
    assert not left.endpoint.all_confirmed(left.local_id)
    assert left.endpoint.unsent_bytes(left.local_id) == 0, "and lets go of it"


def test_empty_messages_fill_the_queue_too(make_pair: MakePair) -> None:
    left = make_pair(send_queue_bytes_max=1_000, message_bytes_max=10).left
    left.send(0.0, *[b""] * 91)
    assert left.reports == [ConnectionFailed(left.local_id, OVERFULL)]


def test_acknowledged_messages_leave_the_queue(make_pair: MakePair) -> None:
    pair = make_pair(send_queue_bytes_max=5_000, message_bytes_max=1_000)
    for n in range(100):
        pair.settle(n, pair.left.send(n, bytes(1_000), bytes(1_000)))
    assert pair.left.reports == []
