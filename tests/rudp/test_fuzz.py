"""Hostile datagrams: never an exception out of ``step``, and bounded memory (SPEC F, RFC 9000 21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.machine import DatagramReceived, SendDatagram
from wanderbus.rudp import MessageReceived
from wanderbus.rudp.frames import PING_FRAME, encode_acks, encode_data, encode_packet_header

REORDER_FRAMES_MAX = 16
MESSAGE_BYTES_MAX = 3000

NUMBERS = st.integers(0, 40) | st.integers(0, 2**64 - 1)
FRAMES = (
    st.builds(encode_data, NUMBERS, st.booleans(), st.binary(max_size=300))
    | st.builds(encode_acks, st.lists(NUMBERS, max_size=3))
    | st.just(PING_FRAME)
    | st.binary(max_size=20)
)

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Side
BODIES = st.lists(FRAMES, max_size=5).map(b"".join)
EDITS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3)


def edited(datagram: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    changed = bytearray(datagram)
    for position, value in edits:
        if position < len(changed):
            changed[position] = value
    return bytes(changed[: len(changed) - cut])


def check_bounds(side: Side) -> None:
    for connection in side.endpoint._connections.values():
        assert connection.receiver.held_bytes <= MESSAGE_BYTES_MAX + REORDER_FRAMES_MAX * 1200
        assert len(connection.receiver._ahead) < REORDER_FRAMES_MAX
        assert len(connection._acks_due) == 0


@settings(max_examples=150, deadline=None)
@given(datagrams=st.lists(st.binary(max_size=80), max_size=10))
def test_random_bytes(make_pair: MakePair, datagrams: list[bytes]) -> None:
    side = make_pair().left
    for data in datagrams:
        for answer in side.step(0.0, DatagramReceived("data", ("192.0.2.9", 9), data)):
            assert len(answer.data) <= len(data)
    assert side.reports == []


@settings(max_examples=250, deadline=None)
@given(script=st.lists(st.tuples(NUMBERS, BODIES, EDITS, st.integers(0, 3)), max_size=25))
def test_mutated_packets_of_the_live_pair(
    make_pair: MakePair, script: list[tuple[int, bytes, list[tuple[int, int]], int]]
) -> None:
    """The forger knows both ids. What is delivered may be nonsense; what is kept and sent stays bounded."""
    pair = make_pair(reorder_frames_max=REORDER_FRAMES_MAX, message_bytes_max=MESSAGE_BYTES_MAX)
    side, sent, got = pair.left, 0, 0
    for step, (number, body, edits, cut) in enumerate(script):
        packet = edited(encode_packet_header(side.local_id, pair.right.local_id, number) + body, edits, cut)
        outputs = side.step(step / 10, DatagramReceived("data", ("192.0.2.9", 9), packet))
        sent += sum(len(output.data) for output in outputs)
        got += len(packet)
        check_bounds(side)
    assert sent <= 2 * got + 1, "an ACK of 34 bytes answers a packet of 26 at least"
    assert all(len(message) <= MESSAGE_BYTES_MAX for message in side.received)


@settings(max_examples=60, deadline=None)
@given(
    mutations=st.lists(st.tuples(st.integers(0, 20), EDITS, st.integers(0, 5)), max_size=20),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
)
def test_bystander_noise_without_the_ids_changes_nothing(
    make_pair: MakePair, mutations: list[tuple[int, list[tuple[int, int]], int]], sizes: list[int]
) -> None:
    """Copies of real packets with a damaged id pair are injected; all messages still arrive."""
    pair = make_pair(message_bytes_max=MESSAGE_BYTES_MAX)
    messages = [bytes([n]) * size for n, size in enumerate(sizes)]
    datagrams = pair.left.send(0.0, *messages)
    for which, edits, cut in mutations:
        original = datagrams[which % len(datagrams)].data
        noise = edited(original, edits, cut)
        if noise[:16] != original[:16]:
            pair.right.step(0.0, DatagramReceived("data", ("192.0.2.9", 9), noise))
    pair.settle(0.1, datagrams)
    assert pair.right.received == messages


def test_parts_without_end_do_not_grow(make_pair: MakePair) -> None:
    pair = make_pair(message_bytes_max=MESSAGE_BYTES_MAX)
    side = pair.right
    for number in range(200):
        header = encode_packet_header(side.local_id, pair.left.local_id, number)
        packet = header + encode_data(number, True, bytes(1000))
        outputs = side.endpoint.step([DatagramReceived("data", ("192.0.2.9", 9), packet)], 0.0)
        assert [type(output) for output in outputs] == [SendDatagram]
        check_bounds(side)
    assert not any(isinstance(report, MessageReceived) for report in side.reports)
