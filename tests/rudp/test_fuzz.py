"""Hostile datagrams and hostile peers: never an exception out of ``step``, and bounded memory (RFC 9000 21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.machine import DatagramReceived, SendDatagram, TimerFired
from wanderbus.parameters.transports import INITIAL_WINDOW_FRAMES
from wanderbus.rudp import MessageReceived
from wanderbus.rudp.ack_tracker import REPLAY_WINDOW_PACKETS
from wanderbus.rudp.frames import (
    CHALLENGE,
    FINISH,
    PING_FRAME,
    PLAIN,
    RESPONSE,
    TOKEN,
    WINDOW,
    encode_ack,
    encode_carrying,
    encode_data,
    encode_header,
    encode_numbered,
)

MESSAGE_BYTES_MAX = 3000
IN_FLIGHT_MAX = 16

NUMBERS = st.integers(0, 40) | st.integers(0, 2**64 - 1)
FRAMES = (
    st.builds(encode_data, NUMBERS, st.booleans(), st.binary(max_size=300))
    | st.builds(encode_ack, NUMBERS, NUMBERS, NUMBERS)
    | st.just(PING_FRAME)
    | st.builds(encode_numbered, st.sampled_from([WINDOW, FINISH]), NUMBERS)
    | st.builds(encode_carrying, st.sampled_from([CHALLENGE, RESPONSE]), st.binary(min_size=8, max_size=8))
    | st.builds(encode_carrying, st.just(TOKEN), st.binary(min_size=16, max_size=16))
    | st.binary(max_size=20)
)

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair, Side
BODIES = st.lists(FRAMES, max_size=5).map(b"".join)
EDITS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3)


def edited(datagram: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    changed = bytearray(datagram)
    for position, value in edits:
        if position < len(changed):
            changed[position] = value
    return bytes(changed[: len(changed) - cut])


def check_bounds(side: Side) -> None:
    """Check the bound of all state that a peer can make grow."""
    for connection in side.endpoint._connections.values():
        receiver, sender, arrivals = connection.receiver, connection.sender, connection._arrivals
        assert receiver.held_bytes <= MESSAGE_BYTES_MAX + INITIAL_WINDOW_FRAMES * 1200
        assert len(receiver._ahead) <= INITIAL_WINDOW_FRAMES
        assert arrivals._seen.bit_length() <= REPLAY_WINDOW_PACKETS
        assert arrivals._due == []
        assert connection._response is None
        assert sender.packets_in_flight + len(sender._repeats) <= IN_FLIGHT_MAX
        assert len(sender._earlier) <= 32 * IN_FLIGHT_MAX
        assert len(sender._timed_out) <= 32 * IN_FLIGHT_MAX
        assert len(sender._controls) <= 2
        assert sender.unconfirmed_bytes >= 0


@settings(max_examples=150, deadline=None)
@given(datagrams=st.lists(st.binary(max_size=80), max_size=10))
def test_random_bytes(make_pair: MakePair, datagrams: list[bytes]) -> None:
    side = make_pair().left
    for data in datagrams:
        for answer in side.step(0.0, DatagramReceived("data", ("192.0.2.9", 9), data)):
            assert len(answer.data) <= len(data)
    assert side.reports == []


@settings(max_examples=250, deadline=None)
@given(
    script=st.lists(
        st.tuples(NUMBERS, BODIES, EDITS, st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=25
    )
)
def test_a_peer_with_arbitrary_messages(
    make_pair: MakePair, script: list[tuple[int, bytes, list[tuple[int, int]], int, int, int]]
) -> None:
    """The forger knows both ids. The delivered bytes may be nonsense; the stored and sent bytes stay bounded."""
    pair = make_pair(message_bytes_max=MESSAGE_BYTES_MAX, packets_in_flight_max=IN_FLIGHT_MAX, retries_max=3)
    side, sent, got, own = pair.left, 0, 0, 0
    for step, (number, body, edits, cut, generation, port) in enumerate(script):
        header = encode_header(side.local_id, pair.right.local_id, PLAIN, 0, generation, number)
        packet = edited(header + body, edits, cut)
        outputs = side.step(step / 10, DatagramReceived("data", ("192.0.2.9", 9 + port), packet))
        if step % 5 == 4 and side.local_id in side.endpoint._connections:
            own += len(side.send(step / 10, bytes(100)))
            if side.timer_at is not None and side.timer_at <= step / 10:
                side.fire(step / 10)
        sent += sum(len(output.data) for output in outputs)
        got += len(packet)
        check_bounds(side)
    assert sent <= 4 * got + 200 * own + 1, "ACK, RESPONSE and CHALLENGE answer a packet of 33 bytes at least"
    assert all(len(message) <= MESSAGE_BYTES_MAX for message in side.received)


@settings(max_examples=60, deadline=None)
@given(
    mutations=st.lists(st.tuples(st.integers(0, 20), EDITS, st.integers(0, 5)), max_size=20),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    sealed=st.booleans(),
)
def test_bystander_noise_changes_nothing(
    make_pair: MakePair, mutations: list[tuple[int, list[tuple[int, int]], int]], sizes: list[int], sealed: bool
) -> None:
    """Copies of real packets are injected, altered: without the ids in plain mode, anywhere in a sealed one."""
    pair = make_pair(sealed=sealed, message_bytes_max=MESSAGE_BYTES_MAX)
    messages = [bytes([n]) * size for n, size in enumerate(sizes)]
    datagrams = pair.left.send(0.0, *messages)
    for which, edits, cut in mutations:
        original = datagrams[which % len(datagrams)].data
        noise = edited(original, edits, cut)
        if noise != original if sealed else noise[:16] != original[:16]:
            pair.right.step(0.0, DatagramReceived("data", ("192.0.2.9", 9), noise))
    pair.settle(0.1, datagrams)
    assert pair.right.received == messages


@settings(max_examples=100, deadline=None)
@given(acks=st.lists(st.tuples(st.integers(0, 30), NUMBERS, NUMBERS), max_size=30))
def test_any_acks_leave_the_sender_sound(make_pair: MakePair, acks: list[tuple[int, int, int]]) -> None:
    """Packets that no ACK claims are retransmitted, and all of them arrive."""
    pair = make_pair(packets_in_flight_max=IN_FLIGHT_MAX, messages_per_datagram_max=1)
    pair.right.send(0.0, *[bytes([n]) for n in range(20)])
    for number, ack in enumerate(acks):
        pair.right.step(number / 100, pair.from_left(number, encode_ack(*ack)))
        check_bounds(pair.right)
    sender = pair.right.connection.sender
    assert sender.unconfirmed_bytes == sum(
        bundle.data_bytes for bundle in [*sender._in_flight.values(), *sender._repeats] if not bundle.confirmed
    ) + sum(map(len, sender._waiting))


def test_parts_without_end_do_not_grow(make_pair: MakePair) -> None:
    pair = make_pair(message_bytes_max=MESSAGE_BYTES_MAX)
    side = pair.right
    for number in range(2_000):
        outputs = side.step(0.0, pair.from_left(number, encode_data(number, True, bytes(1000))))
        assert all(isinstance(output, SendDatagram) for output in outputs)
        assert side.connection.receiver.held_bytes <= MESSAGE_BYTES_MAX
    assert not any(isinstance(report, MessageReceived) for report in side.reports)


def test_a_full_window_out_of_order_is_all_that_is_held(make_pair: MakePair) -> None:
    pair = make_pair()
    for number in range(2 * INITIAL_WINDOW_FRAMES):
        pair.right.step(0.0, pair.from_left(number, encode_data(number + 1, False, bytes(1000))))
    assert pair.right.connection.receiver.held_bytes == (INITIAL_WINDOW_FRAMES - 1) * 1000
    assert pair.right.endpoint.counters.refused == INITIAL_WINDOW_FRAMES + 1


@pytest.mark.parametrize("frame", [PING_FRAME, encode_numbered(WINDOW, 0), encode_carrying(TOKEN, bytes(16))])
def test_a_flood_of_control_frames_costs_an_ack(pair: Pair, frame: bytes) -> None:
    answers = pair.right.step(0.0, *[pair.from_left(number, frame * 50) for number in range(60)])
    assert len(answers) == 1
    check_bounds_of_idle(pair.right)


def check_bounds_of_idle(side: Side) -> None:
    assert side.connection.sender.packets_in_flight == 0
    assert side.timer_at is None


def test_timers_of_nobody_are_ignored(pair: Pair) -> None:
    for key in (7, "data", ("data", pair.left.local_id), None, True):
        assert pair.left.step(0.0, TimerFired(key)) == []
