"""Binary format of the data channel over TCP: frames preceded by their length, as in RFC 4571.

::

    frame    length u32 of what follows | type u8 | number u64 | body
    HELLO    0x01  number: generation of the active side     body: destination id u64 | source id u64 | nonce 16
    WELCOME  0x02  number: of the message expected next      body: grant u64 | nonce 16 | proof 32
    PROOF    0x03  number: of the message expected next      body: grant u64 | proof 32
    RESET    0x04  number: id that is unknown here           body: none
    DATA     0x05  number: of the message                    body: the message
    FINISH   0x06  number: as of one more message            body: none
    ACK      0x07  number: of the message expected next      body: grant u64
    PING     0x08  number: 0                                 body: none
    PONG     0x09  number: 0                                 body: none

All numbers are big-endian. DATA and FINISH count from 0 in one sequence for each direction. A grant is a position in
the DATA and FINISH frames of that sequence laid end to end: a frame may be sent if it begins before the grant. A grant
never decreases. On the hot path frames are plain tuples, not objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from wanderbus.errors import RemoteProtocolError

HELLO: Final = 0x01
WELCOME: Final = 0x02
PROOF: Final = 0x03
RESET: Final = 0x04
DATA: Final = 0x05
FINISH: Final = 0x06
ACK: Final = 0x07
PING: Final = 0x08
PONG: Final = 0x09

NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32

_HEADER = struct.Struct("!IBQ")
_LENGTH_BYTES: Final = 4
_COUNTED_HEADER_BYTES: Final = _HEADER.size - _LENGTH_BYTES

HEADER_BYTES: Final = _HEADER.size
"""Bytes of a DATA frame beyond its message, and the length of a FINISH frame."""

_GRANT = struct.Struct("!Q")
_HELLO_BODY = struct.Struct(f"!QQ{NONCE_BYTES}s")
_WELCOME_BODY = struct.Struct(f"!Q{NONCE_BYTES}s{PROOF_BYTES}s")
_PROOF_BODY = struct.Struct(f"!Q{PROOF_BYTES}s")

_BODY_BYTES: Final = {
    HELLO: _HELLO_BODY.size,
    WELCOME: _WELCOME_BODY.size,
    PROOF: _PROOF_BODY.size,
    RESET: 0,
    FINISH: 0,
    ACK: _GRANT.size,
    PING: 0,
    PONG: 0,
}

Frame = tuple[int, int, bytes]
"""Type, number and body; the body has the length that the type requires."""

NO_DATA: Final = -1
"""Bound on messages while none is allowed."""


def encode(kind: int, number: int = 0, body: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEADER.pack(_COUNTED_HEADER_BYTES + len(body), kind, number) + body


def encode_hello(generation: int, destination_id: int, source_id: int, nonce: bytes) -> bytes:
    """Return a HELLO frame."""
    return encode(HELLO, generation, _HELLO_BODY.pack(destination_id, source_id, nonce))


def decode_hello(body: bytes) -> tuple[int, int, bytes]:
    """Return (destination id, source id, nonce)."""
    return _HELLO_BODY.unpack(body)


def encode_welcome(expected: int, grant: int, nonce: bytes, proof: bytes) -> bytes:
    """Return a WELCOME frame."""
    return encode(WELCOME, expected, _WELCOME_BODY.pack(grant, nonce, proof))


def decode_welcome(body: bytes) -> tuple[int, bytes, bytes]:
    """Return (grant, nonce, proof)."""
    return _WELCOME_BODY.unpack(body)


def encode_proof(expected: int, grant: int, proof: bytes) -> bytes:
    """Return a PROOF frame."""
    return encode(PROOF, expected, _PROOF_BODY.pack(grant, proof))


def decode_proof(body: bytes) -> tuple[int, bytes]:
    """Return (grant, proof)."""
    return _PROOF_BODY.unpack(body)


def encode_ack(expected: int, grant: int) -> bytes:
    """Return an ACK frame."""
    return encode(ACK, expected, _GRANT.pack(grant))


def decode_grant(body: bytes) -> int:
    """Return the grant of an ACK frame."""
    return int.from_bytes(body, "big")


class FrameReader:
    """Parser of a stream into frames; buffers at most one incomplete frame of an allowed length."""

    def __init__(self) -> None:
        self.message_bytes_max = NO_DATA
        """Maximum length of a message; it may be raised between two frames of one piece."""
        self._held = bytearray()
        self._needed = HEADER_BYTES

    def frames(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes; exhaust it, unless nothing more is read from the stream.

        :raises RemoteProtocolError: a frame has an unknown type, or a length that its type does not permit.
        """
        held = self._held
        if held:
            held += data
            if len(held) < self._needed:
                return
            data = bytes(held)
            held.clear()
        offset, size, needed = 0, len(data), HEADER_BYTES
        while size - offset >= HEADER_BYTES:
            length, kind, number = _HEADER.unpack_from(data, offset)
            body_bytes = length - _COUNTED_HEADER_BYTES
            fits = 0 <= body_bytes <= self.message_bytes_max if kind == DATA else body_bytes == _BODY_BYTES.get(kind)
            if not fits:
                raise RemoteProtocolError(f"frame type {kind:#04x} must not have {length} bytes here", status=None)
            body = offset + HEADER_BYTES
            if body + body_bytes > size:
                needed = HEADER_BYTES + body_bytes
                break
            offset = body + body_bytes
            yield kind, number, data[body:offset]
        self._needed = needed
        held += data[offset:]
