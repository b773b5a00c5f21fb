"""Detection of a new peer address after NAT rebinding, validated by a challenge (RFC 9000 8.2 and 9).

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
"""Challenges sent to one address before it is abandoned. With back-off they take longer than an unmeasured round trip;
RFC 9000 8.2.4 waits three timeouts, of a second each if nothing is known."""


class PathValidation:
    """Validation of one address at a time, with never more bytes to it than came from it (RFC 9000 8.1)."""

    __slots__ = ("_credit_bytes", "_data", "_rival", "candidate", "due_at", "generation", "tries")

    def __init__(self) -> None:
        self.candidate: Address | None = None
        """Address that is being challenged."""
        self.due_at: float | None = None
        """Time of the next challenge, or of abandoning the address."""
        self.generation: int | None = None
        """Generation of the peer at the candidate, if signalling has named both; None for one found by packets."""
        self.tries = 0
        """Number of challenges sent to it."""
        self._data = bytes(CHALLENGE_BYTES)
        self._credit_bytes = 0
        self._rival: Address | None = None

    def prefers(self, source: Address) -> bool:
        """Return whether to make ``source`` the candidate: the newest packet came from there.

        It replaces another candidate if the newest packet came from there twice in a row. A single packet that an
        attacker replays from elsewhere, and that overtakes the genuine one, must not prevent the discovery of the
        peer.
        """
        preferred = self.candidate is None or self._rival == source != self.candidate
        self._rival = source
        return preferred

    def start(self, candidate: Address, data: bytes, now: float) -> None:
        """Make ``candidate`` the candidate, to be challenged with ``data``."""
        self.candidate, self._data, self.due_at = candidate, data, now
        self._credit_bytes = self.tries = 0
        self.generation = None

    def start_signalled(self, candidate: Address, data: bytes, now: float, generation: int, size_bytes: int) -> None:
        """Make ``candidate`` the candidate, which an authenticated party has named; challenges have ``size_bytes``.

        All challenges together are shorter than the request that named it, so they amplify nothing.
        """
        self.start(candidate, data, now)
        self.generation = generation
        self._credit_bytes = CHALLENGES_MAX * size_bytes

    def stop(self) -> None:
        """Discard the candidate."""
        self.candidate = self.due_at = None

    def received(self, source: Address, size_bytes: int) -> None:
        """Record that an authentic packet of ``size_bytes`` came from ``source``."""
        if source == self.candidate:
            self._credit_bytes += size_bytes

    def answered(self, destination: Address, size_bytes: int) -> None:
        """Record that a RESPONSE of ``size_bytes`` went to ``destination``, the source of a CHALLENGE."""
        if destination == self.candidate:
            self._credit_bytes -= size_bytes

    def next_challenge(self, size_bytes: int, now: float, timeout_s: float) -> bytes | None:
        """Return the data of a challenge that is due now; the packet will have ``size_bytes``.

        An attempt is skipped if too few bytes have come from the candidate.
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
        """Return whether a RESPONSE of ``data`` from ``source`` validates the candidate."""
        return source == self.candidate and data == self._data
