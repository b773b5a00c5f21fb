"""The congestion window: NewReno in packets (RFC 9002 7)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import measure
from wanderbus.rudp.congestion import INITIAL_PACKETS, PACKETS_MIN, Congestion

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Side

RTT_S = 1.0


def window(side: Side) -> float:
    return side.connection.sender.congestion.window


def test_rfc9002_7_3_1_slow_start_grows_by_one_for_each_packet() -> None:
    congestion = Congestion(1_000)
    congestion.limiting = True
    congestion.confirmed(list(range(10)), 10, RTT_S)
    assert congestion.window == 20.0


def test_rfc9002_7_3_3_after_a_loss_it_grows_by_one_for_each_window() -> None:
    congestion = Congestion(1_000)
    congestion.limiting = True
    congestion.lost(5, 10)
    assert congestion.window == 5.0
    congestion.confirmed([8, 9], 15, RTT_S)
    assert congestion.window == 5.0, "sent before the loss was seen"
    congestion.confirmed([10, 11, 12, 13, 14], 20, RTT_S)
    assert congestion.window == pytest.approx(6.0, abs=0.1)


def test_rfc9002_7_8_an_unused_window_does_not_grow(make_pair: MakePair) -> None:
    pair, now = make_pair(messages_per_datagram_max=1), 0.0
    for _ in range(20):
        sent = pair.left.send(now, *[b"x"] * 5)
        pair.left.take(now + 0.01, pair.right.take(now + 0.005, sent))
        now += 0.02
    assert window(pair.left) == INITIAL_PACKETS


def test_rfc7661_4_1_in_slow_start_a_window_of_which_half_is_used_grows(make_pair: MakePair) -> None:
    pair, now = make_pair(messages_per_datagram_max=1), 0.0
    for _ in range(20):
        sent = pair.left.send(now, *[b"x"] * 9)
        pair.left.take(now + 0.01, pair.right.take(now + 0.005, sent))
        now += 0.02
    assert 2 * 9 <= window(pair.left) <= 3 * 9


def test_flow_control_is_not_the_congestion_window(make_pair: MakePair) -> None:
    """A receiver that grants no more must not make the window grow."""
    pair, now = make_pair(messages_per_datagram_max=1), 0.0
    pair.left.connection.sender.granted = 5
    sent = pair.left.send(now, *[b"x"] * 20)
    assert len(sent) == 5
    pair.left.take(0.02, pair.right.take(0.01, sent))
    assert window(pair.left) == INITIAL_PACKETS


def test_f10_packets_in_flight_max_bounds_the_window_and_the_rest_waits_in_order(make_pair: MakePair) -> None:
    pair = make_pair(packets_in_flight_max=4)
    messages = [bytes([n]) * 1000 for n in range(30)]
    datagrams = pair.left.send(0.0, *messages)
    assert len(datagrams) == 4
    assert pair.left.endpoint.unsent_bytes(pair.left.local_id) == 26 * 1011
    most, now = 0, 0.0
    while datagrams:
        now += 0.01
        datagrams = pair.left.take(now, pair.right.take(now, datagrams))
        most = max(most, pair.left.connection.sender.packets_in_flight)
    assert most == window(pair.left) == 4
    assert pair.right.received == messages
    assert pair.left.endpoint.unsent_bytes(pair.left.local_id) == 0


def test_bursts_are_bounded_by_the_window_and_begin_small(make_pair: MakePair) -> None:
    pair, now = make_pair(messages_per_datagram_max=1, packets_in_flight_max=64), 0.0
    datagrams = pair.left.send(now, *[b"x"] * 1_000)
    bursts = []
    while datagrams:
        bursts.append(len(datagrams))
        now += 0.01
        datagrams = pair.left.take(now, pair.right.take(now, datagrams))
    assert bursts[:4] == [10, 20, 40, 64]
    assert max(bursts) == 64


def test_a_window_below_what_is_in_flight_holds_repeats_back(make_pair: MakePair) -> None:
    """After a halving, lost packets are retransmitted as far as the window allows, and none is forgotten."""
    pair = make_pair(messages_per_datagram_max=1)
    measure(pair, 0.02)
    pair.right.received.clear()
    datagrams = pair.left.send(0.0, *[bytes([n]) for n in range(10)])
    again = pair.left.take(0.02, pair.right.take(0.01, datagrams[9:]))
    assert [payload for _, _, payload in pair.data(again)] == [bytes([n]) for n in range(3)]
    assert pair.left.connection.sender.packets_in_flight == INITIAL_PACKETS / 2
    pair.settle(0.03, again + datagrams[7:9])
    while pair.left.timer_at is not None:
        pair.settle(*pair.left.fire())
    assert pair.right.received == [bytes([n]) for n in range(10)]


@pytest.mark.parametrize("seed", range(10))
def test_the_window_stays_within_its_bounds(seed: int) -> None:
    print("seed", seed)
    random, congestion, number = Random(seed), Congestion(50), 0
    for _ in range(500):
        congestion.limiting = random.random() < 0.8
        match random.randrange(5):
            case 0:
                congestion.lost(number, number + 10)
            case 1:
                congestion.sent(random.randrange(50), random.uniform(0.0, 1_000.0))
            case 2 if random.random() < 0.1:
                congestion.collapse()
            case _:
                congestion.confirmed(list(range(number, number + 10)), number + 20, RTT_S)
        number += 10
        assert PACKETS_MIN <= congestion.window <= 50
