"""The bytes of reliable UDP: one datagram is a header and frames (DESIGN 6.2, after RFC 9000 12 and 19).

::

    packet  destination id u64 | source id u64 | 0x01 | packet number u64 | frame...
    reset   destination id u64 | source id u64 | 0x02
    DATA    0x01 last or only, 0x02 more follows | number u64 | length u16 | bytes
    ACK     0x03 | packet number u64
    PING    0x04

All numbers are big-endian. A packet number is used once in a connection and direction, so that it can serve as a
nonce; DATA numbers are dense, so that the receiver can put frames in order without looking at packets. On the hot
path frames are plain tuples, not objects.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from wanderbus.errors import RemoteProtocolError

PACKET: Final = 0x01
RESET: Final = 0x02

_DATA_LAST: Final = 0x01
_DATA_MORE: Final = 0x02
_ACK: Final = 0x03
_PING: Final = 0x04
_DATA_TYPES: Final = (_DATA_LAST, _DATA_MORE)

_IDS = struct.Struct("!QQB")
_PACKET_HEADER = struct.Struct("!QQBQ")
_DATA_HEADER = struct.Struct("!BQH")
_NUMBERED = struct.Struct("!BQ")

RESET_BYTES: Final = _IDS.size
PACKET_HEADER_BYTES: Final = _PACKET_HEADER.size
DATA_HEADER_BYTES: Final = _DATA_HEADER.size
ACK_BYTES: Final = _NUMBERED.size

PING_FRAME: Final = bytes([_PING])

DataFrame = tuple[int, bool, bytes]
"""A DATA frame: its number, whether more of the same message follows, its bytes."""


class Frames(NamedTuple):
    """The frames of one packet, sorted by what they ask of the receiver."""

    acks: list[int]
    data: list[DataFrame]
    pinged: bool


def encode_packet_header(destination_id: int, source_id: int, number: int) -> bytes:
    """Return the header of packet ``number``."""
    return _PACKET_HEADER.pack(destination_id, source_id, PACKET, number)


def encode_reset(destination_id: int, source_id: int) -> bytes:
    """Return a whole RESET datagram; it is shorter than any packet."""
    return _IDS.pack(destination_id, source_id, RESET)


def encode_data(number: int, more: bool, payload: bytes) -> bytes:
    """Return a DATA frame."""
    return _DATA_HEADER.pack(_DATA_MORE if more else _DATA_LAST, number, len(payload)) + payload


def encode_acks(numbers: list[int]) -> bytes:
    """Return one ACK frame for each packet number (SPEC F-03)."""
    pack = _NUMBERED.pack
    return b"".join([pack(_ACK, number) for number in numbers])


def decode_ids(datagram: bytes) -> tuple[int, int, int]:
    """Return (destination id, source id, type) of a packet or a reset.

    :raises RemoteProtocolError: the datagram is neither.
    """
    size = len(datagram)
    if size >= RESET_BYTES:
        destination_id, source_id, kind = _IDS.unpack_from(datagram)
        if (kind == PACKET and size > PACKET_HEADER_BYTES) or (kind == RESET and size == RESET_BYTES):
            return destination_id, source_id, kind
    raise RemoteProtocolError("a datagram is neither a packet nor a reset", status=None)


def decode_packet_number(packet: bytes) -> int:
    """Return the packet number of what :func:`decode_ids` called a packet."""
    return int.from_bytes(packet[RESET_BYTES:PACKET_HEADER_BYTES], "big")


def decode_frames(packet: bytes) -> Frames:
    """Return the frames after the header of a packet.

    :raises RemoteProtocolError: a frame is cut short, of unknown type, or an empty part of a message (which would
        let a sender add to a message for ever without making it longer).
    """
    acks: list[int] = []
    data: list[DataFrame] = []
    pinged = False
    offset, size = PACKET_HEADER_BYTES, len(packet)
    try:
        while offset < size:
            kind = packet[offset]
            if kind in _DATA_TYPES:
                _, number, length = _DATA_HEADER.unpack_from(packet, offset)
                start = offset + DATA_HEADER_BYTES
                offset = start + length
                if offset > size or (length == 0 and kind == _DATA_MORE):
                    raise RemoteProtocolError("a DATA frame is cut short", status=None)
                data.append((number, kind == _DATA_MORE, packet[start:offset]))
            elif kind == _ACK:
                acks.append(_NUMBERED.unpack_from(packet, offset)[1])
                offset += ACK_BYTES
            elif kind == _PING:
                pinged = True
                offset += 1
            else:
                raise RemoteProtocolError(f"frame type {kind:#04x} is unknown", status=None)
    except struct.error:
        raise RemoteProtocolError("a frame is cut short", status=None) from None
    return Frames(acks, data, pinged)
