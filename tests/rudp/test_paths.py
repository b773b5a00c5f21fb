"""A change of path by signalling: generation, fresh back-off, immediate retransmission (DESIGN 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from wanderbus.machine import DatagramReceived, TimerFired
from wanderbus.rudp import ChangePath, ConnectionFailed, MovedHere, SendMessage
from wanderbus.rudp.congestion import INITIAL_PACKETS, PACKETS_MIN
from wanderbus.rudp.frames import DATA_LAST, decode_header

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair

NEW = ("198.51.100.7", 7000)
OTHER = ("198.51.100.8", 8000)


def test_everything_in_flight_goes_to_the_new_address_at_once(pair: Pair) -> None:
    messages = [bytes([n]) * 1000 for n in range(5)]
    pair.left.send(0.0, *messages)
    again = pair.left.step(0.01, ChangePath(pair.left.local_id, NEW, 1))
    assert [datagram.destination for datagram in again] == [NEW] * 5
    pair.settle(0.02, again)
    assert pair.right.received == messages


def test_a_large_window_is_repeated_as_fast_as_a_new_path_allows(make_pair: MakePair) -> None:
    pair = make_pair(messages_per_datagram_max=1)
    pair.left.connection.sender.congestion.window = 60.0
    messages = [bytes([n]) for n in range(60)]
    pair.left.send(0.0, *messages)
    again = pair.left.step(0.01, ChangePath(pair.left.local_id, NEW, 1))
    assert [datagram.destination for datagram in again] == [NEW] * INITIAL_PACKETS
    pair.settle(0.02, again)
    assert pair.right.received == messages


def test_back_off_and_attempts_start_afresh(make_pair: MakePair) -> None:
    left = make_pair(retries_max=3).left
    left.send(0.0, b"x")
    for _ in range(3):
        at, _ = left.fire()
    assert len(left.step(at + 0.1, ChangePath(left.local_id, NEW, 1))) == 1
    assert left.timer_at == pytest.approx(at + 0.1 + 0.25)
    attempts = 0
    while not left.reports:
        attempts += len(left.fire()[1])
    assert (attempts, left.reports) == (3, [ConnectionFailed(left.local_id)])


def test_it_saves_a_connection_whose_last_timer_fires_in_the_same_batch(make_pair: MakePair) -> None:
    left = make_pair(retries_max=0).left
    left.send(0.0, b"x")
    sent = left.step(0.25, TimerFired(left.local_id), ChangePath(left.local_id, NEW, 1))
    assert [datagram.destination for datagram in sent] == [NEW]
    assert left.reports == []
    assert left.timer_at == 0.5


def test_an_older_generation_does_not_override_a_newer_path(pair: Pair) -> None:
    pair.left.step(0.0, ChangePath(pair.left.local_id, NEW, 5))
    pair.left.send(0.0, b"x")
    assert pair.left.step(0.1, ChangePath(pair.left.local_id, OTHER, 4)) == []
    assert [d.destination for d in pair.left.send(0.2, b"y")] == [NEW]
    assert [d.destination for d in pair.left.step(0.3, ChangePath(pair.left.local_id, OTHER, 5))] == [OTHER, OTHER]


def test_the_estimate_of_the_old_path_is_dropped_rfc9000_9_4(pair: Pair) -> None:
    pair.left.take(0.08, pair.right.take(0.04, pair.left.send(0.0, b"x")))
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.08)
    acks = pair.right.take(0.2, pair.left.send(0.1, b"y"))
    pair.left.step(0.3, ChangePath(pair.left.local_id, NEW, 1))
    pair.left.take(0.9, acks)
    assert pair.left.endpoint.rtt_s(pair.left.local_id) is None, "an ACK from the old path measures nothing"
    assert pair.left.fire(1.0)[1] == [], "but it confirms"


def test_the_congestion_of_the_old_path_is_forgotten_rfc9000_9_4(pair: Pair) -> None:
    pair.left.connection.sender.congestion.window = float(PACKETS_MIN)
    pair.left.step(0.0, ChangePath(pair.left.local_id, NEW, 1))
    assert pair.left.connection.sender.congestion.window == INITIAL_PACKETS


def test_acks_of_the_old_path_do_not_grow_the_window_of_the_new_one(make_pair: MakePair) -> None:
    pair = make_pair(messages_per_datagram_max=1)
    acks = pair.right.take(0.1, pair.left.send(0.0, *[b"x"] * 30))
    pair.left.step(0.2, ChangePath(pair.left.local_id, NEW, 1))
    pair.left.take(0.3, acks)
    assert pair.left.connection.sender.congestion.window == INITIAL_PACKETS


def test_a_retransmission_before_the_change_measures_nothing_after_it(pair: Pair) -> None:
    acks = pair.right.take(0.2, pair.left.send(0.0, b"y"))
    at, _ = pair.left.fire()
    pair.left.step(at + 0.01, ChangePath(pair.left.local_id, NEW, 1))
    pair.left.take(at + 0.5, acks)
    assert pair.left.endpoint.rtt_s(pair.left.local_id) is None


def test_a_path_that_changes_for_ever_keeps_memory_bounded(pair: Pair) -> None:
    pair.left.send(0.0, b"x")
    for generation in range(1, 500):
        (again,) = pair.left.step(generation, ChangePath(pair.left.local_id, NEW, generation))
    sender = pair.left.connection.sender
    assert len(sender._earlier) <= 32
    pair.settle(500.0, [again])
    assert pair.right.received == [b"x"]
    assert sender._earlier == {}


def test_ack_and_change_in_one_batch_leave_nothing_to_repeat(pair: Pair) -> None:
    acks = pair.right.take(0.01, pair.left.send(0.0, b"x"))
    ack = DatagramReceived("data", pair.right.address, acks[0].data)
    change = ChangePath(pair.left.local_id, NEW, 1)
    assert pair.left.step(0.02, change, ack) == []
    (datagram,) = pair.left.step(0.03, SendMessage(pair.left.local_id, b"y"))
    assert pair.data([datagram]) == [(1, DATA_LAST, b"y")]


def test_packets_carry_our_own_generation_and_nothing_is_repeated(pair: Pair) -> None:
    def generation(now: float) -> int:
        (datagram,) = pair.left.send(now, b"x")
        return decode_header(datagram.data)[4]

    assert generation(0.0) == 0
    assert pair.left.step(0.1, MovedHere(pair.left.local_id, 7)) == []
    assert generation(0.1) == 7
    pair.left.step(0.2, MovedHere(pair.left.local_id, 2**16 + 3))
    assert generation(0.2) == 3, "the low 16 bits"
