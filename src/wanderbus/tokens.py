"""Token buckets: for limits on input from others, and for the rate of output (SPEC G-22, U-03)."""

from __future__ import annotations

from typing import Final

SLICE_S: Final = 0.005
"""Length of a slice: its tokens may be used at once. Other work waits no longer than one slice takes, which at 2,000
a second is a quarter of a millisecond."""

_ROUNDING: Final = 1e-6
"""Part of a token that may be missing: who waits until a token is due finds it."""


class TokenBucket:
    """A bucket of at most ``capacity`` tokens that starts full and refills at ``per_s``."""

    __slots__ = ("_at", "_capacity", "_held", "_per_s")

    def __init__(self, per_s: float, capacity: float) -> None:
        self._per_s = per_s
        self._capacity = capacity
        self._held = capacity
        self._at: float | None = None

    def take(self, now: float, count: float = 1.0) -> bool:
        """Take ``count`` tokens if they are available, or all tokens of a full bucket of smaller capacity."""
        self._fill(now)
        if self._held < min(count, self._capacity) - _ROUNDING:
            return False
        self._held = max(0.0, self._held - count)
        return True

    def wait_s(self, now: float) -> float:
        """Return the seconds until there is a token, 0 if there is one."""
        self._fill(now)
        return max(0.0, (1.0 - self._held) / self._per_s)

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full, as when it was created."""
        self._fill(now)
        return self._held >= self._capacity

    def full_at(self) -> float:
        """Return the time when the bucket is full if no token is taken until then; 0 before its first use."""
        return 0.0 if self._at is None else self._at + (self._capacity - self._held) / self._per_s

    def _fill(self, now: float) -> None:
        passed_s = 0.0 if self._at is None else max(0.0, now - self._at)
        self._held = min(self._capacity, self._held + passed_s * self._per_s)
        self._at = now


def bucket_of_slices(per_s: float) -> TokenBucket:
    """Return a bucket that permits ``per_s`` on average: the tokens of a slice at once, but at least one."""
    return TokenBucket(per_s, max(1.0, per_s * SLICE_S))
