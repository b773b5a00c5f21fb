"""NAT rebinding: the peer's packets come from elsewhere, which is believed after a challenge (RFC 9000 8, 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import Side
from wanderbus.machine import Address, DatagramReceived, SendDatagram
from wanderbus.rudp import ChangePath, MovedHere, PathChanged, Probe
from wanderbus.rudp.congestion import INITIAL_PACKETS, PACKETS_MIN
from wanderbus.rudp.frames import (
    CHALLENGE,
    HEADER_BYTES,
    PING,
    PLAIN,
    RESPONSE,
    encode_ack,
    encode_carrying,
    encode_data,
    encode_header,
    encode_numbered,
)
from wanderbus.rudp.paths import CHALLENGES_MAX

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair

REBOUND = ("198.51.100.7", 7000)
ATTACKER = ("203.0.113.66", 66)
BOTH_MODES = pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])


def kinds(pair: Pair, datagrams: list[SendDatagram]) -> list[int]:
    return [kind for kind, _ in pair.controls(datagrams)]


def to(address: Address, datagrams: list[SendDatagram]) -> list[SendDatagram]:
    return [datagram for datagram in datagrams if datagram.destination == address]


def moved(side: Side) -> list[PathChanged]:
    return [report for report in side.reports if isinstance(report, PathChanged)]


@BOTH_MODES
def test_rebinding_while_idle(make_pair: MakePair, sealed: bool) -> None:
    """The other side learns the new address from a keepalive of the new binding."""
    pair = make_pair(sealed=sealed)
    answers = pair.right.take(0.1, pair.left.step(0.0, Probe(pair.left.local_id)), REBOUND)
    (challenge,) = to(REBOUND, answers)
    assert kinds(pair, [challenge]) == [CHALLENGE]
    responses = pair.left.take(0.2, [challenge], pair.right.address)
    assert (kinds(pair, responses), [r.destination for r in responses]) == ([RESPONSE], [pair.right.address])
    pair.right.take(0.3, responses, REBOUND)
    assert moved(pair.right) == [PathChanged(pair.right.local_id, REBOUND)]
    assert [d.destination for d in pair.right.send(0.4, b"x")] == [REBOUND]
    counters = pair.right.endpoint.counters
    assert (counters.challenges, counters.paths) == (1, 1)


@BOTH_MODES
def test_rebinding_while_sending_repeats_what_went_to_the_old_address(make_pair: MakePair, sealed: bool) -> None:
    pair = make_pair(sealed=sealed)
    messages = [bytes([n]) * 1000 for n in range(5)]
    assert len(to(pair.left.address, pair.right.send(0.0, *messages))) == 5
    pair.right.connection.sender.congestion.window = float(PACKETS_MIN)
    answers = pair.right.take(0.1, pair.left.send(0.05, b"from the new binding"), REBOUND)
    assert [d.destination for d in answers if d not in to(REBOUND, answers)] == [pair.left.address], "the ACK"
    responses = pair.left.take(0.2, to(REBOUND, answers), pair.right.address)
    again = pair.right.take(0.3, responses, REBOUND)
    assert [datagram.destination for datagram in again] == [REBOUND] * 5
    assert pair.right.connection.sender.congestion.window == INITIAL_PACKETS
    pair.left.take(0.4, again, pair.right.address)
    assert pair.left.received == messages


def test_the_last_ack_is_repeated_at_the_new_address(pair: Pair) -> None:
    """The ACK went to the old address, so without a second one the peer would have to retransmit."""
    packets = pair.left.send_each(0.0, b"0", b"1")
    answers = pair.right.take(0.1, packets, REBOUND)
    assert pair.acks(to(pair.left.address, answers)) == [(1, 1, 0)]
    responses = pair.left.take(0.2, to(REBOUND, answers), pair.right.address)
    again = pair.right.take(0.21, responses, REBOUND)
    assert pair.acks(to(REBOUND, again)) == [(1, 0, 1)]
    pair.left.take(0.22, again)
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)


def test_an_answer_from_elsewhere_or_with_other_bytes_moves_nothing(pair: Pair) -> None:
    (challenge,) = to(REBOUND, pair.right.take(0.1, pair.left.send(0.0, b"x"), REBOUND))
    responses = pair.left.take(0.2, [challenge], pair.right.address)
    pair.right.take(0.3, responses, ATTACKER)
    wrong = pair.from_left(50, encode_carrying(RESPONSE, b"a guess!"))
    pair.right.step(0.4, DatagramReceived("data", REBOUND, wrong.data))
    assert moved(pair.right) == []


@BOTH_MODES
def test_an_off_path_attacker_cannot_move_a_path(make_pair: MakePair, sealed: bool) -> None:
    """It sends packets that it saw or altered from its own address; it never sees packets that go there."""
    pair = make_pair(sealed=sealed)
    packets = pair.left.send_each(0.0, b"0", b"1", b"2")
    pair.right.take(0.1, packets[:2])
    sent: list[SendDatagram] = pair.right.take(0.2, packets[:2], ATTACKER)
    assert sent == [], "a replay of what was taken"
    altered = [SendDatagram("data", ATTACKER, p.data[:-1] + bytes([p.data[-1] ^ 1])) for p in packets[2:]]
    if sealed:
        assert pair.right.take(0.3, altered, ATTACKER) == []
        assert pair.right.endpoint.counters.forged == 1
    sent += pair.right.take(0.4, packets[2:], ATTACKER)
    now = 0.4
    while pair.right.timer_at is not None:
        now, more = pair.right.fire()
        sent += more
    assert now < 10.0
    assert 1 <= len(to(ATTACKER, sent)) <= CHALLENGES_MAX
    assert sum(len(d.data) for d in to(ATTACKER, sent)) <= sum(len(d.data) for d in packets)
    assert moved(pair.right) == []
    assert [d.destination for d in pair.right.send(20.0, b"y")] == [pair.left.address]


def test_never_more_bytes_than_came_from_there_rfc9000_8_1(pair: Pair) -> None:
    """A CHALLENGE has 37 bytes in plain mode; a packet of ours is no shorter, a stranger's may be."""

    def from_there(number: int, now: float) -> list[SendDatagram]:
        small = pair.from_left(number, encode_numbered(PING, 0)[:5])
        return to(REBOUND, pair.right.step(now, DatagramReceived("data", REBOUND, small.data)))

    assert from_there(0, 0.1) == []
    assert to(REBOUND, pair.right.fire()[1]) == []
    assert from_there(1, 0.4) == []
    assert len(to(REBOUND, pair.right.fire()[1])) == 1, "two times 33 are enough for one"
    assert to(REBOUND, pair.right.fire()[1]) == []


