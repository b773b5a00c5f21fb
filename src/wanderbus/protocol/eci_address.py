"""Users of the original ECI: each is an address, and has to prove that it receives there (SPEC A-09, X36).

The broker answers an attachment with a challenge that only the true owner of the source address receives, and takes
the attachment once it comes with that challenge in front. The broker keeps nothing until then, and a challenge is
shorter than what asked for it, so that a forged source address has nothing sent to its owner but that.

The first byte of a challenge is no beginning of any MessagePack value, so it cannot be taken for a message.
"""

from __future__ import annotations

import hmac
from typing import Final

from wanderbus.machine import Address, shown

SCHEME: Final = "eci:"
"""Prefix of the users that are addresses."""

_MARK: Final = b"\xc1"
_MAC_BYTES: Final = 8
_CHALLENGE_BYTES: Final = len(_MARK) + _MAC_BYTES

VALID_S: Final = 30.0
"""A challenge is good for so long at least, and for twice as long at most."""


class Challenges:
    """Makes and recognises challenges by a secret ``key``; keeps none of them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, address: Address, asked: bytes, now: float) -> bytes | None:
        """Return the challenge for ``address``; None unless it is shorter than ``asked``, the datagram from there."""
        return self._for(address, int(now // VALID_S)) if len(asked) > _CHALLENGE_BYTES else None

    def proved(self, address: Address, datagram: bytes, now: float) -> bytes | None:
        """Return the message behind the challenge of ``datagram``; None if no valid challenge is in front."""
        given, period = datagram[:_CHALLENGE_BYTES], int(now // VALID_S)
        if any(hmac.compare_digest(given, self._for(address, each)) for each in (period, period - 1)):
            return datagram[_CHALLENGE_BYTES:]
        return None

    def _for(self, address: Address, period: int) -> bytes:
        text = f"{period} {shown(address)}"
        return _MARK + hmac.digest(self._key, text.encode(), "sha256")[:_MAC_BYTES]


def has_challenge(datagram: bytes) -> bool:
    """Tell whether ``datagram`` begins as a challenge does, and is no message itself."""
    return datagram.startswith(_MARK)


def is_challenge(datagram: bytes) -> bool:
    """Tell whether ``datagram`` is a challenge and nothing else."""
    return len(datagram) == _CHALLENGE_BYTES and has_challenge(datagram)


def user_at(address: Address) -> str:
    """Return the user that an address is, ``eci:host:port``; no SIP user has such a name."""
    return f"{SCHEME}{shown(address)}"
