"""Sealing of packets: AES-128-GCM with the packet number as nonce, and periodic key changes (RFC 9001 5.3 and 6).

Each direction has a chain of secrets of its own, one for each epoch; each gives a key and an IV, and the next secret::

    secret 0 ──ku──▶ secret 1 ──ku──▶ secret 2 ...
       ├─key, iv        ├─key, iv

The sender starts the next epoch; the receiver follows when it has authenticated a packet of that epoch. Forged packets
change the epoch of neither.

A cipher takes some kilobytes, so an idle connection has none: it is created again from the key, in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from wanderbus.rudp.frames import HEADER_BYTES
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.keys import KEY_BYTES

SEAL_BYTES: Final = 16
"""Bytes that sealing adds to a packet: the authentication tag."""

SEALERS_AWAKE_MAX: Final = 512
"""Maximum number of connections of one endpoint that keep their ciphers in memory, at 5 KB each."""

_LABEL: Final = b"wanderbus rudp "
_AES_KEY_BYTES: Final = 16
_IV_BYTES: Final = 12

_Cipher = Callable[[bytes, bytes, bytes], bytes]

_Opener = tuple[_Cipher, int]
"""Cipher that opens the packets of one epoch, and the IV as a number."""


class Awake:
    """Sealers with ciphers in memory; at the maximum, the sealer that created its ciphers first releases them."""

    def __init__(self, sealers_max: int = SEALERS_AWAKE_MAX) -> None:
        self._sealers_max = sealers_max
        self._sealers: dict[Sealer, None] = {}

    def __len__(self) -> int:
        return len(self._sealers)

    def add(self, sealer: Sealer) -> None:
        """Add ``sealer``, which has created its ciphers."""
        self._sealers[sealer] = None
        if len(self._sealers) > self._sealers_max:
            next(iter(self._sealers)).rest()

    def discard(self, sealer: Sealer) -> None:
        """Remove ``sealer``; an unknown one is ignored."""
        self._sealers.pop(sealer, None)


class Sealer:
    """Seals the packets that one side of a connection sends and opens those it receives.

    ``rekey_packets`` is the number of packets after which a key is replaced; at most 2**23 are safe under one (RFC 9001
    6.6). Before a sealer is discarded it must :meth:`rest`, or ``awake`` would keep its keys.
    """

    __slots__ = (
        "_awake",
        "_earlier",
        "_earlier_key",
        "_encrypt",
        "_epoch_confirmed",
        "_epoch_packets",
        "_first_number",
        "_iv",
        "_later",
        "_present",
        "_receiving_epoch",
        "_receiving_key",
        "_receiving_secret",
        "_rekey_packets",
        "_sending_key",
        "_sending_secret",
        "epoch",
    )

    def __init__(self, secrets: Secrets, rekey_packets: int, awake: Awake | None = None) -> None:
        self.epoch = 0
        """Epoch of the key that seals now; the packet's header has its low 8 bits."""
        self._awake = Awake() if awake is None else awake
        self._rekey_packets = rekey_packets
        self._encrypt: _Cipher | None = None
        self._sending_secret = secrets.sending
        self._start_epoch(0)
        self._receiving_secret = secrets.receiving
        self._receiving_key = _key(secrets.receiving)
        self._receiving_epoch = 0
        self._earlier_key: bytes | None = None
        self._earlier: _Opener | None = None
        self._present: _Opener | None = None
        self._later: _Opener | None = None

    def rest(self) -> None:
        """Release the ciphers until a packet is sealed or opened."""
        self._encrypt = self._earlier = self._present = self._later = None
        self._awake.discard(self)

    def _wake(self) -> tuple[_Cipher, _Opener]:
        self._encrypt = AESGCM(self._sending_key[:_AES_KEY_BYTES]).encrypt
        self._present = _opener(self._receiving_key)
        self._awake.add(self)
        return self._encrypt, self._present

    def seal(self, header: bytes, number: int, frames: bytes) -> bytes:
        """Return the packet: ``header``, which contains :attr:`epoch` and ``number``, and the sealed ``frames``.

        ``number`` must be higher than any before: no two packets may have the same (RFC 9001 5.3).
        """
        encrypt = self._encrypt or self._wake()[0]
        packet = header + encrypt((self._iv ^ number).to_bytes(_IV_BYTES, "big"), frames, header)
        self._epoch_packets += 1
        if self._epoch_packets >= self._rekey_packets and self._epoch_confirmed:
            self._sending_secret = _next_secret(self._sending_secret)
            self.epoch += 1
            self._start_epoch(number + 1)
        return packet

    def confirmed(self, number: int) -> None:
        """Record that the peer has packet ``number``: it has reached the current epoch, so the next one may begin."""
        if number >= self._first_number:
            self._epoch_confirmed = True

    def open(self, packet: bytes, number: int, epoch: int) -> bytes | None:
        """Return the frames of ``packet``, whose header has ``number`` and ``epoch``; None if it is not authentic.

        Also None for an epoch before the previous one; the peer repeats the content of such a packet.
        """
        opener = self._present or self._wake()[1]
        ahead = (epoch - self._receiving_epoch) & 0xFF
        if not ahead:
            pass
        elif ahead == 1:
            opener = self._later = self._later or _opener(_key(_next_secret(self._receiving_secret)))
        elif ahead == 0xFF and self._earlier_key is not None:
            opener = self._earlier = self._earlier or _opener(self._earlier_key)
        else:
            return None
        decrypt, iv = opener
        try:
            frames = decrypt((iv ^ number).to_bytes(_IV_BYTES, "big"), packet[HEADER_BYTES:], packet[:HEADER_BYTES])
        except InvalidTag:
            return None
        if ahead == 1:
            self._follow(opener)
        return frames

    def _start_epoch(self, first_number: int) -> None:
        self._sending_key = _key(self._sending_secret)
        self._iv = _iv(self._sending_key)
        if self._encrypt is not None:
            self._encrypt = AESGCM(self._sending_key[:_AES_KEY_BYTES]).encrypt
        self._first_number = first_number
        self._epoch_packets = 0
        self._epoch_confirmed = False

    def _follow(self, opener: _Opener) -> None:
        """Make the key that has just opened a packet the current one; keep the previous key for late packets."""
        self._earlier_key = self._receiving_key
        self._receiving_secret = _next_secret(self._receiving_secret)
        self._receiving_key = _key(self._receiving_secret)
        self._receiving_epoch += 1
        self._earlier, self._present, self._later = self._present, opener, None


def _opener(key: bytes) -> _Opener:
    return AESGCM(key[:_AES_KEY_BYTES]).decrypt, _iv(key)


def _key(secret: bytes) -> bytes:
    """Return key and IV of an epoch, concatenated."""
    return _expand(secret, b"key", _AES_KEY_BYTES) + _expand(secret, b"iv", _IV_BYTES)


def _iv(key: bytes) -> int:
    return int.from_bytes(key[_AES_KEY_BYTES:], "big")


def _next_secret(secret: bytes) -> bytes:
    return _expand(secret, b"ku", KEY_BYTES)


def _expand(secret: bytes, label: bytes, n_bytes: int) -> bytes:
    return HKDFExpand(SHA256(), n_bytes, _LABEL + label).derive(secret)
