"""Users of the original ECI: each user is an address, which must prove that it receives datagrams (SPEC A-09, X36).

The broker answers an attachment with a challenge, which only the owner of the source address receives. It accepts the
attachment once it arrives with that challenge in front. Until then the broker stores nothing, and a challenge is
shorter than the datagram that it answers, so a forged source address cannot amplify traffic to its owner.

The first byte of a challenge cannot begin a MessagePack value, so a challenge cannot be mistaken for a message.
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
"""Least validity of a challenge; twice as long at most."""


class AddressChallenges:
    """Makes and verifies challenges by a secret ``key``, without storing them."""

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
    """Return whether ``datagram`` begins like a challenge, and so is not a plain message."""
    return datagram.startswith(_MARK)


def is_challenge(datagram: bytes) -> bool:
    """Return whether ``datagram`` is a challenge and nothing else."""
    return len(datagram) == _CHALLENGE_BYTES and has_challenge(datagram)


def user_at(address: Address) -> str:
    """Return the user name of an address, ``eci:host:port``; no SIP user has such a name."""
    return f"{SCHEME}{shown(address)}"


def address_of(user: str) -> Address | None:
    """Return the address that :func:`user_at` made ``user`` of; None for a SIP user."""
    if not user.startswith(SCHEME):
        return None
    host, _, port = user.removeprefix(SCHEME).rpartition(":")
    return host.strip("[]"), int(port)