def test_a_challenge_is_repeated_a_few_times_and_given_up(pair: Pair) -> None:
    sent = to(REBOUND, pair.right.take(0.0, pair.left.send(0.0, bytes(500)), REBOUND))
    while pair.right.timer_at is not None:
        sent += to(REBOUND, pair.right.fire()[1])
    assert len(sent) == CHALLENGES_MAX == len({decode.data for decode in sent})
    assert len({carried for _, carried in pair.controls(sent)}) == 1
    again = to(ATTACKER, pair.right.take(9.0, pair.left.send(9.0, bytes(500)), ATTACKER))
    assert kinds(pair, again) == [CHALLENGE], "then another address has its turn"


def test_one_address_at_a_time(pair: Pair) -> None:
    pair.right.take(0.0, pair.left.send(0.0, bytes(500)), REBOUND)
    answers = pair.right.take(0.1, pair.left.send(0.1, bytes(500)), ATTACKER)
    assert to(ATTACKER, answers) == []


def test_a_binding_that_changed_again_does_not_wait_until_its_first_address_is_given_up(pair: Pair) -> None:
    other = ("198.51.100.8", 8000)
    (stale,) = to(REBOUND, pair.right.take(0.0, pair.left.send(0.0, bytes(500)), REBOUND))
    assert to(other, pair.right.take(0.1, pair.left.send(0.1, bytes(500)), other)) == [], "one packet may be a copy"
    answers = to(other, pair.right.take(0.2, pair.left.send(0.2, bytes(500)), other))
    assert kinds(pair, answers) == [CHALLENGE]
    pair.right.take(0.3, pair.left.take(0.3, [stale]), REBOUND)
    assert moved(pair.right) == [], "the first is none any more"
    pair.right.take(0.4, pair.left.take(0.4, answers), other)
    assert moved(pair.right) == [PathChanged(pair.right.local_id, other)]


def test_a_batch_from_many_addresses_gets_one_challenge(pair: Pair) -> None:
    packets = pair.left.send_each(0.0, *[bytes(500)] * 10)
    inputs = [DatagramReceived("data", (REBOUND[0], port), p.data) for port, p in enumerate(packets)]
    answers = pair.right.step(0.1, *inputs)
    assert sum(CHALLENGE in kinds(pair, [answer]) for answer in answers) == 1


