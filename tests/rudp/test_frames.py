"""The bytes of a datagram: round trips, and refusal of what is cut short or unknown (DESIGN 6.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import RemoteProtocolError
from wanderbus.rudp import frames

U64 = st.integers(0, 2**64 - 1)
DATA = st.tuples(U64, st.booleans(), st.binary(min_size=1, max_size=50))


def packet(body: bytes) -> bytes:
    return frames.encode_packet_header(1, 2, 3) + body


@given(U64, U64, U64)
def test_header_round_trip(destination_id: int, source_id: int, number: int) -> None:
    datagram = frames.encode_packet_header(destination_id, source_id, number) + frames.PING_FRAME
    assert frames.decode_ids(datagram) == (destination_id, source_id, frames.PACKET)
    assert frames.decode_packet_number(datagram) == number


@given(st.lists(U64, max_size=5), st.lists(DATA, max_size=5), st.booleans())
def test_frames_round_trip(acks: list[int], data: list[frames.DataFrame], pinged: bool) -> None:
    body = frames.encode_acks(acks) + b"".join(frames.encode_data(*frame) for frame in data)
    body += frames.PING_FRAME if pinged else b""
    assert frames.decode_frames(packet(body)) == (acks, data, pinged)


def test_header_bytes_are_the_documented_ones() -> None:
    assert frames.encode_packet_header(1, 2, 3).hex() == "00000000000000010000000000000002010000000000000003"
    assert frames.encode_data(5, True, b"hi").hex() == "02000000000000000500026869"
    assert frames.encode_data(5, False, b"").hex() == "0100000000000000050000"
    assert frames.encode_acks([7, 8]).hex() == "030000000000000007030000000000000008"
    assert frames.encode_reset(1, 2).hex() == "0000000000000001000000000000000202"


@pytest.mark.parametrize(
    "body",
    [
        frames.encode_data(0, False, b"abc")[:-1],
        frames.encode_data(0, False, b"abc")[:5],
        frames.encode_acks([1])[:-1],
        b"\x00",
        b"\x05",
        frames.PING_FRAME + b"\xff",
        frames.encode_data(0, True, b""),
    ],
    ids=["short data", "short data header", "short ack", "type 0", "type 5", "tail", "empty part"],
)
def test_broken_frames_raise_the_declared_error(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.decode_frames(packet(body))


@pytest.mark.parametrize(
    "datagram",
    [b"", b"\x00" * 16, packet(b""), frames.encode_reset(1, 2) + b"\x00", frames.encode_reset(1, 2)[:-1] + b"\x09"],
    ids=["empty", "ids only", "no frames (RFC 9000 12.4)", "long reset", "unknown type"],
)
def test_what_is_neither_packet_nor_reset_raises_the_declared_error(datagram: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.decode_ids(datagram)


def test_a_reset_is_shorter_than_any_packet() -> None:
    assert len(frames.encode_reset(1, 2)) == frames.RESET_BYTES < frames.PACKET_HEADER_BYTES
