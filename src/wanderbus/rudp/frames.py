"""Binary format of reliable UDP: one datagram is a header and frames (DESIGN 6.2, after RFC 9000 12 and 19).

::

    packet     destination id u64 | source id u64 | kind | epoch u8 | generation u16 | packet number u64
               then, kind 0x01: sealed frames and a tag of 16 bytes; kind 0x03: plain frames
    reset      destination id u64 | source id u64 | 0x02 | token 16 bytes
    DATA       0x01 last or only, 0x02 more follows | number u64 | length u16 | bytes
    ACK        0x03 | newest u64 | fresh u64 | again u64
    PING       0x04
    WINDOW     0x05 | DATA number u64: the first that may not be sent yet
    CHALLENGE  0x06 | 8 bytes                 RESPONSE  0x07 | the same 8 bytes
    TOKEN      0x08 | 16 bytes: what a RESET of the sender will carry
    FINISH     0x09 | DATA number u64: takes a number of its own, after the last DATA
    HALF       0x0A, 0x0B | as DATA 0x01: the first and the second half of its bytes
               0x0C, 0x0D | as DATA 0x02
    PADDING    0x00

Kinds 0x04 and 0x05 are HELLO and WELCOME (:mod:`~wanderbus.rudp.handshake_messages`). All numbers are big-endian. A
packet number is used once in a connection and direction, so that it can serve as a nonce. DATA numbers are dense, so
that the receiver can order frames independently of packets. An ACK reports that packet ``newest``, and packet
``newest - 1 - i`` for each bit i in ``fresh``, have just arrived, and those in ``again`` before. On the hot path frames
are plain tuples, not objects.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from wanderbus.errors import RemoteProtocolError

SEALED: Final = 0x01
RESET: Final = 0x02
PLAIN: Final = 0x03

PADDING: Final = 0x00
DATA_LAST: Final = 0x01
DATA_MORE: Final = 0x02
ACK: Final = 0x03
PING: Final = 0x04
WINDOW: Final = 0x05
CHALLENGE: Final = 0x06
RESPONSE: Final = 0x07
TOKEN: Final = 0x08
FINISH: Final = 0x09
HALF: Final = 0x0A
_HALVES: Final = range(HALF, HALF + 4)

_HEADER = struct.Struct("!QQBBHQ")
_RESET = struct.Struct("!QQB16s")
_DATA_HEADER = struct.Struct("!BQH")
_ACK_FRAME = struct.Struct("!BQQQ")
_NUMBERED = struct.Struct("!BQ")
_pack_data_header = _DATA_HEADER.pack
_unpack_data_header = _DATA_HEADER.unpack_from
_unpack_ack = _ACK_FRAME.unpack_from

HEADER_BYTES: Final = _HEADER.size
RESET_BYTES: Final = _RESET.size
DATA_HEADER_BYTES: Final = _DATA_HEADER.size
ACK_BYTES: Final = _ACK_FRAME.size
TOKEN_BYTES: Final = 16
CHALLENGE_BYTES: Final = 8

MARKS: Final = 64
"""Packets that one ACK frame can mark in addition to its newest."""

PING_FRAME: Final = bytes([PING]).ljust(1 + CHALLENGE_BYTES, bytes([PADDING]))
"""PING, padded so that it is not shorter than a possible reply: a RESET, or a CHALLENGE if its source is new."""

Header = tuple[int, int, int, int, int, int]
"""Destination id, source id, kind, epoch, generation and packet number; a RESET has only the first three."""

DataFrame = tuple[int, int, bytes]
"""Its DATA number; DATA_LAST, DATA_MORE, FINISH or a kind of HALF; its payload."""

AckFrame = tuple[int, int, int]
"""Newest, fresh, again."""

ControlFrame = tuple[int, int | bytes]
"""PING, WINDOW, CHALLENGE, RESPONSE or TOKEN, and its content."""

_PACKET_KINDS: Final = (SEALED, PLAIN)
_CARRIED_BYTES: Final = {CHALLENGE: CHALLENGE_BYTES, RESPONSE: CHALLENGE_BYTES, TOKEN: TOKEN_BYTES}


class Frames(NamedTuple):
    """The frames of one packet, sorted by their kind; DATA numbers rise."""

    data: list[DataFrame]
    acks: list[AckFrame]
    controls: list[ControlFrame]


encode_header = _HEADER.pack
"""Return the header of a packet, given as :data:`Header`."""


def encode_reset(destination_id: int, source_id: int, token: bytes) -> bytes:
    """Return a whole RESET datagram; no packet is shorter."""
    return _RESET.pack(destination_id, source_id, RESET, token)


def reset_token(reset: bytes) -> bytes:
    """Return the token of a datagram that :func:`decode_header` identified as a RESET."""
    return reset[-TOKEN_BYTES:]


def encode_data(number: int, more: bool, payload: bytes) -> bytes:
    """Return a DATA frame."""
    return _pack_data_header(DATA_MORE if more else DATA_LAST, number, len(payload)) + payload


def encode_half(number: int, kind: int, payload: bytes) -> bytes:
    """Return a HALF frame of this kind."""
    return _pack_data_header(kind, number, len(payload)) + payload


def encode_halves(number: int, more: bool, payload: bytes) -> tuple[bytes, bytes]:
    """Return the two HALF frames of a DATA frame that was too long for its path; it has at least two bytes."""
    kind, middle = HALF + 2 * more, -(-len(payload) // 2)
    return encode_half(number, kind, payload[:middle]), encode_half(number, kind + 1, payload[middle:])


def whole_of(half: DataFrame, other: DataFrame | None) -> DataFrame | None:
    """Return the DATA frame of two halves; None if they do not belong together."""
    number, kind, payload = half
    if other is None or (kind - HALF) ^ 1 != other[1] - HALF:
        return None
    whole = other[2] + payload if (kind - HALF) & 1 else payload + other[2]
    return number, DATA_LAST + (kind - HALF) // 2, whole


def encode_ack(newest: int, fresh: int, again: int) -> bytes:
    """Return an ACK frame."""
    return _ACK_FRAME.pack(ACK, newest, fresh, again)


def encode_numbered(kind: int, number: int) -> bytes:
    """Return a WINDOW or FINISH frame."""
    return _NUMBERED.pack(kind, number)


def encode_carrying(kind: int, carried: bytes) -> bytes:
    """Return a CHALLENGE, RESPONSE or TOKEN frame."""
    return bytes([kind]) + carried


def decode_header(datagram: bytes) -> Header:
    """Return the header of a packet or a RESET.

    :raises RemoteProtocolError: the datagram is neither.
    """
    size = len(datagram)
    if size >= RESET_BYTES:
        header: Header = _HEADER.unpack_from(datagram)
        kind = header[2]
        if kind in _PACKET_KINDS or (kind == RESET and size == RESET_BYTES):
            return header
    raise RemoteProtocolError("a datagram is neither a packet nor a reset", status=None)


def decode_frames(body: bytes, offset: int = 0) -> Frames:
    """Return the frames from ``offset`` on, all of one packet.

    :raises RemoteProtocolError: a frame is incomplete, of unknown type, or an empty part of a message (which would let
        a sender add parts to a message for ever without making it longer), or DATA numbers do not rise.
    """
    data: list[DataFrame] = []
    acks: list[AckFrame] = []
    controls: list[ControlFrame] = []
    size, highest = len(body), -1
    try:
        while offset < size:
            kind = body[offset]
            if DATA_LAST <= kind <= DATA_MORE or kind in _HALVES:
                _, number, length = _unpack_data_header(body, offset)
                start = offset + DATA_HEADER_BYTES
                offset = start + length
                if offset > size or number <= highest or (length == 0 and kind != DATA_LAST):
                    raise RemoteProtocolError("a DATA frame is incomplete or out of order", status=None)
                highest = number
                data.append((number, kind, body[start:offset]))
            elif kind == ACK:
                acks.append(_unpack_ack(body, offset)[1:])
                offset += ACK_BYTES
            elif kind == FINISH:
                number = _NUMBERED.unpack_from(body, offset)[1]
                offset += _NUMBERED.size
                if number <= highest:
                    raise RemoteProtocolError("a FINISH frame is out of order", status=None)
                highest = number
                data.append((number, FINISH, b""))
            else:
                offset = _decode_control(body, offset, controls)
    except struct.error:
        raise RemoteProtocolError("a frame is incomplete", status=None) from None
    return Frames(data, acks, controls)


def _decode_control(body: bytes, offset: int, controls: list[ControlFrame]) -> int:
    """Add the frame at ``offset``; return where the next one begins."""
    kind = body[offset]
    if kind == PADDING:
        return offset + 1
    if kind == PING:
        controls.append((PING, b""))
        return offset + 1
    if kind == WINDOW:
        controls.append((WINDOW, _NUMBERED.unpack_from(body, offset)[1]))
        return offset + _NUMBERED.size
    length = _CARRIED_BYTES.get(kind)
    if length is None:
        raise RemoteProtocolError(f"frame type {kind:#04x} is unknown", status=None)
    end = offset + 1 + length
    if end > len(body):
        raise RemoteProtocolError("a frame is incomplete", status=None)
    controls.append((kind, body[offset + 1 : end]))
    return end
