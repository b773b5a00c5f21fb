"""The operating system's randomness and clocks, which machines may not use directly."""

from __future__ import annotations

import random
import secrets
import time

_system = random.SystemRandom()


class SystemRandom:
    """A :class:`~wanderbus.machine.RandomSource` with unpredictable values."""

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` unpredictable bytes."""
        return secrets.token_bytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` up to ``high``."""
        return _system.uniform(low, high)


def wall_us() -> int:
    """Return the wall clock in microseconds since the Unix epoch."""
    return time.time_ns() // 1_000
