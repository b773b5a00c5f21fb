"""The bytes of the data channel over TCP: the same frames from any pieces; no unexpected error from any bytes."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.errors import RemoteProtocolError
from wanderbus.tcp.frames import (
    ACK,
    DATA,
    HEADER_BYTES,
    HELLO,
    PING,
    Frame,
    FrameReader,
    decode_grant,
    decode_hello,
    encode,
    encode_ack,
    encode_hello,
)


def reader(message_bytes_max: int = 1_000) -> FrameReader:
    made = FrameReader()
    made.message_bytes_max = message_bytes_max
    return made


FRAMES = st.lists(
    st.one_of(
        st.builds(lambda number, body: (DATA, number, body), st.integers(0, 2**64 - 1), st.binary(max_size=60)),
        st.just((PING, 0, b"")),
        st.builds(lambda number: (ACK, number, bytes(8)), st.integers(0, 2**64 - 1)),
    ),
    max_size=12,
)


@given(FRAMES, st.data())
def test_frames_do_not_depend_on_the_pieces(frames: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encode(*frame) for frame in frames)
    taking = reader()
    taken: list[Frame] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        taken += taking.frames(stream[:cut])
        stream = stream[cut:]
    assert taken == frames


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_give_frames_or_the_declared_error(garbage: bytes, piece: int) -> None:
    taking = reader()
    with contextlib.suppress(RemoteProtocolError):
        for start in range(0, len(garbage), piece):
            list(taking.frames(garbage[start : start + piece]))


@pytest.mark.parametrize("length", [0, 8, 9 + 1_001, 2**32 - 1])
def test_a_data_frame_of_wrong_length_is_refused_by_its_header_alone(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        list(reader().frames(struct.pack("!IBQ", length, DATA, 0)))


@pytest.mark.parametrize("kind", [0, 10, 255])
@pytest.mark.parametrize("length", [8, 9, 10])
def test_an_unknown_type_is_refused(kind: int, length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        list(reader().frames(struct.pack("!IBQ", length, kind, 0)))


@pytest.mark.parametrize("body", [b"", bytes(7), bytes(9)])
def test_a_type_has_one_length(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(reader().frames(encode(ACK, 1, body)))


def test_no_message_is_read_before_the_proof() -> None:
    with pytest.raises(RemoteProtocolError):
        list(FrameReader().frames(encode(DATA, 0, b"")))


def test_the_largest_message_is_held_and_no_more() -> None:
    taking = reader()
    frame = encode(DATA, 7, bytes(1_000))
    for byte in frame[:-1]:
        assert list(taking.frames(bytes([byte]))) == []
    assert list(taking.frames(frame[-1:])) == [(DATA, 7, bytes(1_000))]


def test_layout() -> None:
    hello = encode_hello(3, 0xAA, 0xBB, bytes(range(16)))
    assert hello.hex() == "00000029" + "01" + "0000000000000003" + "00000000000000aa" + "00000000000000bb" + (
        bytes(range(16)).hex()
    )
    assert list(FrameReader().frames(hello)) == [(HELLO, 3, hello[HEADER_BYTES:])]
    assert decode_hello(hello[HEADER_BYTES:]) == (0xAA, 0xBB, bytes(range(16)))
    assert encode_ack(5, 9).hex() == "00000011" + "07" + "0000000000000005" + "0000000000000009"
    assert decode_grant(encode_ack(5, 9)[HEADER_BYTES:]) == 9
