"""Path MTU discovery of a connection: black holes, and the search for what passes (RFC 8899, RFC 4821 7).

::

    whole ──a long packet is lost three times, later ones arrive──▶ half ──probe acknowledged──▶ larger ──▶ whole
                                                                     ▲                             │
                                                                     └──── black hole again ───────┘

A connection begins with whole datagrams, since nearly every path carries them. Some drop longer packets without a word.
The size is then halved, so that a frame that was sent in one packet fits two, and probes search upward.
"""

from __future__ import annotations

from typing import Final

LOSSES_MAX: Final = 3
"""Losses of one packet, or of one probe, that show that its size does not pass (MAX_PROBES of RFC 8899 5.1.2)."""

RAISE_S: Final = 600.0
"""Time after a search until the next one, seconds (PMTU_RAISE_TIMER of RFC 8899 5.1.1)."""

_CLOSE_BYTES: Final = 32
"""Difference at which the search ends."""


class PathMtu:
    """Largest number of frame bytes that a packet may have now, between half of ``whole_bytes`` and all of them.

    ``header_bytes`` are those that a frame that is divided in two has twice.
    """

    __slots__ = ("_high_bytes", "_losses", "_next_at", "half_bytes", "size_bytes", "whole_bytes")

    def __init__(self, whole_bytes: int, header_bytes: int) -> None:
        self.whole_bytes = whole_bytes
        self.half_bytes = header_bytes + -(-(whole_bytes - header_bytes) // 2)
        """Size that is assumed to pass."""
        self.size_bytes = whole_bytes
        """Size that packets may have now."""
        self._high_bytes = whole_bytes + 1
        """Smallest size that is known, or assumed, not to pass."""
        self._losses = 0
        self._next_at = 0.0

    def fall_back(self, now: float) -> None:
        """Halve the size: long packets do not arrive. Search from the next round trip on."""
        self.size_bytes = self.half_bytes
        self._high_bytes = self.whole_bytes
        self._losses = 0
        self._next_at = now

    def restart(self, now: float) -> None:
        """Search again: the path has changed."""
        self._high_bytes = self.whole_bytes + 1
        self._losses = 0
        self._next_at = now

    def next_probe_bytes(self, now: float) -> int | None:
        """Return the size to probe now; None if there is none."""
        if self.size_bytes == self.whole_bytes or now < self._next_at:
            return None
        if self._high_bytes - self.size_bytes <= _CLOSE_BYTES:
            self._high_bytes = self.whole_bytes + 1
            self._next_at = now + RAISE_S
            return None
        if self._high_bytes > self.whole_bytes:
            return self.whole_bytes
        return (self.size_bytes + self._high_bytes) // 2

    def confirmed(self, probe_bytes: int) -> None:
        """Use a size whose probe was acknowledged."""
        self.size_bytes = max(self.size_bytes, probe_bytes)
        self._losses = 0

    def lost(self, probe_bytes: int) -> None:
        """Record that a probe was lost."""
        self._losses += 1
        if self._losses >= LOSSES_MAX:
            self._high_bytes = min(self._high_bytes, probe_bytes)
            self._losses = 0
