"""The operating system's randomness and clocks, which machines may not use directly."""

from __future__ import annotations

import random
import secrets
import time
from typing import Final

_system = random.SystemRandom()

_SUSPENSION_S_MIN: Final = 0.05
"""A shorter suspension counts as none: the two clocks are not read at the same moment."""

_HAS_BOOT_CLOCK: Final = hasattr(time, "CLOCK_BOOTTIME")

_suspended_s = 0.0


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


def suspended_s() -> float:
    """Return the seconds for which the device was suspended since it was booted; they never fall.

    A monotonic clock stands still then. Returns 0 on systems without a clock that runs during a suspension.
    """
    global _suspended_s
    if _HAS_BOOT_CLOCK:
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        if now_s > _suspended_s + _SUSPENSION_S_MIN:
            _suspended_s = now_s
    return _suspended_s
