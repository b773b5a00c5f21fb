"""Binary format of HELLO and WELCOME, and their authentication by a secret (SPEC F-09).

::

    HELLO    0 u64            | dialler's id u64        | 0x04 | public key 32 bytes | MAC 32 bytes
    WELCOME  dialler's id u64 | accepting side's id u64 | 0x05 | public key 32 bytes | MAC 32 bytes
    refusal  the same with 0 for the accepting side's id

The MAC is HMAC-SHA256 over the preceding bytes, and for a WELCOME also over the whole HELLO. Its key is derived from
the secret and the mode, sealed or plain, so that neither message can be changed on the way.
"""

from __future__ import annotations

import hmac
import struct
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wanderbus.errors import RemoteProtocolError
from wanderbus.rudp.keys import KEY_BYTES
from wanderbus.rudp.openings import Opening

HELLO: Final = 0x04
WELCOME: Final = 0x05

NO_KEY: Final = bytes(KEY_BYTES)
"""Placeholder of the public key in plain mode and in a refusal."""

_MAC_BYTES: Final = 32
_HEADER = struct.Struct(f"!QQB{KEY_BYTES}s{_MAC_BYTES}s")
_LABELS: Final = {True: b"wanderbus rudp opening, sealed", False: b"wanderbus rudp opening, plain"}

OPENING_BYTES: Final = _HEADER.size


class OpeningSecret:
    """Shared secret of both sides: creates and authenticates HELLOs and WELCOMEs.

    ``salt`` is for the keys of the connections. An empty ``secret`` is known to everybody.
    """

    def __init__(self, secret: bytes, *, sealed: bool) -> None:
        derived = HKDF(SHA256(), _MAC_BYTES + KEY_BYTES, None, _LABELS[sealed]).derive(secret)
        self._mac_key, self.salt = derived[:_MAC_BYTES], derived[_MAC_BYTES:]

    def hello(self, dialler_id: int, public: bytes) -> bytes:
        """Return a HELLO."""
        return self._signed(0, dialler_id, HELLO, public, b"")

    def welcome(self, hello: Opening, local_id: int, public: bytes) -> bytes:
        """Return the WELCOME for ``hello``."""
        return self._signed(hello.source_id, local_id, WELCOME, public, hello.data)

    def refusal(self, hello: Opening) -> bytes:
        """Return the datagram that refuses a connection."""
        return self.welcome(hello, 0, NO_KEY)

    def genuine(self, opening: Opening, hello: bytes = b"") -> bool:
        """Return whether the sender of ``opening`` has the secret and, for a WELCOME, answered ``hello``."""
        data = opening.data
        return hmac.compare_digest(self._mac(hello + data[:-_MAC_BYTES]), data[-_MAC_BYTES:])

    def _signed(self, destination_id: int, source_id: int, kind: int, public: bytes, hello: bytes) -> bytes:
        body = _HEADER.pack(destination_id, source_id, kind, public, b"")[:-_MAC_BYTES]
        return body + self._mac(hello + body)

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._mac_key, data, "sha256")


def decode_opening(data: bytes) -> Opening:
    """Parse the HELLO or WELCOME in ``data``.

    :raises RemoteProtocolError: the format is invalid.
    """
    if len(data) == OPENING_BYTES:
        destination_id, source_id, kind, public, _ = _HEADER.unpack(data)
        if (kind == HELLO and not destination_id and source_id) or (kind == WELCOME and destination_id):
            return Opening(destination_id, source_id, kind, public, data)
    raise RemoteProtocolError("a datagram is neither a HELLO nor a WELCOME", status=None)
