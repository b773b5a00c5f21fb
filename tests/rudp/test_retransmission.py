"""Timeouts, back-off and giving up, with literal times (SPEC F-04, F-05, F-06, X15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import measure, numbers
from wanderbus.machine import DatagramReceived, SendDatagram, TimerFired
from wanderbus.rudp import ConnectionFailed, Probe, SendMessage
from wanderbus.rudp.frames import DATA_LAST, PING, encode_ack

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({}, [10.25, 10.75, 11.75, 13.75, 17.75, 21.75]),
        ({"initial_timeout_s": 0.5}, [10.5, 11.5, 13.5, 17.5, 21.5, 25.5]),
        ({"backoff_factor": 3.0}, [10.25, 11.0, 13.25, 17.25, 21.25, 25.25]),
        ({"timeout_max_s": 1.0}, [10.25, 10.75, 11.75, 12.75, 13.75, 14.75]),
    ],
    ids=str,
)
def test_f05_gaps_grow_geometrically(make_pair: MakePair, options: dict[str, float], times: list[float]) -> None:
    left = make_pair(**options).left
    left.send(10.0, b"x")
    assert [left.fire()[0] for _ in range(6)] == pytest.approx(times)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("retries_max", [0, 1, 6])
def test_f06_exact_attempt_count(make_pair: MakePair, retries_max: int, sealed: bool) -> None:
    left = make_pair(sealed=sealed, retries_max=retries_max).left
    sent = [left.send(0.0, b"x")]
    while not left.reports:
        sent.append(left.fire()[1])
    assert [len(datagrams) for datagrams in sent] == [1] * (1 + retries_max) + [0]
    assert left.reports == [ConnectionFailed(left.local_id, "the other side does not answer")]
    assert left.timer_at is None
    assert left.send(100.0, b"y") == []
    counters = left.endpoint.counters
    assert counters.retransmitted == counters.timeouts == retries_max


def test_f06_each_packet_of_a_window_has_its_attempts(make_pair: MakePair) -> None:
    pair = make_pair(retries_max=3, messages_per_datagram_max=1)
    measure(pair, 0.05)
    left = pair.left
    sent = left.send(0.0, *[bytes([n]) for n in range(5)])
    while not left.reports:
        sent += left.fire()[1]
    assert len(sent) == 5 * 4
    assert len(set(numbers(sent))) == 20, "each in a packet of its own number"


def test_rfc9002_7_5_the_congestion_window_holds_no_retry_back(make_pair: MakePair) -> None:
    pair = make_pair(messages_per_datagram_max=1)
    measure(pair, 0.05)
    left = pair.left
    left.send(0.0, *[bytes([n]) for n in range(10)])
    left.connection.sender.congestion.window = 2.0
    left.fire()  # the timer of the samples, too early
    assert [len(left.fire()[1]) for _ in range(6)] == [10] * 6


def test_f06_a_path_that_was_never_measured_is_probed_with_two_packets_to_the_end(make_pair: MakePair) -> None:
    """RFC 9002 6.2.4: more would load a long path, of which nothing is known, for nothing."""
    left = make_pair(retries_max=3, messages_per_datagram_max=1).left
    sent = [left.send(0.0, *[bytes([n]) for n in range(5)])]
    while not left.reports:
        sent.append(left.fire()[1])
    assert [len(datagrams) for datagrams in sent] == [5, 2, 2, 2, 0]
    assert left.reports == [ConnectionFailed(left.local_id)]


def test_f06_a_probe_fails_like_data(make_pair: MakePair) -> None:
    left = make_pair(retries_max=2).left
    assert len(left.step(0.0, Probe(left.local_id))) == 1
    while not left.reports:
        at, _ = left.fire()
    assert left.reports == [ConnectionFailed(left.local_id)]
    assert at == pytest.approx(0.25 + 0.5 + 1.0)


def test_f06_an_ack_of_a_later_packet_resets_the_retry_count(make_pair: MakePair) -> None:
    """One packet never arrives, and times out far more often than there are retries; the peer answers others."""
    pair = make_pair(retries_max=2)
    left, counters = pair.left, pair.left.endpoint.counters
    now, _ = 0.0, left.send(0.0, b"never arrives")
    for turn in range(5):
        while counters.timeouts < 2 * (turn + 1):
            now, _ = left.fire()
        answers = pair.right.take(now + 0.005, left.send(now, bytes([turn])))
        left.take(now + 0.01, answers)
    assert left.reports == []
    while not left.reports:
        left.fire()
    assert counters.timeouts == 2 * 5 + 2, "on a dead path they are counted to the end"


def test_f06_an_ack_of_anything_later_than_its_first_packet_does(make_pair: MakePair) -> None:
    pair = make_pair(retries_max=2)
    left, counters = pair.left, pair.left.endpoint.counters
    left.send(0.0, b"never arrives")
    acks = pair.right.take(0.8, left.send(0.1, b"answered late"))
    while counters.timeouts < 2 * 2:
        left.fire()
    left.take(0.9, acks)
    while not left.reports:
        left.fire()
    assert counters.timeouts == 2 * 2 + 2


def test_f06_an_ack_that_is_repeated_for_ever_keeps_no_connection_alive(make_pair: MakePair) -> None:
    pair = make_pair(retries_max=2)
    right = pair.right
    right.send_each(0.0, b"never acknowledged", b"acknowledged for ever")
    for number in range(20):
        right.step(number / 10, pair.from_left(number, encode_ack(1, 0, 0)))
        if right.timer_at is not None and right.timer_at <= number / 10:
            right.fire(number / 10)
    assert ConnectionFailed(right.local_id) in right.reports


def test_f06_an_ack_of_something_earlier_does_not(make_pair: MakePair) -> None:
    pair = make_pair(retries_max=2)
    acks = pair.right.take(0.1, pair.left.send(0.0, b"early"))
    pair.left.send(0.0, b"x")
    for _ in range(2):
        pair.left.fire()
    pair.left.take(0.8, acks)
    while not pair.left.reports:
        pair.left.fire()
    assert pair.left.endpoint.counters.timeouts == 2 * 2


def test_design_6_2_a_retransmission_is_a_new_packet_with_the_old_frames(pair: Pair) -> None:
    first = pair.left.send(0.0, b"one", b"two")
    _, again = pair.left.fire()
    assert (numbers(first), numbers(again)) == ([0], [1])
    assert pair.data(first) == pair.data(again)


def test_f04_every_confirmed_packet_is_a_sample(pair: Pair) -> None:
    for start, rtt_s in ((0.0, 0.1), (1.0, 0.2)):
        acks = pair.right.take(start + 0.01, pair.left.send(start, b"x"))
        pair.left.take(start + rtt_s, acks)
    assert pair.left.endpoint.rtt_s(pair.left.local_id) == pytest.approx(0.1125)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("delay_s", [0.02, 0.3, 1.2])
def test_f04_timeout_tracks_injected_delay(make_pair: MakePair, delay_s: float, sealed: bool) -> None:
    pair, now = make_pair(sealed=sealed, timeout_min_s=0.01), 0.0
    for _ in range(60):
        acks = pair.right.take(now + delay_s / 2, pair.left.send(now, b"x"))
        now += delay_s
        pair.left.take(now, acks)
    if pair.left.timer_at is not None:
        pair.left.fire(max(now, pair.left.timer_at))
    pair.left.send(100.0, b"x")
    assert pair.left.timer_at == pytest.approx(100.0 + 9 / 8 * delay_s, abs=0.0011)


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
    assert pair.left.endpoint.counters.spurious == 1


def test_any_of_its_packets_confirms_a_bundle(make_pair: MakePair) -> None:
    """The ACK of each of four attempts in turn arrives, long after."""
    for attempt in range(4):
        pair = make_pair()
        attempts = [pair.left.send(0.0, b"x"), *[pair.left.fire()[1] for _ in range(3)]]
        pair.left.take(3.0, pair.right.take(3.0, attempts[attempt]))
        assert pair.left.endpoint.all_confirmed(pair.left.local_id)
        assert pair.left.fire(10.0)[1] == []
        assert pair.left.connection.sender._earlier == {}


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
    datagrams = [datagram for n in range(10) for datagram in pair.left.send(n / 1000, b"x")]
    assert (pair.left.timer_at, pair.left.timers_set) == (0.25, 1)
    pair.left.take(0.03, pair.right.take(0.02, datagrams))
    _, sent = pair.left.fire()
    assert sent == []
    assert pair.left.timer_at is None


def test_a_busy_connection_sets_a_timer_about_once_per_timeout(make_pair: MakePair) -> None:
    """Also while every tenth packet is lost, which adds a timer at most for each loss."""
    pair, lost = make_pair(messages_per_datagram_max=1, timeout_min_s=0.05), 0
    left = pair.left
    for n in range(2_000):
        now = n / 1000
        if left.timer_at is not None and left.timer_at <= now:
            pair.settle(*left.fire(now))
        datagrams = left.send(now, b"x")
        lost += n % 10 == 9
        pair.settle(now + 0.0005, [] if n % 10 == 9 else datagrams)
    assert left.timers_set < 2.0 / 0.05 + 2 * lost


def test_only_what_is_overdue_goes_again(pair: Pair) -> None:
    pair.left.send(0.0, b"early")
    pair.left.send(0.2, b"late")
    at, sent = pair.left.fire()
    assert at == 0.25
    assert pair.data(sent) == [(0, DATA_LAST, b"early")]
    assert pair.left.timer_at == pytest.approx(0.45)


def test_probe_is_answered_and_leaves_nothing_behind(pair: Pair) -> None:
    sent = pair.left.step(0.0, Probe(pair.left.local_id))
    assert pair.frames(sent[0]) == ([], [], [(PING, b"")])
    assert len(pair.left.step(0.01, Probe(pair.left.local_id))) == 1, "the host may have moved since the first"
    acks = pair.right.take(0.02, sent)
    assert len(acks) == 1
    assert pair.left.take(0.03, acks) == []
    assert len(pair.left.step(0.04, Probe(pair.left.local_id))) == 1


def test_data_of_the_same_step_serves_as_the_probe(pair: Pair) -> None:
    sent = pair.left.step(0.0, Probe(pair.left.local_id), SendMessage(pair.left.local_id, b"x"))
    assert [(pair.data([datagram]), pair.controls([datagram])) for datagram in sent] == [([(0, DATA_LAST, b"x")], [])]


def test_keepalive_pings_after_silence_alone(make_pair: MakePair) -> None:
    pair = make_pair(keepalive_s=5.0)
    left = pair.left
    assert left.timer_at == 5.0, "an open connection is kept alive from the start"

    def exchange(now: float, sent: list[SendDatagram]) -> None:
        left.take(now + 0.01, pair.right.take(now, sent))

    exchange(3.0, left.send(3.0, b"x"))
    while not (pinged := left.fire())[1]:
        pass
    at, sent = pinged
    assert (at, pair.controls(sent)) == (8.0, [(PING, b"")])
    exchange(*pinged)
    while not (pinged := left.fire())[1]:
        pass
    assert pinged[0] == 13.0


def test_keepalive_that_is_not_answered_fails_the_connection_without_a_storm(make_pair: MakePair) -> None:
    left = make_pair(keepalive_s=0.1, retries_max=3).left
    sent, fired = 0, 0
    while not left.reports:
        sent += len(left.fire()[1])
        fired += 1
    assert left.reports == [ConnectionFailed(left.local_id)]
    assert sent == 4
    assert fired <= 6


def test_a_returning_peer_is_pinged_at_once(pair: Pair) -> None:
    """A relay follows a peer that a NAT rebound, and its address here stays the same: only its packet reveals it."""
    left, right = pair.left, pair.right
    left.send(0.0, b"lost")
    for _ in range(4):
        at, _ = left.fire()
    assert left.timer_at is not None
    waits_until, now = left.timer_at, at + 0.5
    answers = left.take(now, right.step(now, Probe(right.local_id)))
    assert PING in [kind for kind, _ in pair.controls(answers)]
    repeated = left.take(now + 0.1, right.take(now + 0.1, answers))
    if not repeated:
        at, repeated = left.fire()
    assert at < waits_until - 1.0
    right.take(at, repeated)
    assert right.received == [b"lost"]


def test_it_is_asked_once_a_timeout(pair: Pair) -> None:
    left, right = pair.left, pair.right
    left.send(0.0, b"lost")
    for _ in range(4):
        at, _ = left.fire()
    pings = []
    for hundredth in range(50):
        now = at + hundredth / 100
        answers = left.take(now, right.step(now, Probe(right.local_id)))
        pings += [now for kind, _ in pair.controls(answers) if kind == PING]
    assert pings == pytest.approx([at + 0.26])


def test_without_keepalive_an_idle_connection_has_no_timer(pair: Pair) -> None:
    assert pair.left.timer_at is None
