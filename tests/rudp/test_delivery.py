"""Gaps, duplicates, order, fragments, sharing of datagrams, the end of the stream (SPEC F-02, F-08, X16)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from wanderbus.errors import LimitExceeded
from wanderbus.machine import DatagramReceived, SendDatagram
from wanderbus.rudp import FinishSending, GapDetected, MessageReceived, OpenConnection, PeerFinished, SendMessage
from wanderbus.rudp.frames import DATA_LAST, FINISH, encode_data, encode_numbered

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair

BOTH_MODES = pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])


@BOTH_MODES
def test_small_messages_of_one_step_share_datagrams(make_pair: MakePair, sealed: bool) -> None:
    pair = make_pair(sealed=sealed)
    messages = [b"%032d" % n for n in range(32)]
    datagrams = pair.left.send(0.0, *messages)
    assert len(datagrams) == 2
    assert all(len(datagram.data) <= 1200 for datagram in datagrams)
    pair.settle(0.1, datagrams)
    assert pair.right.received == messages


@pytest.mark.parametrize(("most", "sizes"), [(1, [1] * 7), (3, [3, 3, 1])])
def test_f10_messages_per_datagram_are_bounded(make_pair: MakePair, most: int, sizes: list[int]) -> None:
    pair = make_pair(messages_per_datagram_max=most)
    datagrams = pair.left.send(0.0, *[bytes([n]) for n in range(7)])
    assert [len(pair.data([datagram])) for datagram in datagrams] == sizes
    pair.settle(0.1, datagrams)
    assert pair.right.received == [bytes([n]) for n in range(7)]


@pytest.mark.parametrize("size", [0, 1, 1145, 1146, 1161, 1162, 2290, 2322, 2323, 65_536])
@BOTH_MODES
def test_fragments_fill_datagrams_and_come_together_again(make_pair: MakePair, sealed: bool, size: int) -> None:
    pair = make_pair(sealed=sealed)
    message = Random(size).randbytes(size)
    datagrams = pair.left.send(0.0, b"before", message, b"after")
    assert all(len(datagram.data) <= 1200 for datagram in datagrams)
    pair.settle(0.1, datagrams)
    assert pair.right.received == [b"before", message, b"after"]


@pytest.mark.parametrize(("sealed", "size"), [(False, 1161), (True, 1145)])
def test_exact_fit_is_one_frame(make_pair: MakePair, sealed: bool, size: int) -> None:
    pair = make_pair(sealed=sealed)
    (datagram,) = pair.left.send(0.0, bytes(size))
    assert len(datagram.data) == 1200
    assert len(pair.left.send(0.0, bytes(size + 1))) == 2


def test_f10_datagram_bytes_max_takes_effect(make_pair: MakePair) -> None:
    pair = make_pair(datagram_bytes_max=100)
    datagrams = pair.left.send(0.0, bytes(300))
    assert [len(datagram.data) for datagram in datagrams] == [100, 100, 100, 100, 95]
    pair.settle(0.1, datagrams)
    assert pair.right.received == [bytes(300)]


def test_too_large_a_message_is_a_local_bug_and_leaves_the_batch_undone(pair: Pair) -> None:
    with pytest.raises(LimitExceeded) as caught:
        pair.left.send(0.0, b"ok", bytes(65_537))
    assert caught.value.limit == "message_bytes_max"
    assert pair.data(pair.left.send(0.0, b"next")) == [(0, DATA_LAST, b"next")]


def test_f02_a_gap_is_reported_once(pair: Pair) -> None:
    datagrams = pair.left.send_each(0.0, *[bytes([n]) for n in range(6)])
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
    datagrams = [datagram for n in range(30) for datagram in pair.left.send(0.0, bytes([n]))]
    Random(5).shuffle(datagrams)
    for datagram in datagrams:
        pair.right.take(0.1, [datagram])
    assert pair.right.received == [bytes([n]) for n in range(len(datagrams))]


@BOTH_MODES
def test_f08_duplicates_from_lost_acks_are_suppressed(make_pair: MakePair, sealed: bool) -> None:
    """30 % of the ACKs are lost: every message is still delivered once, with the default retries."""
    pair, random = make_pair(sealed=sealed), Random(8)

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
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    assert pair.right.received == messages
    assert pair.right.endpoint.counters.duplicates == pair.left.endpoint.counters.retransmitted > 60


def test_a_message_beyond_the_bound_is_passed_over_whole(make_pair: MakePair) -> None:
    pair = make_pair(message_bytes_max=10)
    frames = [(0, True, b"123456"), (1, True, b"789012"), (2, True, b"3"), (3, False, b"4"), (4, False, b"next")]
    pair.right.step(0.0, pair.from_left(0, b"".join(encode_data(*frame) for frame in frames)))
    frames = [(5, False, b"12345678901"), (6, True, b"12345"), (7, False, b"67890")]
    pair.right.step(0.0, pair.from_left(1, b"".join(encode_data(*frame) for frame in frames)))
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
    reports = [o for o in pair.right.endpoint.step(inputs, 0.1) if isinstance(o, MessageReceived)]
    assert reports == [MessageReceived(second_right, b"two"), MessageReceived(pair.right.local_id, b"one")]


def test_all_acknowledged_is_true_once_the_peer_has_acknowledged_everything(pair: Pair) -> None:
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    datagrams = pair.left.send(0.0, b"a") + pair.left.send(0.0, bytes(3_000))
    assert not pair.left.endpoint.all_confirmed(pair.left.local_id)
    pair.left.take(0.2, pair.right.take(0.1, datagrams[:-1]))
    assert not pair.left.endpoint.all_confirmed(pair.left.local_id)
    pair.left.take(0.4, pair.right.take(0.3, datagrams[-1:]))
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)


def test_finish_comes_after_the_last_message_and_once(pair: Pair) -> None:
    first = pair.left.send(0.0, b"last word")
    finish = pair.left.step(0.0, FinishSending(pair.left.local_id), FinishSending(pair.left.local_id))
    assert pair.data(finish) == [(1, FINISH, b"")]
    assert not pair.left.endpoint.all_confirmed(pair.left.local_id)
    pair.right.take(0.1, finish)
    assert PeerFinished(pair.right.local_id) not in pair.right.reports
    pair.left.take(0.3, pair.right.take(0.2, first))
    assert pair.right.received == [b"last word"]
    assert pair.right.reports[-1] == PeerFinished(pair.right.local_id)
    again = pair.left.fire(0.4)[1] or pair.left.fire()[1]
    assert pair.data(again) == [(1, FINISH, b"")]
    pair.right.take(2.0, again)
    assert pair.right.reports.count(PeerFinished(pair.right.local_id)) == 1


def test_the_last_word_and_its_repeats_confirm_that_of_the_peer(pair: Pair) -> None:
    """A side whose FINISH is confirmed may leave: the peer has the ACK, even if the first one was lost."""
    pair.right.take(0.1, pair.left.step(0.0, FinishSending(pair.left.local_id)))
    pair.right.step(0.2, FinishSending(pair.right.local_id))
    again = pair.right.fire()[1]
    assert pair.data(again) == [(0, FINISH, b"")]
    pair.left.take(3.0, again)
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)


def test_the_side_that_finished_first_pings_with_the_final_ack(pair: Pair) -> None:
    pair.settle(0.0, pair.left.step(0.0, FinishSending(pair.left.local_id)))
    assert pair.left.endpoint.all_acknowledged(pair.left.local_id)
    lost = pair.left.take(0.2, pair.right.step(0.1, FinishSending(pair.right.local_id)))
    assert len(lost) == 1
    assert not pair.left.endpoint.all_acknowledged(pair.left.local_id)
    pair.left.take(0.4, pair.right.take(0.3, pair.left.fire(0.3)[1] or pair.left.fire()[1]))
    for side in (pair.left, pair.right):
        assert side.endpoint.all_acknowledged(side.local_id)
        assert side.endpoint.all_confirmed(side.local_id)


def test_the_other_direction_goes_on_after_finish_and_nothing_more_is_sent(pair: Pair) -> None:
    pair.settle(0.0, pair.left.step(0.0, FinishSending(pair.left.local_id)))
    assert pair.left.send(0.1, b"too late") == []
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    pair.left.take(0.2, pair.right.send(0.2, b"still here"))
    assert pair.left.received == [b"still here"]


def test_a_message_that_finish_cuts_short_is_passed_over(pair: Pair) -> None:
    pair.right.step(0.0, pair.from_left(0, encode_data(0, True, b"beginning") + encode_numbered(FINISH, 1)))
    assert (pair.right.received, pair.right.reports) == ([], [PeerFinished(pair.right.local_id)])
    assert pair.right.endpoint.counters.oversized == 1
    assert pair.right.connection.receiver.held_bytes == 0
