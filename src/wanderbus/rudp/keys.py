"""Key agreement of a connection: X25519 and HKDF-SHA256 (RFC 7748 6.1, RFC 5869).

A key pair is created for one connection and discarded with it, so that no stored key decrypts a recording.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from wanderbus.errors import RemoteProtocolError
from wanderbus.rudp.interface import Secrets

KEY_BYTES: Final = 32
"""Length of a private key, of a public key, and of a secret."""

_LABEL: Final = b"wanderbus rudp secrets"


class KeyPair:
    """One side's X25519 keys, created from 32 unpredictable bytes and stored as those, since every user has a pair."""

    __slots__ = ("_token", "public")

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.public: Final = X25519PrivateKey.from_private_bytes(token).public_key().public_bytes_raw()

    def secrets(self, peer_public: bytes, *, salt: bytes, context: bytes, first: bool) -> Secrets:
        """Return the secrets shared with the owner of ``peer_public``.

        ``salt`` and ``context`` must be the same on both sides, and both public keys are included (RFC 7748 6.1).
        Exactly one side is ``first``, which determines the secret of each direction.

        :raises RemoteProtocolError: ``peer_public`` is not a key, or gives everybody the same secret.
        """
        try:
            private = X25519PrivateKey.from_private_bytes(self._token)
            shared = private.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:
            raise RemoteProtocolError("the peer's public key cannot be used") from None
        publics = self.public + peer_public if first else peer_public + self.public
        derived = HKDF(SHA256(), 2 * KEY_BYTES, salt, _LABEL + publics + context).derive(shared)
        ahead, back = derived[:KEY_BYTES], derived[KEY_BYTES:]
        return Secrets(ahead, back) if first else Secrets(back, ahead)