def test_the_newest_packet_from_the_old_address_ends_the_challenge(pair: Pair) -> None:
    (challenge,) = to(REBOUND, pair.right.take(0.0, pair.left.send(0.0, bytes(500)), REBOUND))
    pair.right.take(0.1, pair.left.send(0.1, b"still here"))
    pair.right.take(0.3, pair.left.take(0.2, [challenge]), REBOUND)
    assert moved(pair.right) == []


def test_a_packet_that_is_not_the_newest_teaches_nothing(pair: Pair) -> None:
    first, second = pair.left.send_each(0.0, b"0", b"1")
    pair.right.take(0.1, [second])
    assert to(REBOUND, pair.right.take(0.2, [first], REBOUND)) == []


def test_another_generation_teaches_nothing(pair: Pair) -> None:
    """Signalling announces the peer's move; this packet is older than the move, or ahead of the signalling (DESIGN
    6.1).
    """
    pair.left.step(0.0, MovedHere(pair.left.local_id, 1))
    assert to(REBOUND, pair.right.take(0.1, pair.left.send(0.1, bytes(500)), REBOUND)) == []
    pair.right.step(0.2, ChangePath(pair.right.local_id, pair.left.address, 1))
    assert kinds(pair, to(REBOUND, pair.right.take(0.3, pair.left.send(0.3, bytes(500)), REBOUND))) == [CHALLENGE]


def test_generations_are_compared_in_16_bits(pair: Pair) -> None:
    pair.left.step(0.0, MovedHere(pair.left.local_id, 2**16 + 4))
    pair.right.step(0.0, ChangePath(pair.right.local_id, pair.left.address, 2**16 + 4))
    assert len(to(REBOUND, pair.right.take(0.3, pair.left.send(0.3, bytes(500)), REBOUND))) == 1


def test_signalling_ends_a_challenge(pair: Pair) -> None:
    (challenge,) = to(REBOUND, pair.right.take(0.0, pair.left.send(0.0, bytes(500)), REBOUND))
    pair.right.step(0.1, ChangePath(pair.right.local_id, pair.left.address, 1))
    pair.right.take(0.3, pair.left.take(0.2, [challenge]), REBOUND)
    assert moved(pair.right) == []


def test_path_frames_alone_teach_nothing_rfc9000_9_1(pair: Pair) -> None:
    frames = encode_carrying(CHALLENGE, b"12345678") + encode_carrying(RESPONSE, b"12345678")
    received = DatagramReceived("data", REBOUND, pair.from_left(0, frames).data)
    (answer,) = pair.right.step(0.0, received)
    assert kinds(pair, [answer]) == [RESPONSE]


def test_a_response_goes_to_where_the_challenge_came_from(pair: Pair) -> None:
    data = pair.from_left(0, encode_carrying(CHALLENGE, b"12345678")).data
    (answer,) = pair.right.step(0.0, DatagramReceived("data", REBOUND, data))
    assert answer.destination == REBOUND
    assert len(answer.data) <= len(data)


def test_a_flood_of_challenges_gets_one_response_for_a_batch(pair: Pair) -> None:
    """So it neither amplifies nor fills memory."""
    flood = [pair.from_left(n, encode_carrying(CHALLENGE, bytes([n]) * 8) * 100) for n in range(50)]
    answers = pair.right.step(0.0, *flood)
    assert pair.controls(answers) == [(RESPONSE, bytes([49]) * 8)]


def test_the_window_of_an_unvalidated_address_is_not_touched_by_acks_from_there(pair: Pair) -> None:
    """An ACK from elsewhere confirms, since the pair of ids identifies it, and its source is challenged."""
    pair.right.send(0.0, b"x")
    ack = encode_header(pair.right.local_id, pair.left.local_id, PLAIN, 0, 0, 0) + encode_ack(0, 0, 0)
    answers = pair.right.step(0.1, DatagramReceived("data", REBOUND, ack))
    assert pair.right.endpoint.all_confirmed(pair.right.local_id)
    assert kinds(pair, answers) == [CHALLENGE]
    assert len(ack) == HEADER_BYTES + 25
    pair.right.step(0.2, pair.from_left(1, encode_data(0, False, b"y")))
    assert pair.right.connection.remote == pair.left.address
