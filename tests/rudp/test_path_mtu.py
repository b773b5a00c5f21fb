"""Paths that drop longer packets silently: the size falls, everything arrives, and probes search upward (RFC 8899)."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.rudp.link import Link
from wanderbus.rudp import ConnectionFailed
from wanderbus.rudp.frame_division import divided, renumbered
from wanderbus.rudp.frames import (
    DATA_HEADER_BYTES,
    DATA_LAST,
    DATA_MORE,
    FINISH,
    HALF,
    TOKEN,
    DataFrame,
    decode_frames,
    encode_carrying,
    encode_data,
    encode_half,
    encode_halves,
    encode_numbered,
    whole_of,
)
from wanderbus.rudp.path_mtu import LOSSES_MAX, RAISE_S, PathMtu

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair

NARROW_BYTES = 972
"""Longest datagram on a path that drops packets of more than 1,000 bytes, over IPv4."""

SIZES = (0, 1, 40, 500, 600, 1_100, 1_144, 1_145, 1_146, 1_164, 3_000, 30_000)


def mixed(seed: int) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(random.choice(SIZES)) for _ in range(30)]


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("limit", [660, NARROW_BYTES, 1_150, 1_199])
@pytest.mark.parametrize("rtt_s", [0.02, 0.5])
def test_everything_arrives_once_and_in_order(make_pair: MakePair, rtt_s: float, limit: int, sealed: bool) -> None:
    link = Link(make_pair(limit, sealed=sealed, announcing=True), rtt_s, limit)
    messages = mixed(limit)
    link.send(*messages)
    link.run(10.0)
    assert link.pair.right.received == messages
    left = link.pair.left
    assert left.endpoint.counters.black_holes == 1
    assert left.endpoint.all_acknowledged(left.local_id)
    assert not left.connection.sender._earlier
    assert left.connection.sender.unconfirmed_bytes == 0


@pytest.mark.parametrize("messages", [[bytes(3_000)], [bytes(1_100)] * 40], ids=["one", "many"])
def test_it_is_noticed_within_two_seconds(make_pair: MakePair, messages: list[bytes]) -> None:
    link = Link(make_pair(sealed=True, announcing=True), 0.05, NARROW_BYTES)
    assert link.send(*messages) < 2.0


def test_a_measured_path_that_becomes_narrow_is_noticed(make_pair: MakePair) -> None:
    link = Link(make_pair(sealed=True), 0.05)
    link.send(*[bytes(1_100)] * 40)
    link.run(5.0)
    link.datagram_bytes_max = NARROW_BYTES
    assert link.send(*[bytes(1_100)] * 40) < 1.5


def test_the_search_ends_just_below_what_passes_and_the_next_one_finds_a_mended_path(make_pair: MakePair) -> None:
    link = Link(make_pair(sealed=True), 0.05, NARROW_BYTES)
    overhead = link.pair.left.connection._packets.overhead_bytes
    for _ in range(40):
        link.send(bytes(1_100))
        link.run(1.0)
    found = overhead + link.pair.left.connection.sender.mtu.size_bytes
    assert NARROW_BYTES - 32 <= found <= NARROW_BYTES
    link.datagram_bytes_max = None
    link.send(bytes(1_100))
    link.run(RAISE_S + 1.0)
    for _ in range(4):
        link.send(bytes(1_100))
        link.run(1.0)
    assert link.pair.left.connection.sender.mtu.size_bytes + overhead == 1_200
    assert link.pair.left.endpoint.counters.black_holes == 1


def test_lost_probes_are_no_congestion_and_no_retries(make_pair: MakePair) -> None:
    link = Link(make_pair(sealed=True), 0.05, NARROW_BYTES)
    link.send(bytes(3_000))
    before = link.pair.left.connection.sender.congestion.window
    for _ in range(40):
        link.send(bytes(500))
        link.run(1.0)
    assert link.pair.left.connection.sender.congestion.window >= before
    assert not [each for each in link.pair.left.reports if isinstance(each, ConnectionFailed)]


def test_a_silent_path_is_no_narrow_one(make_pair: MakePair) -> None:
    """Nothing arrives at all: the connection fails after its retries, and divides nothing."""
    link = Link(make_pair(), 0.05, 0)
    link.pair.left.send(0.0, *[bytes(1_100)] * 5)
    while not link.pair.left.reports:
        link.pair.left.fire()
    assert link.pair.left.endpoint.counters.black_holes == 0


def test_losses_of_some_long_packets_are_no_black_hole(make_pair: MakePair) -> None:
    """Every third packet is lost."""
    pair, carried = make_pair(messages_per_datagram_max=1), itertools.count()
    now = 0.0
    datagrams = pair.left.send(now, *[bytes([n]) * 1_100 for n in range(60)])
    while len(pair.right.received) < 60:
        now += 0.02
        passed = [datagram for datagram in datagrams if next(carried) % 3]
        datagrams = pair.left.take(now, pair.right.take(now, passed))
        if not datagrams:
            now, datagrams = pair.left.fire(max(now, pair.left.timer_at or now))
    assert pair.left.endpoint.counters.black_holes == 0
    assert pair.left.endpoint.counters.lost > 10


@pytest.mark.parametrize("seed", range(30))
def test_halves_in_any_order_make_the_message(pair: Pair, seed: int) -> None:
    """Also repeated, and beside the whole frame, which was only late."""
    random = Random(seed)
    parts = [random.randbytes(random.randint(2, 900)) for _ in range(4)]
    frames = [frame for n, part in enumerate(parts) for frame in encode_halves(n, n < 3, part)]
    frames += [random.choice(frames) for _ in range(3)]
    frames.append(encode_data(1, True, parts[1]))
    random.shuffle(frames)
    for number, frame in enumerate(frames):
        pair.right.step(0.0, pair.from_left(number, frame))
    assert pair.right.received == [b"".join(parts)]
    assert pair.right.connection.receiver.held_bytes == 0
    assert not pair.right.connection.receiver._halves


def test_halves_of_different_frames_do_not_join() -> None:
    first, second = encode_halves(7, False, b"abcde")
    ((other,),) = (decode_frames(encode_half(7, HALF + 3, b"zz")).data,)
    ((one,), (two,)) = decode_frames(first).data, decode_frames(second).data
    assert whole_of(one, other) is whole_of(one, one) is whole_of(one, None) is None
    assert whole_of(one, two) == whole_of(two, one) == (7, DATA_LAST, b"abcde")


@pytest.mark.parametrize("seed", range(50))
def test_a_divided_packet_has_the_same_content(seed: int) -> None:
    random = Random(seed)
    size, frames, number = 600, [encode_carrying(TOKEN, bytes(16))], random.randint(0, 9)
    room = 1_156 - len(frames[0])
    while room > DATA_HEADER_BYTES + 1:
        content = random.randbytes(random.randint(1, min(room - DATA_HEADER_BYTES, random.choice([30, 400, 1_145]))))
        frames.append(encode_data(number, random.random() < 0.5, content))
        room -= len(frames[-1])
        number += random.randint(1, 3)
    payload = b"".join(frames)
    pieces = list(divided(payload, size))
    assert all(len(piece) <= size for piece, _ in pieces)
    joined: list[DataFrame] = []
    for piece, data_bytes in pieces:
        data, _, controls = decode_frames(piece)
        assert data_bytes == len(piece) - 17 * len(controls)
        for frame in data:
            whole = whole_of(frame, joined.pop()) if frame[1] >= HALF and joined and joined[-1][1] >= HALF else frame
            assert whole is not None
            joined.append(whole)
    assert joined == decode_frames(payload).data


def test_waiting_frames_are_numbered_anew() -> None:
    waiting = [encode_data(4, True, b"abcdefg"), encode_data(5, False, b""), encode_numbered(FINISH, 6)]
    found = [decode_frames(frame).data[0] for frame in renumbered(waiting, 9, 3)]
    assert found == [
        (9, DATA_MORE, b"abc"),
        (10, DATA_MORE, b"def"),
        (11, DATA_MORE, b"g"),
        (12, DATA_LAST, b""),
        (13, FINISH, b""),
    ]


def test_the_search_halves_the_interval_and_takes_a_rest() -> None:
    mtu = PathMtu(1_156, DATA_HEADER_BYTES)
    assert mtu.next_probe_bytes(0.0) is None, "nothing is wrong"
    mtu.fall_back(5.0)
    probed = []
    while (size := mtu.next_probe_bytes(5.0)) is not None:
        probed.append(size)
        if size <= 900:
            mtu.confirmed(size)
        else:
            mtu.lost(size)
    assert mtu.size_bytes > 900 - 32
    assert len(set(probed)) <= 6
    assert max(map(probed.count, probed)) == LOSSES_MAX
    assert mtu.next_probe_bytes(5.0 + RAISE_S - 1.0) is None
    assert mtu.next_probe_bytes(5.0 + RAISE_S) == mtu.whole_bytes


def test_a_half_frame_has_two_bytes_or_more_and_a_known_place(pair: Pair) -> None:
    for number, frame in enumerate([encode_half(0, HALF, b""), encode_half(0, HALF + 4, b"x")]):
        assert pair.right.step(0.0, pair.from_left(number, frame)) == []
    assert pair.right.endpoint.counters.malformed == 2


def test_a_packet_that_passed_before_its_last_losses_does_not_hide_a_narrow_path(make_pair: MakePair) -> None:
    """One packet is lost on a wide path, others pass, and the path becomes narrow before it is repeated."""
    link = Link(make_pair(sealed=True, messages_per_datagram_max=1), 0.05)
    link.send(b"measured")
    link.run(1.0)
    _, *rest = link.pair.left.send(link.now, *[bytes(1_100)] * 6)
    link._carry(link.pair.left, rest)
    link.datagram_bytes_max = NARROW_BYTES
    link.run(5.0)
    assert link.pair.left.endpoint.counters.black_holes == 1
    assert len(link.pair.right.received) == 7
