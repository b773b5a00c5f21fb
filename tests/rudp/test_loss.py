"""Loss detection by ACKs: a packet that later ones overtook is retransmitted before the timeout (RFC 9002 6.1, 7.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import measure, numbers
from wanderbus.rudp.congestion import INITIAL_PACKETS, PACKETS_MIN, longest_blackout_s
from wanderbus.rudp.frames import encode_ack

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair, Side


def window(side: Side) -> float:
    return side.connection.sender.congestion.window


@pytest.mark.parametrize(("overtaken_by", "repeated"), [(1, 0), (2, 0), (3, 1), (4, 1)])
def test_rfc9002_6_1_1_the_packet_threshold_is_three(pair: Pair, overtaken_by: int, repeated: int) -> None:
    _, *rest = pair.left.send_each(0.0, *[bytes([n]) for n in range(1 + overtaken_by)])
    again = pair.left.take(0.001, pair.right.take(0.001, rest))
    assert [payload for _, _, payload in pair.data(again)] == [b"\x00"] * repeated
    counters = pair.left.endpoint.counters
    assert (counters.lost, counters.timeouts) == (repeated, 0)


def test_such_a_repeat_is_not_a_retry(make_pair: MakePair) -> None:
    """The same packet is lost far more often than there are retries, and never waits for the timeout."""
    pair, now = make_pair(retries_max=1), 0.0
    measure(pair, 0.01)
    pair.left.send(now, b"unlucky")
    for n in range(20):
        now += 0.001
        pair.left.connection.sender.congestion.window = 10.0
        others = pair.left.send_each(now, *[bytes([n])] * 3)
        assert len(pair.left.take(now + 0.01, pair.right.take(now + 0.005, others))) == 1
        now += 0.01
    assert pair.left.reports == []
    assert (pair.left.endpoint.counters.lost, pair.left.endpoint.counters.timeouts) == (20, 0)


def test_rfc9002_6_1_2_the_time_threshold_is_nine_eighths_of_the_round_trip(pair: Pair) -> None:
    measure(pair, 0.08)
    pair.left.fire(-1.0)
    _, later = pair.left.send_each(0.0, b"lost", b"arrives")
    assert pair.left.take(0.08, pair.right.take(0.04, [later])) == []
    at, again = pair.left.fire()
    assert at == pytest.approx(9 / 8 * 0.08)
    assert [payload for _, _, payload in pair.data(again)] == [b"lost"]
    counters = pair.left.endpoint.counters
    assert (counters.lost, counters.timeouts) == (1, 0)


def test_a_long_overtaken_packet_is_lost_when_the_ack_arrives(pair: Pair) -> None:
    measure(pair, 0.01)
    pair.left.send(0.0, b"lost")
    later = pair.left.send(0.02, b"arrives")
    assert len(pair.left.take(0.03, pair.right.take(0.025, later))) == 1


def test_a_spurious_loss_is_counted_and_delivers_nothing_twice(pair: Pair) -> None:
    late, *rest = pair.left.send_each(0.0, b"late", b"1", b"2", b"3")
    again = pair.left.take(0.02, pair.right.take(0.01, rest))
    acks = pair.right.take(0.03, [late])
    assert pair.left.take(0.04, acks) == []
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    assert pair.left.endpoint.counters.spurious == 1
    pair.settle(0.05, again)
    assert pair.right.received == [b"late", b"1", b"2", b"3"]
    assert pair.right.endpoint.counters.duplicates == 1


def test_a_loss_in_the_marks_of_one_batch_is_judged_after_all_of_them(pair: Pair) -> None:
    """ACKs that were reordered within a batch do not make a loss."""
    datagrams = pair.left.send_each(0.0, *[bytes([n]) for n in range(8)])
    acks = [pair.right.take(0.01, [datagram])[0] for datagram in datagrams]
    assert pair.left.take(0.02, acks[::-1]) == []
    assert pair.left.endpoint.counters.lost == 0


def test_rfc9002_7_3_2_a_round_trip_of_loss_halves_the_window_once(pair: Pair) -> None:
    measure(pair, 0.02)
    datagrams = pair.left.send_each(0.0, *[bytes([n]) for n in range(10)])
    pair.left.take(0.02, pair.right.take(0.01, datagrams[8:]))
    assert window(pair.left) == INITIAL_PACKETS / 2
    assert pair.left.endpoint.counters.lost == 7
    pair.left.fire(0.03)
    assert pair.left.endpoint.counters.lost == 8, "the last one by time"
    assert window(pair.left) == INITIAL_PACKETS / 2, "it was sent before the halving"


def test_rfc9002_7_4_losses_before_the_first_acknowledged_packet_do_not_count(pair: Pair) -> None:
    """The peer drops what arrives before the answer that opens its side of the connection."""
    datagrams = pair.left.send_each(0.0, *[bytes([n]) for n in range(10)])
    again = pair.left.take(0.02, pair.right.take(0.01, datagrams[5:]))
    assert pair.left.endpoint.counters.lost == 5
    assert window(pair.left) > INITIAL_PACKETS
    pair.settle(0.02, again)
    datagrams = pair.left.send_each(1.0, *[bytes([n]) for n in range(10)])
    pair.left.take(1.02, pair.right.take(1.01, datagrams[5:]))
    assert window(pair.left) < INITIAL_PACKETS, "a later loss counts"


def test_another_round_trip_of_loss_halves_again_down_to_the_minimum(pair: Pair) -> None:
    measure(pair, 0.02)
    now = 0.0
    for expected in (5.0, 2.5, PACKETS_MIN, PACKETS_MIN):
        pair.left.connection.sender.congestion.window = max(window(pair.left), 4.0)
        _, *rest = pair.left.send_each(now, *[b"x"] * 4)
        pair.left.connection.sender.congestion.window = min(window(pair.left), 2 * expected)
        again = pair.left.take(now + 0.02, pair.right.take(now + 0.01, rest))
        assert window(pair.left) == expected
        pair.settle(now + 0.02, again)
        now += 1.0


@pytest.mark.parametrize(("rounds", "collapses"), [(1, False), (5, True)])
def test_rfc9002_7_6_persistent_congestion_leaves_the_least_window(
    make_pair: MakePair, rounds: int, collapses: bool
) -> None:
    """No packet gets through for longer than three timeouts; then packets arrive again."""
    pair = make_pair(messages_per_datagram_max=1)
    measure(pair, 0.05)
    pair.left.send(0.0, *[bytes([n]) for n in range(8)])
    for _ in range(rounds):
        at, again = pair.left.fire()
        while not again:
            at, again = pair.left.fire()
    assert window(pair.left) == INITIAL_PACKETS, "a timeout alone says nothing"
    pair.left.take(at + 0.05, pair.right.take(at + 0.02, again))
    assert window(pair.left) == (PACKETS_MIN if collapses else INITIAL_PACKETS / 2)


def test_late_acks_after_a_timeout_are_no_congestion(pair: Pair) -> None:
    """The round trip is longer than the timeout was."""
    acks = pair.right.take(0.3, pair.left.send_each(0.0, *[bytes([n]) for n in range(5)]))
    pair.left.fire()
    pair.left.take(0.6, acks)
    assert window(pair.left) == INITIAL_PACKETS
    assert pair.left.endpoint.counters.spurious == 2, "as many as were repeated"


def test_an_ack_for_an_ack_alone_loses_nothing_that_was_not_overtaken(pair: Pair) -> None:
    """Acknowledging a packet that needs no ACK is correct, though unnecessary."""
    pair.right.take(0.0, pair.left.send(0.0, b"x"))
    (sent,) = pair.right.send(0.1, b"y")
    assert numbers([sent]) == [1]
    assert pair.right.step(0.2, pair.from_left(1, encode_ack(0, 0, 0))) == []
    assert pair.right.endpoint.counters.lost == 0


def test_blackouts_are_cut_by_what_was_confirmed_and_by_the_first_sample() -> None:
    lost = [(1, 10.0), (2, 11.0), (4, 14.0), (5, 19.0)]
    assert longest_blackout_s(lost, [], 0.0) == 9.0
    assert longest_blackout_s(lost, [3], 0.0) == 5.0
    assert longest_blackout_s(lost, [0, 6], 0.0) == 9.0
    assert longest_blackout_s(lost, [], 11.0) == 8.0
    assert longest_blackout_s([], [], 0.0) == 0.0
