"""A change of path: generation, fresh back-off, immediate retransmission (DESIGN 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from wanderbus.machine import DatagramReceived, TimerFired
from wanderbus.rudp import ChangePath, ConnectionFailed, SendMessage
from wanderbus.rudp.frames import decode_frames

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


def test_the_source_address_teaches_nothing(pair: Pair) -> None:
    answers = pair.right.take(0.1, pair.left.send(0.0, b"x"), source=OTHER)
    assert [answer.destination for answer in answers] == [pair.left.address]
    assert pair.right.received == [b"x"]


def test_the_estimate_of_the_old_path_is_dropped_rfc9000_9_4(pair: Pair) -> None:
    pair.left.take(0.08, pair.right.take(0.04, pair.left.send(0.0, b"x")))
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.08)
    acks = pair.right.take(0.2, pair.left.send(0.1, b"y"))
    pair.left.step(0.3, ChangePath(pair.left.local_id, NEW, 1))
    pair.left.take(0.9, acks)
    assert pair.left.endpoint.rtt_s(pair.left.local_id) is None, "an ACK from the old path measures nothing"
    assert pair.left.fire(1.0)[1] == [], "but it confirms"


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
    (connection,) = pair.left.endpoint._connections.values()
    assert len(connection.sender._earlier) <= 32
    pair.settle(500.0, [again])
    assert pair.right.received == [b"x"]
    assert connection.sender._earlier == {}


def test_ack_and_change_in_one_batch_leave_nothing_to_repeat(pair: Pair) -> None:
    acks = pair.right.take(0.01, pair.left.send(0.0, b"x"))
    ack = DatagramReceived("data", pair.right.address, acks[0].data)
    change = ChangePath(pair.left.local_id, NEW, 1)
    assert pair.left.step(0.02, change, ack) == []
    (datagram,) = pair.left.step(0.03, SendMessage(pair.left.local_id, b"y"))
    assert decode_frames(datagram.data).data == [(1, False, b"y")]
