"""Which datagram belongs to which connection, and what an unknown one is answered (DESIGN 6.3, RFC 9000 10.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus.machine import CancelTimer, DatagramReceived, SendDatagram, SetTimer
from wanderbus.rudp import (
    ChangePath,
    CloseConnection,
    ConnectionReset,
    Endpoint,
    OpenConnection,
    Probe,
    SendMessage,
)
from wanderbus.rudp.frames import PING_FRAME, encode_acks, encode_packet_header, encode_reset

if TYPE_CHECKING:
    from tests.rudp.conftest import Pair

SOURCE = ("203.0.113.5", 5)


class FixedRandom:
    def token(self, n_bytes: int) -> bytes:
        return b"\x01" * n_bytes

    def uniform(self, low: float, high: float) -> float:
        return low


def arrived(data: bytes, socket: str = "data") -> DatagramReceived:
    return DatagramReceived(socket, SOURCE, data)


def test_an_unknown_id_is_answered_with_a_reset_to_the_source(pair: Pair) -> None:
    packet = encode_packet_header(77, 88, 5) + PING_FRAME
    assert pair.left.step(0.0, arrived(packet)) == [SendDatagram("data", SOURCE, encode_reset(88, 77))]


def test_a_reset_is_never_longer_than_its_trigger(pair: Pair) -> None:
    for body in (PING_FRAME, encode_acks([1])):
        packet = encode_packet_header(77, 88, 5) + body
        for size in range(len(packet) + 1):
            for answer in pair.left.step(0.0, arrived(packet[:size])):
                assert len(answer.data) < size


def test_a_reset_is_not_answered_so_that_two_strangers_do_not_loop(pair: Pair) -> None:
    assert pair.left.step(0.0, arrived(encode_reset(77, 88))) == []
    assert pair.left.endpoint.counters.unknown == 1


def test_a_peer_that_forgot_the_connection_resets_it(pair: Pair) -> None:
    pair.right.step(0.0, CloseConnection(pair.right.local_id))
    resets = pair.right.take(0.1, pair.left.send(0.0, b"x"), pair.left.address)
    assert pair.left.take(0.2, resets) == []
    assert pair.left.reports == [ConnectionReset(pair.left.local_id)]
    assert pair.left.timer_at is None, "its timer is cancelled"
    assert pair.left.send(0.3, b"y") == []


def test_a_reset_for_the_wrong_pair_is_ignored(pair: Pair) -> None:
    pair.left.step(0.0, arrived(encode_reset(pair.left.local_id, pair.right.local_id + 1)))
    assert pair.left.reports == []
    assert pair.left.endpoint.counters.wrong_pair == 1
    assert len(pair.left.send(0.1, b"x")) == 1


def test_late_packets_of_an_older_connection_are_dropped(pair: Pair) -> None:
    late = pair.left.send(0.0, b"of the older connection")
    newer = pair.left.endpoint.allocate()
    pair.right.step(0.1, OpenConnection(pair.right.local_id, newer, pair.left.address, 1))
    assert pair.right.take(0.2, late) == []
    assert (pair.right.received, pair.right.reports) == ([], [])
    assert pair.right.endpoint.counters.wrong_pair == pair.right.endpoint.counters.dropped == 1


def test_opening_again_replaces_and_cancels_the_timer_of_the_old() -> None:
    endpoint = Endpoint(FixedRandom())
    endpoint.step([OpenConnection(1, 2, SOURCE, 0), SendMessage(1, b"x")], 0.0)
    assert endpoint.step([OpenConnection(1, 3, SOURCE, 0)], 0.1) == [CancelTimer(1)]
    outputs = endpoint.step([SendMessage(1, b"x")], 0.2)
    assert [output for output in outputs if isinstance(output, SetTimer)] == [SetTimer(1, 0.45)]


def test_what_arrives_before_the_connection_is_open_is_dropped_without_a_reset(pair: Pair) -> None:
    """The peer learns our id in the answer to its offer, and may send before we have opened."""
    early = pair.right.endpoint.allocate()
    packet = arrived(encode_packet_header(early, 88, 0) + PING_FRAME)
    assert pair.right.step(0.0, packet) == []
    assert pair.right.endpoint.counters.early == 1
    pair.right.step(0.0, CloseConnection(early))
    assert len(pair.right.step(0.0, packet)) == 1


def test_requests_for_an_unknown_id_are_ignored(pair: Pair) -> None:
    requests = [SendMessage(5, b"x"), Probe(5), ChangePath(5, SOURCE, 1), CloseConnection(5)]
    assert pair.left.step(0.0, *requests) == []
    assert (pair.left.endpoint.rtt_s(5), pair.left.endpoint.unsent_bytes(5)) == (None, 0)


def test_closing_is_silent_and_cancels_the_timer(pair: Pair) -> None:
    pair.left.send(0.0, b"x")
    assert pair.left.endpoint.step([CloseConnection(pair.left.local_id)], 0.1) == [CancelTimer(pair.left.local_id)]


def test_a_connection_closed_or_reset_in_the_same_batch_sends_nothing(pair: Pair) -> None:
    reset = arrived(encode_reset(pair.left.local_id, pair.right.local_id))
    assert pair.left.step(0.0, SendMessage(pair.left.local_id, b"x"), reset) == []
    assert pair.left.reports == [ConnectionReset(pair.left.local_id)]
    assert pair.right.step(0.0, SendMessage(pair.right.local_id, b"x"), CloseConnection(pair.right.local_id)) == []
    assert (pair.left.timer_at, pair.right.timer_at) == (None, None)


def test_datagrams_of_another_socket_are_not_ours(pair: Pair) -> None:
    assert pair.left.step(0.0, arrived(encode_packet_header(77, 88, 5) + PING_FRAME, socket="sip")) == []
    assert pair.left.endpoint.counters.dropped == 0


def test_too_long_a_datagram_is_dropped(pair: Pair) -> None:
    packet = encode_packet_header(pair.left.local_id, pair.right.local_id, 0) + PING_FRAME * 1176
    assert pair.left.step(0.0, arrived(packet)) == []
    assert pair.left.endpoint.counters.malformed == 1
    assert len(pair.left.step(0.0, arrived(packet[:1200]))) == 1


def test_ids_are_63_bits_and_never_0() -> None:
    tokens = iter([b"\x00" * 8, b"\x00" * 7 + b"\x01", b"\xff" * 8, b"\xff" * 8, b"\x00" * 7 + b"\x02"])

    class Scripted(FixedRandom):
        def token(self, n_bytes: int) -> bytes:
            return next(tokens)

    endpoint = Endpoint(Scripted())
    assert [endpoint.allocate(), endpoint.allocate()] == [2**63 - 1, 1]
