"""The bytes of a datagram: encoding round trips, and refusal of truncated or unknown frames (DESIGN 6.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import RemoteProtocolError
from wanderbus.rudp import frames
from wanderbus.rudp.handshake_messages import HELLO, WELCOME

U64 = st.integers(0, 2**64 - 1)
ACKS = st.lists(st.tuples(U64, U64, U64), max_size=3)
DATA = st.lists(st.tuples(U64, st.booleans(), st.binary(min_size=1, max_size=50)), max_size=5, unique_by=lambda d: d[0])
CONTROLS = st.lists(
    st.tuples(st.just(frames.WINDOW), U64)
    | st.tuples(st.sampled_from([frames.CHALLENGE, frames.RESPONSE]), st.binary(min_size=8, max_size=8))
    | st.tuples(st.just(frames.TOKEN), st.binary(min_size=16, max_size=16))
    | st.just((frames.PING, b"")),
    max_size=4,
)


def encoded(control: frames.ControlFrame) -> bytes:
    kind, carried = control
    if isinstance(carried, int):
        return frames.encode_numbered(kind, carried)
    return frames.PING_FRAME if kind == frames.PING else frames.encode_carrying(kind, carried)


@given(U64, U64, st.sampled_from([frames.SEALED, frames.PLAIN]), st.integers(0, 255), st.integers(0, 65_535), U64)
def test_header_round_trip(
    destination_id: int, source_id: int, kind: int, epoch: int, generation: int, number: int
) -> None:
    header = (destination_id, source_id, kind, epoch, generation, number)
    assert frames.decode_header(frames.encode_header(*header) + frames.PING_FRAME) == header


@given(ACKS, DATA, CONTROLS, st.integers(0, 40))
def test_frames_round_trip(
    acks: list[frames.AckFrame],
    data: list[tuple[int, bool, bytes]],
    controls: list[frames.ControlFrame],
    offset: int,
) -> None:
    data.sort()
    body = b"".join(frames.encode_ack(*ack) for ack in acks)
    body += b"".join(frames.encode_data(*frame) for frame in data)
    body += b"".join(map(encoded, controls))
    expected = [(number, frames.DATA_MORE if more else frames.DATA_LAST, payload) for number, more, payload in data]
    assert frames.decode_frames(bytes(offset) + body, offset) == (expected, acks, controls)


def test_bytes_are_the_documented_ones() -> None:
    header = "00000000000000010000000000000002" + "03" + "04" + "0005" + "0000000000000006"
    assert frames.encode_header(1, 2, frames.PLAIN, 4, 5, 6).hex() == header
    assert frames.encode_reset(1, 2, b"t" * 16).hex() == "0000000000000001000000000000000202" + "74" * 16
    assert frames.encode_data(5, True, b"hi").hex() == "02000000000000000500026869"
    assert frames.encode_data(5, False, b"").hex() == "0100000000000000050000"
    assert frames.encode_ack(7, 1, 2).hex() == "03" + "0000000000000007" + "0000000000000001" + "0000000000000002"
    assert frames.PING_FRAME.hex() == "04" + "00" * 8
    assert frames.encode_numbered(frames.WINDOW, 8).hex() == "050000000000000008"
    assert frames.encode_carrying(frames.CHALLENGE, b"c" * 8).hex() == "06" + "63" * 8
    assert frames.encode_carrying(frames.RESPONSE, b"r" * 8).hex() == "07" + "72" * 8
    assert frames.encode_carrying(frames.TOKEN, b"t" * 16).hex() == "08" + "74" * 16
    assert frames.encode_numbered(frames.FINISH, 9).hex() == "090000000000000009"


@pytest.mark.parametrize(
    "body",
    [
        frames.encode_data(0, False, b"abc")[:-1],
        frames.encode_data(0, False, b"abc")[:5],
        frames.encode_ack(1, 0, 0)[:-1],
        frames.encode_numbered(frames.WINDOW, 1)[:-1],
        frames.encode_numbered(frames.FINISH, 1)[:-1],
        frames.encode_carrying(frames.CHALLENGE, b"short"),
        frames.encode_carrying(frames.TOKEN, b"too short"),
        b"\x0a",
        frames.PING_FRAME + b"\xff",
        frames.encode_data(0, True, b""),
        frames.encode_data(1, False, b"") + frames.encode_data(1, False, b""),
        frames.encode_data(1, False, b"") + frames.encode_data(0, False, b""),
        frames.encode_data(1, False, b"") + frames.encode_numbered(frames.FINISH, 1),
    ],
    ids=[
        *("short data", "short data header", "short ack", "short window", "short finish", "short challenge"),
        *("short token", "type 10", "tail", "empty part", "the same number", "falling numbers", "finish in the past"),
    ],
)
def test_broken_frames_raise_the_declared_error(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.decode_frames(body)


@given(st.binary(max_size=100))
def test_any_bytes_raise_nothing_else(body: bytes) -> None:
    try:
        frames.decode_frames(body)
        frames.decode_header(body)
    except RemoteProtocolError:
        pass


PACKET = frames.encode_header(1, 2, frames.PLAIN, 0, 0, 3) + frames.PING_FRAME


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x00" * 16,
        PACKET[: frames.RESET_BYTES - 1],
        frames.encode_reset(1, 2, bytes(16)) + b"\x00",
        PACKET[:16] + b"\x09" + PACKET[17:],
        PACKET[:16] + bytes([HELLO]) + PACKET[17:],
        PACKET[:16] + bytes([WELCOME]) + PACKET[17:],
    ],
    ids=["empty", "ids only", "shorter than a reset", "long reset", "unknown kind", "hello", "welcome"],
)
def test_a_datagram_that_is_neither_packet_nor_reset_raises_the_declared_error(datagram: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.decode_header(datagram)


def test_no_packet_is_shorter_than_what_may_answer_it() -> None:
    least = [frames.PING_FRAME, frames.encode_data(0, False, b""), frames.encode_numbered(frames.WINDOW, 0)]
    challenge = frames.encode_carrying(frames.CHALLENGE, bytes(frames.CHALLENGE_BYTES))
    assert min(len(frame) for frame in least) >= len(challenge)
    assert frames.HEADER_BYTES + len(challenge) > frames.RESET_BYTES == 33
