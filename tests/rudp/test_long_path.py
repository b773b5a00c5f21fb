"""Long paths: as many round trips as TCP with an initial window of ten segments (RFC 6928, RFC 9002 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rudp.link import Link
from wanderbus.rudp.congestion import BURST_PACKETS, INITIAL_PACKETS, VALID_S

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Side

SEGMENT_BYTES = 1_448
"""Payload of a TCP segment on Ethernet, with timestamps."""

PACED = 0.2
"""Part of a round trip that the pace may add to the flights: a window leaves within a quarter of it."""

LOADS = [(40, 3_100), (300, 1_100), (1, 30_100)]
"""Messages and their bytes: many of some packets each, more than the initial window allows, one of many packets."""


def flights(payload_bytes: int) -> int:
    """Return how many flights TCP needs from its initial window on, doubling it with each."""
    count, carried, window = 0, 0, 10 * SEGMENT_BYTES
    while carried < payload_bytes:
        count, carried, window = count + 1, carried + window, 2 * window
    return count


def window(side: Side) -> float:
    return side.connection.sender.congestion.window


@pytest.mark.parametrize(("rtt_s", "sealed"), [(0.3, False), (0.6, True), (1.0, True), (2.0, False)])
@pytest.mark.parametrize(("messages", "message_bytes"), LOADS)
def test_a_fresh_connection_needs_no_more_flights_than_tcp(
    make_pair: MakePair, messages: int, message_bytes: int, rtt_s: float, sealed: bool
) -> None:
    """The initial timeout, 0.25 s, is shorter than the round trip, and so guesses a loss, some times several."""
    link = Link(make_pair(sealed=sealed, announcing=True), rtt_s)
    took_s = link.send(*[bytes(message_bytes)] * messages)
    assert took_s / rtt_s <= flights(messages * message_bytes) - 0.5 + PACED
    assert took_s / rtt_s >= 0.5


@pytest.mark.parametrize(("rtt_s", "pause_s"), [(0.3, 60.0), (0.6, 0.0), (1.0, 5.0)])
@pytest.mark.parametrize(("messages", "message_bytes"), LOADS)
def test_the_same_again_takes_a_single_flight(
    make_pair: MakePair, messages: int, message_bytes: int, rtt_s: float, pause_s: float
) -> None:
    """The window that carried a batch carries it again, at once and after a pause (RFC 7661 4.3)."""
    link = Link(make_pair(sealed=True), rtt_s)
    for batch in range(3):
        took_s = link.send(*[bytes(message_bytes)] * messages)
        assert batch == 0 or took_s / rtt_s <= 0.5 + PACED, batch
        link.run(rtt_s / 2 + pause_s)


def test_an_early_timeout_repeats_two_packets_and_is_no_congestion(make_pair: MakePair) -> None:
    """RFC 9002 6.2.4 and 7.5: before the path is measured, a timeout is a guess."""
    link = Link(make_pair(messages_per_datagram_max=1), 1.0)
    link.send(*[bytes(1_000)] * 10)
    link.run(3.0)
    counters = link.pair.left.endpoint.counters
    assert counters.retransmitted == counters.spurious + 2 == 4, "after 0.25 s and 0.75 s"
    assert window(link.pair.left) >= INITIAL_PACKETS
    assert counters.lost == 0


def test_jitter_of_a_steady_long_path_is_no_timeout(make_pair: MakePair) -> None:
    """The deviation falls to nothing in a hundred equal samples; an ACK 30 ms later is no loss."""
    link = Link(make_pair(messages_per_datagram_max=1), 0.6)
    for _ in range(10):
        link.send(*[bytes(100)] * 20)
        link.run(1.0)
    before = link.pair.left.endpoint.counters.retransmitted
    link._rtt_s = 0.63
    link.send(*[bytes(100)] * 20)
    link.run(5.0)
    assert link.pair.left.endpoint.counters.retransmitted == before


@pytest.mark.parametrize(("rtt_s", "most"), [(0.001, 128), (0.02, 256), (0.5, 512)])
def test_the_window_exceeds_a_burst_only_by_what_the_path_holds(make_pair: MakePair, rtt_s: float, most: int) -> None:
    link = Link(make_pair(messages_per_datagram_max=1), rtt_s)
    for _ in range(6):
        link.send(*[bytes(100)] * 600)
    assert window(link.pair.left) == pytest.approx(most)


def test_rfc9002_7_7_a_large_window_leaves_in_bursts_of_a_bounded_size(make_pair: MakePair) -> None:
    """Also after a pause, when no ACKs clock it."""
    link = Link(make_pair(), 0.5)
    for _ in range(5):
        link.send(*[bytes(1_100)] * 400)
        link.run(30.0)
    assert window(link.pair.left) > 3 * BURST_PACKETS
    assert link.largest_burst == BURST_PACKETS


def test_rfc7661_4_3_an_unused_window_is_halved_every_five_minutes(make_pair: MakePair) -> None:
    link = Link(make_pair(messages_per_datagram_max=1), 0.3)
    link.send(*[bytes(1_100)] * 300)
    link.run(VALID_S - 2.0)
    before = window(link.pair.left)
    link.send(b"x")
    assert window(link.pair.left) == before > 100
    link.run(VALID_S + 1.0)
    link.send(b"x")
    assert window(link.pair.left) == before / 2
    link.run(20 * VALID_S)
    link.send(b"x")
    assert window(link.pair.left) == INITIAL_PACKETS


def test_rfc7661_4_4_a_loss_halves_what_was_used_of_an_old_window(make_pair: MakePair) -> None:
    link = Link(make_pair(messages_per_datagram_max=1), 0.3)
    link.send(*[bytes(1_100)] * 300)
    link.run(10.0)
    for _ in range(3):
        link.send(*[bytes(100)] * 40)
        link.run(10.0)
    assert window(link.pair.left) > 200
    _, *rest = link.pair.left.send(link.now, *[bytes(100)] * 40)
    link._carry(link.pair.left, rest)
    link.run(5.0)
    assert window(link.pair.left) == pytest.approx(20, abs=1)
