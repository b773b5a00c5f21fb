"""Time for which this device was suspended; a monotonic clock stands still then."""

from __future__ import annotations

import time
from typing import Final

_RESOLUTION_S: Final = 0.05
"""A shorter suspension counts as none: the two clocks are not read at the same moment."""

_HAS_BOOT_CLOCK: Final = hasattr(time, "CLOCK_BOOTTIME")

_last_s = 0.0


def suspended_s() -> float:
    """Return the seconds for which the device was suspended since it was booted; they never fall.

    Returns 0 on systems without a clock that runs during a suspension.
    """
    global _last_s
    if _HAS_BOOT_CLOCK:
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        if now_s > _last_s + _RESOLUTION_S:
            _last_s = now_s
    return _last_s
