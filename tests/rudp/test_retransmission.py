"""Timeouts, back-off and giving up, with literal times (SPEC F-04, F-05, F-06, X15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from wanderbus.machine import DatagramReceived, SendDatagram, TimerFired
from wanderbus.rudp import ConnectionFailed, Probe, SendMessage
from wanderbus.rudp.frames import decode_frames, decode_packet_number

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair


def numbers(datagrams: list[SendDatagram]) -> list[int]:
    return [decode_packet_number(datagram.data) for datagram in datagrams]


def test_f05_gaps_grow_geometrically(make_pair: MakePair) -> None:
    left = make_pair(initial_timeout_s=0.25, backoff_factor=2.0, timeout_max_s=4.0).left
    left.send(10.0, b"x")
    times = [left.fire()[0] for _ in range(6)]
    assert times == pytest.approx([10.25, 10.75, 11.75, 13.75, 17.75, 21.75])


@pytest.mark.parametrize("retries_max", [0, 1, 6])
def test_f06_exact_attempt_count(make_pair: MakePair, retries_max: int) -> None:
    left = make_pair(retries_max=retries_max).left
    sent = [left.send(0.0, b"x")]
    while not left.reports:
        sent.append(left.fire()[1])
    assert [len(datagrams) for datagrams in sent] == [1] * (1 + retries_max) + [0]
    assert left.reports == [ConnectionFailed(left.local_id)]
    assert left.timer_at is None
    assert left.send(100.0, b"y") == []
    assert left.endpoint.counters.retransmitted == retries_max


def test_f06_a_probe_fails_like_data(make_pair: MakePair) -> None:
    left = make_pair(retries_max=2).left
    assert len(left.step(0.0, Probe(left.local_id))) == 1
    while not left.reports:
        at, _ = left.fire()
    assert left.reports == [ConnectionFailed(left.local_id)]
    assert at == pytest.approx(0.25 + 0.5 + 1.0)


def test_design_6_2_a_retransmission_is_a_new_packet_with_the_old_frames(pair: Pair) -> None:
    first = pair.left.send(0.0, b"one", b"two")
    _, again = pair.left.fire()
    assert (numbers(first), numbers(again)) == ([0], [1])
    assert decode_frames(first[0].data) == decode_frames(again[0].data)


def test_f04_every_confirmed_packet_is_a_sample(pair: Pair) -> None:
    for start, rtt_s in ((0.0, 0.1), (1.0, 0.2)):
        acks = pair.right.take(start + 0.01, pair.left.send(start, b"x"))
        pair.left.take(start + rtt_s, acks)
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.1125)


@pytest.mark.parametrize("delay_s", [0.02, 0.3, 1.2])
def test_f04_timeout_tracks_injected_delay(pair: Pair, delay_s: float) -> None:
    now = 0.0
    for _ in range(60):
        acks = pair.right.take(now + delay_s / 2, pair.left.send(now, b"x"))
        now += delay_s
        pair.left.take(now, acks)
    if pair.left.timer_at is not None:
        pair.left.fire(max(now, pair.left.timer_at))
    pair.left.send(100.0, b"x")
    assert pair.left.timer_at == pytest.approx(100.0 + max(delay_s, 0.05), rel=0.02)


def test_x15_the_sample_of_a_retransmission_is_its_own(pair: Pair) -> None:
    pair.left.send(0.0, b"x")
    at, again = pair.left.fire()
    pair.left.take(at + 0.03, pair.right.take(at, again))
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.03)


def test_x15_a_late_ack_confirms_and_measures(pair: Pair) -> None:
    """A round trip above the initial timeout would otherwise never be measured."""
    acks = pair.right.take(0.5, pair.left.send(0.0, b"x"))
    pair.left.fire()
    pair.left.take(0.6, acks)
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.6)
    _, sent = pair.left.fire(5.0)
    assert sent == []


def test_an_ack_in_the_same_batch_as_a_late_timer_is_seen_first(pair: Pair) -> None:
    acks = pair.right.take(0.01, pair.left.send(0.0, b"x"))
    ack = DatagramReceived("data", pair.right.address, acks[0].data)
    assert pair.left.step(0.3, TimerFired(pair.left.local_id), ack) == []
    assert pair.left.endpoint.counters.retransmitted == 0


def test_a_timer_that_fires_early_is_set_again(pair: Pair) -> None:
    pair.left.send(0.0, b"x")
    _, sent = pair.left.fire(0.1)
    assert (sent, pair.left.timer_at) == ([], 0.25)


def test_one_timer_for_many_packets_and_none_once_idle(pair: Pair) -> None:
    datagrams = [datagram for n in range(20) for datagram in pair.left.send(n / 1000, b"x")]
    assert pair.left.timer_at == 0.25
    pair.left.take(0.03, pair.right.take(0.02, datagrams))
    _, sent = pair.left.fire()
    assert sent == []
    assert pair.left.timer_at is None


def test_only_what_is_overdue_goes_again(pair: Pair) -> None:
    pair.left.send(0.0, b"early")
    pair.left.send(0.2, b"late")
    at, sent = pair.left.fire()
    assert at == 0.25
    assert decode_frames(sent[0].data).data == [(0, False, b"early")]
    assert len(sent) == 1
    assert pair.left.timer_at == pytest.approx(0.45)


def test_f10_packets_in_flight_are_bounded_and_the_rest_waits_in_order(make_pair: MakePair) -> None:
    pair = make_pair(packets_in_flight_max=4)
    messages = [bytes([n]) * 1000 for n in range(10)]
    datagrams = pair.left.send(0.0, *messages)
    assert len(datagrams) == 4
    assert pair.left.endpoint.unsent_bytes(pair.left.local_id) == 6 * 1011
    pair.settle(0.01, datagrams)
    assert pair.right.received == messages
    assert pair.left.endpoint.unsent_bytes(pair.left.local_id) == 0


def test_f10_the_sender_stays_within_the_window_of_the_receiver(make_pair: MakePair) -> None:
    """The first packet is lost: nothing may go further than ``reorder_frames_max`` past it."""
    pair = make_pair(reorder_frames_max=8)
    lost = pair.left.send(0.0, b"a", b"b")
    assert len(lost) == 1
    rest = pair.left.send(0.0, *[bytes([n]) for n in range(20)])
    frames = [frame for datagram in rest for frame in decode_frames(datagram.data).data]
    assert [number for number, _, _ in frames] == [2, 3, 4, 5, 6, 7]
    pair.settle(0.01, rest)
    _, again = pair.left.fire()
    pair.settle(0.3, again)
    assert pair.right.received == [b"a", b"b", *[bytes([n]) for n in range(20)]]
    assert pair.right.endpoint.counters.refused == 0


def test_probe_is_answered_and_leaves_nothing_behind(pair: Pair) -> None:
    sent = pair.left.step(0.0, Probe(pair.left.local_id))
    assert decode_frames(sent[0].data) == ([], [], True)
    assert pair.left.step(0.01, Probe(pair.left.local_id)) == [], "a second PING tells nothing more"
    acks = pair.right.take(0.02, sent)
    assert len(acks) == 1
    assert pair.left.take(0.03, acks) == []
    assert len(pair.left.step(0.04, Probe(pair.left.local_id))) == 1


def test_data_of_the_same_step_serves_as_the_probe(pair: Pair) -> None:
    sent = pair.left.step(0.0, Probe(pair.left.local_id), SendMessage(pair.left.local_id, b"x"))
    assert [decode_frames(datagram.data).data for datagram in sent] == [[(0, False, b"x")]]
