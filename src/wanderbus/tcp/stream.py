"""One TCP connection: a path that a connection may take, once each end has proved to the other whose it is.

::

    active  ── HELLO ──▶  passive      ids, generation, a nonce
            ◀─ WELCOME ──              where it stands, a nonce, its proof     (or RESET: the pair is unknown)
            ── PROOF, DATA... ──▶      where it stands, its proof

A proof is made with the secret of the pair, over both nonces, so it cannot be replayed, and over the fingerprint of
the passive side's certificate, so it cannot be passed on from one TLS connection into another (RFC 8122 5).
"""

from __future__ import annotations

import hmac
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from wanderbus.machine import CloseStream, Output, SendOnStream
from wanderbus.tcp.frames import FrameReader, encode_proof, encode_welcome
from wanderbus.tcp.interface import Target

if TYPE_CHECKING:
    from wanderbus.tcp.connection import Connection

_PASSIVE: Final = b"wanderbus tcp passive"
_ACTIVE: Final = b"wanderbus tcp active"


class Phase(Enum):
    """How far the two ends know each other."""

    ACCEPTED = auto()
    """The other side opened it; its HELLO is due."""
    PARKED = auto()
    """Its HELLO came before the connection was opened here."""
    WELCOMED = auto()
    """Its PROOF is due."""
    REFUSED = auto()
    """A RESET was sent; the other side closes."""
    CALLING = auto()
    """We opened it; the WELCOME is due."""
    PROVEN = auto()
    """It is, or was, the path of a connection."""
    OVER = auto()
    """What still comes is not read."""


class Stream:
    """A TCP connection; ``number`` is the driver's, None until something came on one that we opened."""

    def __init__(self, socket: str, target: Target, number: int | None = None) -> None:
        self.target = target
        self.number = number
        self.phase = Phase.CALLING if number is None else Phase.ACCEPTED
        self.reader = FrameReader()
        self.connection: Connection | None = None
        """Whose path it is or, opened by us, is to become."""
        self.hello = b""
        """The HELLO frame, which every proof covers."""
        self.welcome = b""
        """The WELCOME frame, which the proof of the active side covers."""
        self.local_id = self.remote_id = self.generation = 0
        """What the HELLO of the other side says: our id, its id, its generation."""
        self.watched = False
        """Whether the timer for its proof runs."""
        self._socket = socket

    def is_over(self) -> bool:
        """Whether what still comes is not read."""
        return self.phase is Phase.OVER

    def send(self, data: bytes) -> Output:
        """Return the request to send ``data``, which opens a connection of ours the first time."""
        return SendOnStream(self._socket, self.target, data, self.number, reopen=self.number is None)

    def close(self, outputs: list[Output]) -> None:
        """Read no more; one that we opened and that brought nothing yet is closed when it does."""
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
    """Compare two frames with a proof in a time that does not tell where they differ."""
    return hmac.compare_digest(made, received)


def _proof(secret: bytes, role: bytes, *covered: bytes) -> bytes:
    return hmac.digest(secret, b"".join([role, *covered]), "sha256")
