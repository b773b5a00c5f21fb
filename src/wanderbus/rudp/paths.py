"""Where the peer may have gone without saying so: NAT rebinding, believed after a challenge (RFC 9000 8.2 and 9).

::

    no candidate ──newest packet, from elsewhere, of the same generation──▶ challenged ──RESPONSE from there──▶ moved
         ▲                                                                     │
         └──no RESPONSE in time, or the newest packet comes from the old address
"""

from __future__ import annotations

from typing import Final

from wanderbus.machine import Address
from wanderbus.rudp.frames import CHALLENGE_BYTES

CHALLENGES_MAX: Final = 5
"""Challenges sent to one address before it is given up. With back-off that is longer than a round trip that was never
measured may take; RFC 9000 8.2.4 waits three timeouts, of a second each where nothing is known."""


class PathValidation:
    """At most one address at a time, and never more bytes to it than came from it (RFC 9000 8.1)."""

    __slots__ = ("_credit_bytes", "_data", "_rival", "candidate", "due_at", "tries")

    def __init__(self) -> None:
        self.candidate: Address | None = None
        """The address that is being challenged."""
        self.due_at: float | None = None
        """When to challenge it again, or to give up."""
        self.tries = 0
        """How often it was challenged."""
        self._data = bytes(CHALLENGE_BYTES)
        self._credit_bytes = 0
        self._rival: Address | None = None

    def prefers(self, source: Address) -> bool:
        """Tell whether to take up ``source``, where the newest packet came from, elsewhere than from where we send.

        It takes the candidate's place if the newest packet came from there twice in a row: a single packet that
        somebody repeated from elsewhere, and that overtook the genuine one, must not keep the peer from being found.
        """
        preferred = self.candidate is None or self._rival == source != self.candidate
        self._rival = source
        return preferred

    def start(self, candidate: Address, data: bytes, now: float) -> None:
        """Take up ``candidate``, to be challenged with ``data``."""
        self.candidate, self._data, self.due_at = candidate, data, now
        self._credit_bytes = self.tries = 0

    def stop(self) -> None:
        """Have no candidate any more."""
        self.candidate = self.due_at = None

    def heard(self, source: Address, size_bytes: int) -> None:
        """Note that a genuine packet of ``size_bytes`` came from ``source``."""
        if source == self.candidate:
            self._credit_bytes += size_bytes

    def answered(self, destination: Address, size_bytes: int) -> None:
        """Note that a RESPONSE of ``size_bytes`` went to ``destination``, where somebody sent a CHALLENGE from."""
        if destination == self.candidate:
            self._credit_bytes -= size_bytes

    def next_challenge(self, size_bytes: int, now: float, timeout_s: float) -> bytes | None:
        """Return what to challenge the candidate with now, if it is time; the packet will have ``size_bytes``.

        A try for which too little has come from there is passed over.
        """
        if self.due_at is None or now < self.due_at:
            return None
        if self.tries >= CHALLENGES_MAX:
            self.stop()
            return None
        self.tries += 1
        self.due_at = now + timeout_s
        if self._credit_bytes < size_bytes:
            return None
        self._credit_bytes -= size_bytes
        return self._data

    def answers(self, source: Address, data: bytes) -> bool:
        """Tell whether a RESPONSE of ``data`` from ``source`` validates the candidate."""
        return source == self.candidate and data == self._data
