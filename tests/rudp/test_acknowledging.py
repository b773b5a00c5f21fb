"""ACK frames between two sides: one fresh mark for each packet, and repeated marks in case an ACK was lost (F-03)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import fresh_marks, numbers
from wanderbus.machine import Address, DatagramReceived, SendDatagram, TimerFired
from wanderbus.rudp import ChangePath, Consumed, FinishSending, Probe, RudpConfig, SendMessage
from wanderbus.rudp.frames import CHALLENGE, RESPONSE, encode_ack, encode_carrying, encode_data

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair

ELSEWHERE: Address = ("192.0.2.31", 31)


@pytest.fixture
def holding(make_pair: MakePair) -> Pair:
    """Two sides that hold the ACK of a single packet until the next turn."""
    return make_pair(ack_delay_s=0.0)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_f03_n_packets_n_fresh_marks(make_pair: MakePair, sealed: bool) -> None:
    pair = make_pair(sealed=sealed)
    datagrams = [datagram for n in range(7) for datagram in pair.left.send(n / 100, bytes([n]))]
    answers = pair.right.take(0.1, datagrams)
    assert fresh_marks(pair.acks(answers)) == list(range(7))
    assert len(answers) == 1, "the marks of a step share a datagram"
    counters = pair.right.endpoint.counters
    assert (counters.acks, counters.ack_frames) == (7, 1)


def test_f03_marks_of_many_packets_take_several_frames(make_pair: MakePair) -> None:
    pair = make_pair(messages_per_datagram_max=1)
    datagrams: list[SendDatagram] = []
    pair.left.connection.sender.congestion.window = 128.0
    datagrams += pair.left.send(0.0, *[bytes([n]) for n in range(128)])
    answers = pair.right.take(0.1, datagrams)
    assert [newest for newest, _, _ in pair.acks(answers)] == [64, 127]
    pair.left.take(0.2, answers)
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    assert pair.left.endpoint.counters.lost == 0, "the frame for the older packets was seen before any was called lost"


def test_f03_a_repeated_packet_is_dropped_without_another_mark(pair: Pair) -> None:
    datagrams = pair.left.send(0.0, b"x")
    assert fresh_marks(pair.acks(pair.right.take(0.1, datagrams + datagrams))) == [0]
    assert pair.right.take(0.2, datagrams) == []
    assert pair.right.endpoint.counters.replayed == pair.right.endpoint.counters.dropped == 2
    assert pair.right.received == [b"x"]


def test_f03_an_ack_is_not_acknowledged(pair: Pair) -> None:
    acks = pair.right.take(0.1, pair.left.send(0.0, b"x"))
    assert pair.left.take(0.2, acks) == []


def test_a_path_frame_is_not_acknowledged(pair: Pair) -> None:
    (answer,) = pair.right.step(0.0, pair.from_left(0, encode_carrying(CHALLENGE, b"12345678")))
    assert pair.acks([answer]) == []


def test_acks_ride_on_data(pair: Pair) -> None:
    datagrams = pair.left.send(0.0, b"question")
    inputs = [DatagramReceived("data", pair.left.address, d.data) for d in datagrams]
    answers = pair.right.step(0.1, *inputs, SendMessage(pair.right.local_id, b"answer"))
    assert len(answers) == 1
    assert pair.acks(answers) == [(0, 0, 0)]
    assert [payload for _, _, payload in pair.data(answers)] == [b"answer"]


def test_acks_and_much_data_stay_within_the_datagram(pair: Pair) -> None:
    datagrams = pair.left.send_each(0.0, *[b"x"] * 10)
    inputs = [DatagramReceived("data", pair.left.address, d.data) for d in datagrams]
    more = [SendMessage(pair.right.local_id, bytes(90)) for _ in range(30)]
    answers = pair.right.step(0.1, *inputs, *more)
    assert fresh_marks(pair.acks(answers)) == list(range(10))
    assert all(pair.data([answer]) for answer in answers), "room is kept, so no datagram is for ACKs alone"
    assert max(len(answer.data) for answer in answers) <= 1200
    pair.left.take(0.2, answers)
    assert pair.left.received == [bytes(90)] * 30


def test_a_repeated_mark_confirms_what_a_lost_ack_named(pair: Pair) -> None:
    lost = pair.right.take(0.1, pair.left.send(0.0, b"a"))
    assert pair.acks(lost) == [(0, 0, 0)]
    acks = pair.right.take(0.12, pair.left.send(0.02, b"b"))
    assert pair.acks(acks) == [(1, 0, 1)]
    pair.left.take(0.14, acks)
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    assert pair.left.fire()[1] == []
    assert pair.left.endpoint.counters.retransmitted == 0


def test_x15_a_repeated_mark_measures_nothing(pair: Pair) -> None:
    """The packet arrived long before this ACK left."""
    pair.right.take(0.01, pair.left.send(0.0, b"a"))
    pair.left.take(0.24, pair.right.take(0.23, pair.left.send(0.2, b"b")))
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.04)


def test_an_ack_of_an_unsent_packet_is_ignored(pair: Pair) -> None:
    pair.right.step(0.0, Probe(pair.right.local_id))
    for newest in (1, 2**63, 2**64 - 1):
        pair.right.step(0.1, pair.from_left(newest % 5, encode_ack(newest, 2**64 - 1, 2**64 - 1)))
    assert pair.right.endpoint.counters.unsent == 3
    assert pair.right.connection.sender.packets_in_flight == 1
    assert pair.right.endpoint.rtt_s(pair.right.local_id) is None


def test_an_ack_of_every_other_packet_is_understood(pair: Pair) -> None:
    datagrams = pair.left.send_each(0.0, *[bytes([n]) for n in range(10)])
    acks = pair.right.take(0.1, datagrams[1::2])
    assert fresh_marks(pair.acks(acks)) == [1, 3, 5, 7, 9]
    again = pair.left.take(0.2, acks)
    assert len(pair.data(again)) == 4, "all but the one that is not yet overtaken by three"
    pair.settle(0.2, again)
    pair.settle(*pair.left.fire())
    assert pair.right.received == [bytes([n]) for n in range(10)]


@pytest.mark.parametrize("seed", range(20))
def test_f03_marks_survive_any_loss_of_acks(make_pair: MakePair, seed: int) -> None:
    """Only every fourth ACK arrives; the marks repeated in these ACKs confirm everything."""
    print("seed", seed)
    pair, random = make_pair(messages_per_datagram_max=1), Random(seed)
    now = 0.0
    for turn in range(20):
        datagrams = pair.left.send(now, *[b"%d" % n for n in range(random.randint(1, 2))])
        acks = pair.right.take(now + 0.01, datagrams)
        if turn % 4 == 3:
            pair.left.take(now + 0.02, acks)
        now += 0.02
    assert pair.left.endpoint.all_confirmed(pair.left.local_id)
    assert pair.left.endpoint.counters.retransmitted == 0
    assert numbers(pair.left.send(now, b"x")) == [pair.left.endpoint.counters.sent - 1]


def test_an_ack_is_held_only_where_that_is_wanted(pair: Pair) -> None:
    assert RudpConfig().ack_delay_s is None
    assert fresh_marks(pair.acks(pair.right.take(0.1, pair.left.send(0.0, b"x")))) == [0]


def test_a_held_ack_shares_the_datagram_of_an_answer_in_the_same_turn(holding: Pair) -> None:
    right = holding.right
    assert right.take(0.1, holding.left.send(0.0, b"question")) == []
    assert right.received == [b"question"]
    assert right.timer_at == 0.1
    (answer,) = right.send(0.1, b"answer")
    assert holding.acks([answer]) == [(0, 0, 0)]
    assert [payload for _, _, payload in holding.data([answer])] == [b"answer"]
    assert right.fire()[1] == []
    assert right.timer_at == pytest.approx(0.1 + RudpConfig().initial_timeout_s), "the answer may be lost"


def test_a_held_ack_goes_alone_when_its_timer_fires(holding: Pair) -> None:
    right = holding.right
    for number in range(3):
        now = number / 10
        assert right.take(now, holding.left.send(now, b"x")) == []
        at, answers = right.fire()
        assert at == now
        assert fresh_marks(holding.acks(answers)) == [number]
        assert (len(answers), holding.data(answers), right.timer_at) == (1, [], None)


@pytest.fixture
def waiting(make_pair: MakePair) -> Pair:
    """Two sides that hold the ACK of a single packet for 5 ms."""
    return make_pair(ack_delay_s=0.005)


def test_an_ack_waits_for_so_long_at_most(waiting: Pair) -> None:
    left, right = waiting.left, waiting.right
    assert right.take(0.1, left.send(0.1, b"x")) == []
    at, answers = right.fire()
    assert at == pytest.approx(0.105)
    assert fresh_marks(waiting.acks(answers)) == [0]
    assert (len(answers), right.timer_at) == (1, None)


def test_an_answer_within_the_delay_takes_the_ack_along(waiting: Pair) -> None:
    left, right = waiting.left, waiting.right
    assert right.take(0.1, left.send(0.1, b"question")) == []
    (answer,) = right.send(0.103, b"answer")
    assert waiting.acks([answer]) == [(0, 0, 0)]
    assert [payload for _, _, payload in waiting.data([answer])] == [b"answer"]


def test_an_owner_that_has_consumed_may_still_answer(make_pair: MakePair) -> None:
    pair = make_pair(ack_delay_s=0.005, consume_at_once=False)
    assert pair.right.take(0.1, pair.left.send(0.1, b"question")) == []
    assert pair.right.step(0.101, Consumed(pair.right.local_id, 1)) == [], "no grant is due"
    (answer,) = pair.right.send(0.103, b"answer")
    assert pair.acks([answer]) == [(0, 0, 0)]


def test_the_ack_of_a_second_packet_ends_the_delay(waiting: Pair) -> None:
    first, second = waiting.left.send_each(0.1, b"a", b"b")
    assert waiting.right.take(0.1, [first]) == []
    assert fresh_marks(waiting.acks(waiting.right.take(0.102, [second]))) == [0, 1]
    at, answers = waiting.right.fire()
    assert at == pytest.approx(0.105)
    assert answers == [], "the timer finds nothing due"


def test_each_single_packet_starts_a_new_ack_delay(waiting: Pair) -> None:
    left, right = waiting.left, waiting.right
    assert right.take(0.1, left.send(0.1, b"question")) == []
    (answer,) = right.send(0.101, b"answer")
    left.take(0.102, [answer])
    assert right.take(0.103, left.send(0.103, b"another")) == []
    at, answers = right.fire()
    assert at <= 0.108
    assert fresh_marks(waiting.acks(answers)) == [1]


def test_the_ack_of_a_second_packet_is_not_held(holding: Pair) -> None:
    """RFC 9000 13.2.2, whether it comes with the first or after it."""
    left, right = holding.left, holding.right
    assert fresh_marks(holding.acks(right.take(0.1, left.send_each(0.1, b"a", b"b")))) == [0, 1]
    first, second = left.send_each(0.2, b"c", b"d")
    assert right.take(0.3, [first]) == []
    answers = right.take(0.3, [second])
    assert fresh_marks(holding.acks(answers)) == [2, 3]
    assert right.fire()[1] == []


def test_the_ack_of_a_packet_that_comes_when_the_timer_fires_is_not_held(holding: Pair) -> None:
    """A busy owner passes both at once; the timer has fired already and will not fire again."""
    (datagram,) = holding.left.send(0.0, b"x")
    taken = DatagramReceived("data", holding.left.address, datagram.data)
    answers = holding.right.step(0.1, TimerFired(holding.right.local_id), taken)
    assert fresh_marks(holding.acks(answers)) == [0]


def test_the_last_word_is_acknowledged_at_once(holding: Pair) -> None:
    """It has no answer, and the peer waits for its ACK to leave."""
    farewell = holding.left.step(0.0, FinishSending(holding.left.local_id))
    assert fresh_marks(holding.acks(holding.right.take(0.1, farewell))) == [0]


def test_a_challenge_is_answered_at_once_though_an_ack_might_be_held(holding: Pair) -> None:
    frames = encode_data(0, False, b"x") + encode_carrying(CHALLENGE, b"12345678")
    answers = holding.right.step(0.1, holding.from_left(0, frames))
    assert holding.controls(answers) == [(RESPONSE, b"12345678")]
    assert fresh_marks(holding.acks(answers)) == [0]


def test_a_new_source_is_challenged_at_once_though_an_ack_might_be_held(holding: Pair) -> None:
    answers = holding.right.take(0.1, holding.left.send(0.0, b"x"), ELSEWHERE)
    (challenge,) = [answer for answer in answers if answer.destination == ELSEWHERE]
    assert [kind for kind, _ in holding.controls([challenge])] == [CHALLENGE]
    assert fresh_marks(holding.acks(answers)) == [0]


def test_a_change_of_path_is_announced_despite_a_delayed_ack(holding: Pair) -> None:
    """The peer sends unacknowledged packets again from the new address, so it needs the ACK at once."""
    (datagram,) = holding.left.send(0.0, b"x")
    taken = DatagramReceived("data", holding.left.address, datagram.data)
    answers = holding.right.step(0.1, taken, ChangePath(holding.right.local_id, ELSEWHERE, 1))
    assert [answer.destination for answer in answers] == [ELSEWHERE]
    assert fresh_marks(holding.acks(answers)) == [0]


def test_a_lost_packet_is_retransmitted_despite_a_delayed_ack(holding: Pair) -> None:
    left, right = holding.left, holding.right
    _, *overtaking = right.send_each(0.0, b"lost", b"b", b"c", b"d")
    arrivals = [DatagramReceived("data", right.address, datagram.data) for datagram in overtaking]
    news = left.step(0.1, *arrivals, SendMessage(left.local_id, b"news"))
    (repeat,) = right.take(0.2, news)
    assert [payload for _, _, payload in holding.data([repeat])] == [b"lost"]
    assert fresh_marks(holding.acks([repeat])) == [0]


def test_a_probe_takes_the_ack_that_might_be_held_along(holding: Pair) -> None:
    (datagram,) = holding.left.send(0.0, b"x")
    taken = DatagramReceived("data", holding.left.address, datagram.data)
    (answer,) = holding.right.step(0.1, taken, Probe(holding.right.local_id))
    assert fresh_marks(holding.acks([answer])) == [0]
