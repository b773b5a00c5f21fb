"""How fast something goes out: a bucket of tokens, emptied in slices (SPEC G-22, U-03)."""

from __future__ import annotations

from typing import Final

SLICE_S: Final = 0.005
"""What has gathered in this time goes out at once: others wait no longer than that takes, which for 2,000 a second is
a quarter of a millisecond."""


class TokenBucket:
    """Allows ``rate_per_s`` a second on average, and a slice of that at once; full at second ``now``."""

    def __init__(self, rate_per_s: float, now: float) -> None:
        self._rate_per_s = rate_per_s
        self._most = max(1.0, rate_per_s * SLICE_S)
        self._tokens = self._most
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token at monotonic second ``now`` if there is one."""
        self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._rate_per_s)
        self._at = now
        if self._tokens < 1 - 1e-6:
            return False
        self._tokens -= 1
        return True

    def full_at(self) -> float:
        """Return when the next whole slice is there, if none is taken until then."""
        return self._at + (self._most - self._tokens) / self._rate_per_s
