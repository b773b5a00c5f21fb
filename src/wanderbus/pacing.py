"""Rate limit on output: a token bucket that refills in slices (SPEC G-22, U-03)."""

from __future__ import annotations

from typing import Final

SLICE_S: Final = 0.005
"""Length of a slice: its tokens may be used at once. Other work waits no longer than one slice takes, which at 2,000
a second is a quarter of a millisecond."""


class TokenBucket:
    """Permits ``rate_per_s`` a second on average, in slices; full at second ``now``."""

    def __init__(self, rate_per_s: float, now: float) -> None:
        self._rate_per_s = rate_per_s
        self._most = max(1.0, rate_per_s * SLICE_S)
        self._tokens = self._most
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token at monotonic second ``now`` if there is one; return whether there was."""
        self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._rate_per_s)
        self._at = now
        if self._tokens < 1 - 1e-6:
            return False
        self._tokens -= 1
        return True

    def full_at(self) -> float:
        """Return the time when the next slice is complete, provided that no token is taken until then."""
        return self._at + (self._most - self._tokens) / self._rate_per_s
