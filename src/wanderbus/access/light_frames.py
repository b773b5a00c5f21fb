"""Binary format between a lightweight client and its server, inside TLS (SPEC P-02); docs/lightweight.md describes it.

::

    frame      length u32 of what follows | type u8 | body
    HELLO      0x01  client  version u8 | nonce 16 | window u32 | user, device, session, former: length u8 | UTF-8 each
    CHALLENGE  0x02  server  nonce 16 | realm: UTF-8
    PROOF      0x03  client  proof 32
    WELCOME    0x04  server  proof 32 | grant u64 | message bytes u32 | silence seconds u16
    REFUSED    0x05  server  code u8 | wait seconds u16 | reason: UTF-8
    MESSAGE    0x06  both    a message of wanderbus.protocol
    GRANT      0x07  both    grant u64
    PING       0x08  both    none
    PONG       0x09  both    none

All numbers are big-endian. A grant is a position in the counted MESSAGE frames of one direction, laid end to end: one
may be sent if it begins before the grant. Those of a client are all counted; of those of a server, only notifications
and gaps are, so that answers pass what an application has not read yet.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from typing import Final

from wanderbus.access.light_messages import Hello
from wanderbus.errors import RemoteProtocolError

HELLO: Final = 0x01
CHALLENGE: Final = 0x02
PROOF: Final = 0x03
WELCOME: Final = 0x04
REFUSED: Final = 0x05
MESSAGE: Final = 0x06
GRANT: Final = 0x07
PING: Final = 0x08
PONG: Final = 0x09

VERSION: Final = 1

WRONG: Final = 1
"""Code of a refusal: user or password are wrong."""
LATER: Final = 2
"""Code of a refusal: the client may come again after the given time."""
MOVED: Final = 3
"""Code of a refusal: the server that the reason names, a SIP URI, has the session."""
CLOSED: Final = 4
"""Code of a refusal: the connection ends for the reason; the client may come again."""

NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
HEADER_BYTES: Final = 5
HELLO_BYTES_MAX: Final = 1 + NONCE_BYTES + 4 + 4 * 256
REASON_BYTES_MAX: Final = 1_000

_HEADER = struct.Struct("!IB")
_HELLO = struct.Struct(f"!B{NONCE_BYTES}sI")
_WELCOME = struct.Struct(f"!{PROOF_BYTES}sQIH")
_REFUSED = struct.Struct("!BH")
_FROM_CLIENT: Final = {PROOF: PROOF_BYTES, GRANT: 8, PING: 0, PONG: 0}

_CLIENT_PROOF: Final = b"wanderbus light client 1"
_SERVER_PROOF: Final = b"wanderbus light server 1"


def encode(kind: int, body: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEADER.pack(1 + len(body), kind) + body


def encode_challenge(nonce: bytes, realm: str) -> bytes:
    """Return a CHALLENGE frame."""
    return encode(CHALLENGE, nonce + realm.encode())


def encode_welcome(proof: bytes, grant: int, message_bytes_max: int, silence_s: int) -> bytes:
    """Return a WELCOME frame."""
    return encode(WELCOME, _WELCOME.pack(proof, grant, message_bytes_max, silence_s))


def encode_refused(code: int, reason: str, wait_s: int = 0) -> bytes:
    """Return a REFUSED frame with a shortened reason."""
    text = reason.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")
    return encode(REFUSED, _REFUSED.pack(code, min(wait_s, 0xFFFF)) + text.encode())


def encode_grant(grant: int) -> bytes:
    """Return a GRANT frame."""
    return encode(GRANT, grant.to_bytes(8, "big"))


def decode_hello(body: bytes) -> Hello:
    """Return a client's HELLO; :class:`RemoteProtocolError` if it is malformed, or of another version."""
    try:
        version, _, window_bytes = _HELLO.unpack_from(body)
        texts, at = [], _HELLO.size
        for _ in range(4):
            end = at + 1 + body[at]
            if end > len(body):
                raise IndexError
            texts.append(body[at + 1 : end].decode())
            at = end
    except (struct.error, IndexError, UnicodeDecodeError):
        raise RemoteProtocolError("a HELLO is malformed", status=None) from None
    if version != VERSION or at != len(body):
        raise RemoteProtocolError(f"a HELLO has version {version} or a wrong length", status=None)
    return Hello(window_bytes, texts[0], texts[1], texts[2], texts[3], body)


def client_proof(secret: str, nonce: bytes, fingerprint: bytes, hello: bytes) -> bytes:
    """Return the proof that a client knows ``secret``, the HA1 of its user under SHA-256 (RFC 7616 3.4.2).

    It holds for the server's ``nonce`` and for the connection with the certificate of this SHA-256 alone.
    """
    return hmac.digest(secret.encode(), _CLIENT_PROOF + nonce + fingerprint + hello, hashlib.sha256)


def server_proof(secret: str, nonce: bytes, fingerprint: bytes, hello: bytes) -> bytes:
    """Return the proof that a server knows ``secret``, which shows that nobody is between it and the client."""
    return hmac.digest(secret.encode(), _SERVER_PROOF + nonce + fingerprint + hello, hashlib.sha256)


class FrameReader:
    """Parser of a client's stream; buffers at most one incomplete frame of an allowed length."""

    def __init__(self) -> None:
        self.message_bytes_max = 0
        """Maximum length of a message; 0 before the login."""
        self._held = bytearray()

    def frames(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield type and body of each frame that ``data`` completes; exhaust it, unless nothing more is read.

        :raises RemoteProtocolError: a frame has an unknown type, or a length that its type does not permit.
        """
        held = self._held
        held += data
        at = 0
        try:
            while len(held) - at >= HEADER_BYTES:
                length, kind = _HEADER.unpack_from(held, at)
                if not self._fits(kind, length - 1):
                    raise RemoteProtocolError(f"frame type {kind:#04x} must not have {length} bytes here", status=None)
                end = at + HEADER_BYTES + length - 1
                if end > len(held):
                    return
                body = bytes(held[at + HEADER_BYTES : end])
                at = end
                yield kind, body
        finally:
            del held[:at]

    def _fits(self, kind: int, body_bytes: int) -> bool:
        if kind == HELLO:
            return 0 <= body_bytes <= HELLO_BYTES_MAX
        if kind == MESSAGE:
            return 0 < body_bytes <= self.message_bytes_max
        return body_bytes == _FROM_CLIENT.get(kind)
