"""Acknowledging, gaps, duplicates, order, fragments, sharing of datagrams (SPEC F-02, F-03, F-08, X16)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from wanderbus.errors import LimitExceeded
from wanderbus.machine import DatagramReceived, SendDatagram
from wanderbus.rudp import GapDetected, MessageReceived, OpenConnection, SendMessage
from wanderbus.rudp.frames import decode_frames, encode_data, encode_packet_header

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair


def acks_in(datagrams: list[SendDatagram]) -> list[int]:
    return [number for datagram in datagrams for number in decode_frames(datagram.data).acks]


def test_f03_n_packets_n_acks(pair: Pair) -> None:
    datagrams = [datagram for n in range(7) for datagram in pair.left.send(n / 100, bytes([n]))]
    answers = pair.right.take(0.1, datagrams)
    assert acks_in(answers) == list(range(7))
    assert len(answers) == 1, "the ACKs of a step share a datagram"
    assert pair.right.endpoint.counters.acks == 7


def test_f03_a_repeated_packet_is_acknowledged_again(pair: Pair) -> None:
    datagrams = pair.left.send(0.0, b"x")
    assert acks_in(pair.right.take(0.1, datagrams + datagrams)) == [0, 0]
    assert pair.right.received == [b"x"]


def test_f03_an_ack_is_not_acknowledged(pair: Pair) -> None:
    acks = pair.right.take(0.1, pair.left.send(0.0, b"x"))
    assert pair.left.take(0.2, acks) == []


def test_acks_ride_on_data(pair: Pair) -> None:
    datagrams = pair.left.send(0.0, b"question")
    inputs = [DatagramReceived("data", pair.left.address, d.data) for d in datagrams]
    answers = pair.right.step(0.1, *inputs, SendMessage(pair.right.local_id, b"answer"))
    assert len(answers) == 1
    assert decode_frames(answers[0].data) == ([0], [(0, False, b"answer")], False)


def test_many_acks_and_much_data_stay_within_the_datagram(pair: Pair) -> None:
    datagrams = [datagram for _ in range(60) for datagram in pair.left.send(0.0, b"x")]
    inputs = [DatagramReceived("data", pair.left.address, d.data) for d in datagrams]
    more = [SendMessage(pair.right.local_id, bytes(90)) for _ in range(55)]
    answers = pair.right.step(0.1, *inputs, *more)
    assert acks_in(answers) == list(range(60))
    assert all(decode_frames(answer.data).data for answer in answers), "room is kept, so no datagram is for ACKs alone"
    assert max(len(answer.data) for answer in answers) <= 1200
    pair.left.take(0.2, answers)
    assert pair.left.received == [bytes(90)] * 55


def test_small_messages_of_one_step_share_datagrams(pair: Pair) -> None:
    messages = [b"%032d" % n for n in range(32)]
    datagrams = pair.left.send(0.0, *messages)
    assert len(datagrams) == 2
    assert all(len(datagram.data) <= 1200 for datagram in datagrams)
    pair.settle(0.1, datagrams)
    assert pair.right.received == messages


@pytest.mark.parametrize("size", [0, 1, 1163, 1164, 1165, 2328, 2329, 65_536])
def test_fragments_fill_datagrams_and_come_together_again(pair: Pair, size: int) -> None:
    message = Random(size).randbytes(size)
    datagrams = pair.left.send(0.0, b"before", message, b"after")
    assert all(len(datagram.data) <= 1200 for datagram in datagrams)
    pair.settle(0.1, datagrams)
    assert pair.right.received == [b"before", message, b"after"]


def test_exact_fit_is_one_frame(pair: Pair) -> None:
    (datagram,) = pair.left.send(0.0, bytes(1164))
    assert len(datagram.data) == 1200


def test_too_large_a_message_is_a_local_bug_and_leaves_the_batch_undone(pair: Pair) -> None:
    with pytest.raises(LimitExceeded) as caught:
        pair.left.send(0.0, b"ok", bytes(65_537))
    assert caught.value.limit == "message_bytes_max"
    (datagram,) = pair.left.send(0.0, b"next")
    assert decode_frames(datagram.data).data == [(0, False, b"next")]


def test_f02_a_gap_is_reported_once(pair: Pair) -> None:
    datagrams = [pair.left.send(0.0, bytes([n]))[0] for n in range(6)]
    pair.right.take(0.1, [datagrams[0], datagrams[3]])
    assert pair.right.reports == [GapDetected(pair.right.local_id, 1, 2)]
    pair.right.take(0.2, [datagrams[1], datagrams[4], datagrams[2], datagrams[5]])
    assert len(pair.right.reports) == 1
    assert pair.right.endpoint.counters.gaps == 1
    assert pair.right.received == [bytes([n]) for n in range(6)]


def test_f02_a_lost_ack_only_packet_is_a_gap_too(pair: Pair) -> None:
    pair.right.take(0.1, pair.left.send(0.0, b"x"))
    pair.left.take(0.2, pair.right.send(0.2, b"y"))
    assert pair.left.reports == [GapDetected(pair.left.local_id, 0, 0)]


def test_x16_reordered_packets_are_delivered_in_order(pair: Pair) -> None:
    datagrams = [pair.left.send(0.0, bytes([n]))[0] for n in range(30)]
    Random(5).shuffle(datagrams)
    for datagram in datagrams:
        pair.right.take(0.1, [datagram])
    assert pair.right.received == [bytes([n]) for n in range(30)]


def test_f08_duplicates_from_lost_acks_are_suppressed(make_pair: MakePair) -> None:
    """30 % of the ACKs are lost: every message is still delivered once."""
    pair, random = make_pair(retries_max=30), Random(8)

    def exchange(now: float, datagrams: list[SendDatagram]) -> None:
        acks = pair.right.take(now, datagrams)
        pair.left.take(now, [ack for ack in acks if random.random() >= 0.3])

    def fire_until(now: float) -> None:
        while pair.left.timer_at is not None and pair.left.timer_at <= now:
            exchange(*pair.left.fire())

    messages = [b"%d" % n for n in range(300)]
    for n, message in enumerate(messages):
        fire_until(n)
        exchange(n, pair.left.send(n, message))
    fire_until(1000.0)
    assert pair.right.received == messages
    assert pair.right.endpoint.counters.duplicates == pair.left.endpoint.counters.retransmitted > 60


def forged(pair: Pair, packet_number: int, *frames: tuple[int, bool, bytes]) -> DatagramReceived:
    header = encode_packet_header(pair.right.local_id, pair.left.local_id, packet_number)
    return DatagramReceived("data", pair.left.address, header + b"".join(encode_data(*frame) for frame in frames))


def test_data_too_far_ahead_is_neither_held_nor_acknowledged(make_pair: MakePair) -> None:
    pair = make_pair(reorder_frames_max=4)
    assert pair.right.step(0.0, forged(pair, 0, (4, False, b"x"))) == []
    assert pair.right.endpoint.counters.refused == 1
    assert len(pair.right.step(0.0, forged(pair, 0, (3, False, b"x")))) == 1


def test_a_message_beyond_the_bound_is_passed_over_whole(make_pair: MakePair) -> None:
    pair = make_pair(message_bytes_max=10)
    frames = [(0, True, b"123456"), (1, True, b"789012"), (2, True, b"3"), (3, False, b"4"), (4, False, b"next")]
    pair.right.step(0.0, forged(pair, 0, *frames))
    pair.right.step(0.0, forged(pair, 1, (5, False, b"12345678901"), (6, True, b"12345"), (7, False, b"67890")))
    assert pair.right.received == [b"next", b"1234567890"]
    assert pair.right.endpoint.counters.oversized == 2


def test_connections_of_one_endpoint_do_not_mix(pair: Pair) -> None:
    """Two connections between the same endpoints, stepped together."""
    second_left, second_right = pair.left.endpoint.allocate(), pair.right.endpoint.allocate()
    pair.left.endpoint.step([OpenConnection(second_left, second_right, pair.right.address, 0)], 0.0)
    pair.right.endpoint.step([OpenConnection(second_right, second_left, pair.left.address, 0)], 0.0)
    outputs = pair.left.endpoint.step([SendMessage(second_left, b"two"), SendMessage(pair.left.local_id, b"one")], 0.0)
    datagrams = [output for output in outputs if isinstance(output, SendDatagram)]
    assert len(datagrams) == 2
    inputs = [DatagramReceived("data", pair.left.address, d.data) for d in datagrams]
    reports = [o for o in pair.right.endpoint.step(inputs, 0.1) if not isinstance(o, SendDatagram)]
    assert reports == [MessageReceived(second_right, b"two"), MessageReceived(pair.right.local_id, b"one")]


def test_all_confirmed_says_when_the_peer_has_acknowledged_everything(pair: Pair) -> None:
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    datagrams = pair.left.send(0.0, b"a") + pair.left.send(0.0, bytes(3_000))
    assert not pair.left.endpoint.all_confirmed(pair.left.local_id)
    pair.left.take(0.2, pair.right.take(0.1, datagrams[:-1]))
    assert not pair.left.endpoint.all_confirmed(pair.left.local_id)
    pair.left.take(0.4, pair.right.take(0.3, datagrams[-1:]))
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
