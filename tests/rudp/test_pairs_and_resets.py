"""Assignment of datagrams to connections, and the answer to an unknown one (DESIGN 6.3, RFC 9000 10.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import RESET_KEY, Pair, SeededRandom
from wanderbus.machine import CancelTimer, DatagramReceived, Input, SendDatagram, SetTimer
from wanderbus.rudp import (
    ChangePath,
    CloseConnection,
    ConnectionReset,
    Consumed,
    Endpoint,
    FinishSending,
    MovedHere,
    OpenConnection,
    Probe,
    RudpConfig,
    SendMessage,
)
from wanderbus.rudp.frames import PING_FRAME, PLAIN, RESET, SEALED, TOKEN, decode_header, encode_header, encode_reset
from wanderbus.rudp.handshake_messages import HELLO, WELCOME

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Side

SOURCE = ("203.0.113.5", 5)
BOTH_MODES = pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])


class FixedRandom:
    def token(self, n_bytes: int) -> bytes:
        return b"\x01" * n_bytes

    def uniform(self, low: float, high: float) -> float:
        return low


def arrived(data: bytes, socket: str = "data") -> DatagramReceived:
    return DatagramReceived(socket, SOURCE, data)


def packet(local_id: int, remote_id: int, kind: int = PLAIN) -> bytes:
    return encode_header(local_id, remote_id, kind, 0, 0, 5) + PING_FRAME


def restarted(side: Side) -> None:
    """The side loses everything but its reset key."""
    side.endpoint = Endpoint(SeededRandom(99), RudpConfig(), reset_key=RESET_KEY)
    side.timer_at = None


def test_no_key_outlives_its_connection(make_pair: MakePair) -> None:
    pair = make_pair(sealed=True)
    pair.left.step(0.0, SendMessage(pair.left.local_id, b"x"))
    assert len(pair.left.endpoint._awake) == 1
    pair.left.step(0.1, CloseConnection(pair.left.local_id))
    assert len(pair.left.endpoint._awake) == 0


def test_an_unknown_id_is_answered_with_a_reset_to_the_source(pair: Pair) -> None:
    (reset,) = pair.left.step(0.0, arrived(packet(77, 88)))
    assert reset.destination == SOURCE
    assert decode_header(reset.data)[:3] == (88, 77, RESET)
    counters = pair.left.endpoint.counters
    assert (counters.unknown, counters.resets, counters.dropped) == (1, 1, 1)


@pytest.mark.parametrize("kind", [PLAIN, SEALED])
def test_a_reset_is_never_longer_than_its_trigger(pair: Pair, kind: int) -> None:
    trigger = packet(77, 88, kind)[:33] + bytes(20)
    for size in range(len(trigger) + 1):
        for answer in pair.left.step(0.0, arrived(trigger[:size])):
            assert len(answer.data) <= size
    assert pair.left.endpoint.counters.resets == 21


@pytest.mark.parametrize("kind", [RESET, HELLO, WELCOME, 0, 9, 255])
def test_nothing_but_a_packet_is_answered_so_that_two_strangers_do_not_loop(pair: Pair, kind: int) -> None:
    data = packet(77, 88, kind)[:33]
    assert pair.left.step(0.0, arrived(data)) == []
    counters = pair.left.endpoint.counters
    assert (counters.unsolicited, counters.malformed) == ((1, 0) if kind == RESET else (0, 1))
    assert counters.dropped == 1


@BOTH_MODES
def test_a_peer_that_was_restarted_resets_the_connection(make_pair: MakePair, sealed: bool) -> None:
    pair = make_pair(sealed=sealed, announcing=True)
    pair.settle(0.0, pair.left.send(0.0, b"x"))
    restarted(pair.right)
    resets = pair.right.take(0.1, pair.left.send(0.1, b"y"), pair.left.address)
    assert pair.left.take(0.2, resets) == []
    assert pair.left.reports == [ConnectionReset(pair.left.local_id)]
    assert pair.left.timer_at is None, "its timer is cancelled"
    assert pair.left.send(0.3, b"z") == []
    assert pair.left.endpoint.all_confirmed(pair.left.local_id), "the id is unknown now"


@BOTH_MODES
def test_the_token_is_announced_once_in_the_first_bundle_and_reliably(make_pair: MakePair, sealed: bool) -> None:
    pair = make_pair(sealed=sealed, announcing=True)
    (first,) = pair.left.send(0.0, b"x")
    assert [kind for kind, _ in pair.controls([first])] == [TOKEN]
    _, again = pair.left.fire()
    assert pair.controls(again) == pair.controls([first])
    (answer,) = pair.right.take(0.3, again)
    assert [kind for kind, _ in pair.controls([answer])] == [TOKEN], "who only receives has a token too"
    pair.left.take(0.4, [answer])
    assert pair.left.connection.peer_token == pair.controls([answer])[0][1]
    assert pair.controls(pair.left.send(0.5, b"y")) == []


@pytest.mark.parametrize("token", [bytes(16), b"another token..."])
@BOTH_MODES
def test_a_reset_with_a_wrong_token_is_dropped(make_pair: MakePair, sealed: bool, token: bytes) -> None:
    pair = make_pair(sealed=sealed)
    reset = encode_reset(pair.left.local_id, pair.right.local_id, token)
    assert pair.left.step(0.0, arrived(reset)) == []
    assert (pair.left.reports, pair.left.endpoint.counters.forged) == ([], 1)
    assert len(pair.left.send(0.1, b"x")) == 1


def test_a_reset_before_the_token_is_known_is_dropped(make_pair: MakePair) -> None:
    pair = make_pair(announcing=True)
    restarted(pair.right)
    resets = pair.right.take(0.1, pair.left.send(0.0, b"y"), pair.left.address)
    assert len(resets) == 1
    pair.left.take(0.2, resets)
    assert (pair.left.reports, pair.left.endpoint.counters.forged) == ([], 1)


def test_tokens_differ_by_id_and_by_key() -> None:
    def reset(key: bytes, local_id: int) -> bytes:
        endpoint = Endpoint(FixedRandom(), reset_key=key)
        (output,) = endpoint.step([arrived(packet(local_id, 88))], 0.0)
        assert isinstance(output, SendDatagram)
        return output.data[-16:]

    assert len({reset(key, local_id) for key in (b"one", b"two") for local_id in (77, 78)}) == 4


def test_without_a_reset_key_a_sealed_connection_is_not_reset_and_announces_nothing(make_pair: MakePair) -> None:
    """Anybody who reads the ids could derive the token."""
    endpoint = Endpoint(FixedRandom())
    assert endpoint.step([arrived(packet(77, 88, SEALED))], 0.0) == []
    assert len(endpoint.step([arrived(packet(77, 88, PLAIN))], 0.0)) == 1
    pair = make_pair(sealed=True)
    pair.left.endpoint = endpoint
    pair.open(pair.left, pair.right, pair.left.secrets)
    assert pair.controls(pair.left.send(0.0, b"x")) == []


def test_a_reset_for_the_wrong_pair_is_ignored(pair: Pair) -> None:
    pair.left.step(0.0, arrived(encode_reset(pair.left.local_id, pair.right.local_id + 1, bytes(16))))
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


@BOTH_MODES
def test_packets_of_the_other_mode_change_nothing(make_pair: MakePair, sealed: bool) -> None:
    pair, other = make_pair(sealed=sealed), make_pair(sealed=not sealed)
    foreign = other.left.send(0.0, b"x")
    assert pair.left.local_id == other.left.local_id
    assert pair.right.take(0.1, foreign) == []
    assert pair.right.received == []
    assert pair.right.endpoint.counters.forged == pair.right.endpoint.counters.dropped == 1


def test_a_sealed_packet_that_was_altered_anywhere_changes_nothing(make_pair: MakePair) -> None:
    pair = make_pair(sealed=True)
    (packet,) = pair.left.send(0.0, b"secret")
    assert b"secret" not in packet.data
    for position in range(18, len(packet.data)):
        altered = bytearray(packet.data)
        altered[position] ^= 1
        assert pair.right.step(0.1, arrived(bytes(altered))) == []
    counters = pair.right.endpoint.counters
    assert counters.forged == counters.dropped == len(packet.data) - 18
    pair.settle(0.2, [packet])
    assert pair.right.received == [b"secret"]


def test_f10_rekey_packets_takes_effect(make_pair: MakePair) -> None:
    pair = make_pair(sealed=True, rekey_packets=5)
    epochs = []
    for n in range(20):
        sent = pair.left.send(n, b"%d" % n)
        epochs.append(decode_header(sent[0].data)[3])
        pair.settle(n, sent)
    assert epochs == [n // 5 for n in range(20)]
    assert pair.right.received == [b"%d" % n for n in range(20)]


def test_opening_again_replaces_and_cancels_the_timer_of_the_old() -> None:
    endpoint = Endpoint(FixedRandom())
    endpoint.step([OpenConnection(1, 2, SOURCE, 0), SendMessage(1, b"x")], 0.0)
    assert endpoint.step([OpenConnection(1, 3, SOURCE, 0)], 0.1) == [CancelTimer(1)]
    outputs = endpoint.step([SendMessage(1, b"x")], 0.2)
    assert [output for output in outputs if isinstance(output, SetTimer)] == [SetTimer(1, 0.45)]


def test_early_packets_are_dropped_without_a_reset(pair: Pair) -> None:
    """The peer learns our id in the answer to its offer, and may send before we have opened."""
    early = pair.right.endpoint.allocate()
    given = arrived(packet(early, 88))
    assert pair.right.step(0.0, given) == []
    assert pair.right.endpoint.counters.early == 1
    pair.right.step(0.0, CloseConnection(early))
    assert len(pair.right.step(0.0, given)) == 1


def test_requests_for_an_unknown_id_are_ignored(pair: Pair) -> None:
    requests: list[Input] = [SendMessage(5, b"x"), Probe(5), ChangePath(5, SOURCE, 1), CloseConnection(5)]
    requests += [Consumed(5, 1), FinishSending(5), MovedHere(5, 1)]
    assert pair.left.step(0.0, *requests) == []
    assert (pair.left.endpoint.rtt_s(5), pair.left.endpoint.unsent_bytes(5)) == (None, 0)


def test_closing_is_silent_and_cancels_the_timer(pair: Pair) -> None:
    pair.left.send(0.0, b"x")
    assert pair.left.endpoint.step([CloseConnection(pair.left.local_id)], 0.1) == [CancelTimer(pair.left.local_id)]


def test_a_connection_closed_or_reset_in_the_same_batch_sends_nothing(pair: Pair) -> None:
    token = pair.left.connection.peer_token
    assert token is not None
    reset = arrived(encode_reset(pair.left.local_id, pair.right.local_id, token))
    assert pair.left.step(0.0, SendMessage(pair.left.local_id, b"x"), reset) == []
    assert pair.left.reports == [ConnectionReset(pair.left.local_id)]
    assert pair.right.step(0.0, SendMessage(pair.right.local_id, b"x"), CloseConnection(pair.right.local_id)) == []
    assert (pair.left.timer_at, pair.right.timer_at) == (None, None)


def test_datagrams_of_another_socket_are_not_ours(pair: Pair) -> None:
    assert pair.left.step(0.0, arrived(packet(77, 88), socket="sip")) == []
    assert pair.left.endpoint.counters.dropped == 0


def test_too_long_a_datagram_is_dropped(pair: Pair) -> None:
    data = packet(pair.left.local_id, pair.right.local_id).ljust(1201, b"\x00")
    assert pair.left.step(0.0, arrived(data)) == []
    assert pair.left.endpoint.counters.malformed == 1
    pair.left.step(0.0, arrived(data[:1200]))
    assert pair.left.endpoint.counters.received == 1


def test_ids_are_63_bits_and_never_0() -> None:
    tokens = iter([b"\x00" * 8, b"\x00" * 7 + b"\x01", b"\xff" * 8, b"\xff" * 8, b"\x00" * 7 + b"\x02"])

    class Scripted(FixedRandom):
        def token(self, n_bytes: int) -> bytes:
            return next(tokens)

    endpoint = Endpoint(Scripted())
    assert [endpoint.allocate(), endpoint.allocate()] == [2**63 - 1, 1]
