"""From two public keys to the secrets of one connection: X25519 and HKDF-SHA256 (RFC 7748 6.1, RFC 5869).

A key pair is made for one connection and forgotten with it, so that nothing that is kept can open a recording.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wanderbus.errors import RemoteProtocolError

KEY_BYTES: Final = 32
"""A private key, a public key, and a secret."""

_LABEL: Final = b"wanderbus rudp secrets"


class Secrets(msgspec.Struct, frozen=True):
    """What the two directions of one connection are sealed under; ours to send is the peer's to receive.

    It never shows its content, so that neither a log nor a traceback can.
    """

    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return "Secrets()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class KeyPair:
    """One side's X25519 keys, made from 32 unpredictable bytes, and kept as those: there is one for each user."""

    __slots__ = ("_token", "public")

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.public: Final = X25519PrivateKey.from_private_bytes(token).public_key().public_bytes_raw()

    def secrets(self, peer_public: bytes, *, salt: bytes, context: bytes, first: bool) -> Secrets:
        """Return the secrets that the holder of ``peer_public``'s other half gets from ours.

        ``salt`` and ``context`` have to be the same on both sides, and both public keys are taken in (RFC 7748 6.1).
        One side, and only one, is ``first``: it decides which secret is for which direction.

        :raises RemoteProtocolError: ``peer_public`` is not a key, or one that gives everybody the same secret.
        """
        try:
            private = X25519PrivateKey.from_private_bytes(self._token)
            shared = private.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:
            raise RemoteProtocolError("the other side's public key cannot be used") from None
        publics = self.public + peer_public if first else peer_public + self.public
        derived = HKDF(SHA256(), 2 * KEY_BYTES, salt, _LABEL + publics + context).derive(shared)
        ahead, back = derived[:KEY_BYTES], derived[KEY_BYTES:]
        return Secrets(ahead, back) if first else Secrets(back, ahead)
