"""One TCP connection, and the handshake that authenticates it for a connection.

::

    active  ── HELLO ──▶  passive      ids, generation, nonce
            ◀─ WELCOME ──              expected number, grant, nonce, proof     (or RESET: the pair is unknown)
            ── PROOF, DATA... ──▶      expected number, grant, proof

A proof is a MAC with the secret of the pair. It covers both nonces, so it cannot be replayed, and the fingerprint of
the passive side's certificate, so it cannot be forwarded from one TLS connection into another (RFC 8122 5).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from wanderbus.machine import CloseStream, SendOnStream
from wanderbus.tcp.frames import FrameReader, encode_proof, encode_welcome
from wanderbus.tcp.interface import Phase, TcpTarget
from wanderbus.transport import Outputs

if TYPE_CHECKING:
    from wanderbus.tcp.connection import Connection

_PASSIVE: Final = b"wanderbus tcp passive"
_ACTIVE: Final = b"wanderbus tcp active"


class TcpStream:
    """A TCP connection; ``number`` is the driver's, None until data arrives on a connection opened by this side."""

    def __init__(self, socket: str, target: TcpTarget, number: int | None = None) -> None:
        self.target = target
        self.number = number
        self.phase = Phase.CALLING if number is None else Phase.ACCEPTED
        self.reader = FrameReader()
        self.connection: Connection | None = None
        """Connection that uses it or, if this side opens it, will use it."""
        self.hello = b""
        """HELLO frame, which every proof covers."""
        self.welcome = b""
        """WELCOME frame, which the proof of the active side covers."""
        self.local_id = self.remote_id = self.generation = 0
        """Content of the peer's HELLO: our id, its id, its generation."""
        self.watched = False
        """True if the timer for its proof is running."""
        self._socket = socket

    def is_over(self) -> bool:
        """Return whether further input is ignored."""
        return self.phase is Phase.OVER

    def send(self, data: bytes) -> SendOnStream:
        """Return the output that sends ``data``, which opens a connection of ours the first time."""
        return SendOnStream(self._socket, self.target, data, self.number, reopen=self.number is None)

    def close(self, outputs: Outputs) -> None:
        """Ignore further input and close; a connection of ours without a number yet is closed when it gets one."""
        self.phase = Phase.OVER
        self.connection = None
        if self.number is not None:
            outputs.append(CloseStream(self._socket, self.number))


def make_welcome(secret: bytes, hello: bytes, nonce: bytes, expected: int, grant: int, fingerprint: bytes) -> bytes:
    """Return the WELCOME frame to ``hello``, from the side that shows the certificate of ``fingerprint``."""
    bare = encode_welcome(expected, grant, nonce, b"")
    return encode_welcome(expected, grant, nonce, _proof(secret, _PASSIVE, hello, bare, fingerprint))


def make_proof(secret: bytes, hello: bytes, welcome: bytes, expected: int, grant: int, fingerprint: bytes) -> bytes:
    """Return the PROOF frame that follows ``welcome``."""
    bare = encode_proof(expected, grant, b"")
    return encode_proof(expected, grant, _proof(secret, _ACTIVE, hello, welcome, bare, fingerprint))


def is_same(made: bytes, received: bytes) -> bool:
    """Compare two frames with a proof in constant time."""
    return hmac.compare_digest(made, received)


def _proof(secret: bytes, role: bytes, *covered: bytes) -> bytes:
    return hmac.digest(secret, b"".join([role, *covered]), "sha256")
