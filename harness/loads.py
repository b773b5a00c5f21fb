"""Loads of measurements: that they last as long as what is measured, and that there is none before."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

QUIET_S: Final = 1.0
IDLE_SHARE: Final = 0.05
"""Share of a processor below which a server counts as idle."""

IDLE_S_MAX: Final = 60.0


class LoadEndedError(RuntimeError):
    """A load ended before what was measured beside it; the text is one line, and says how much too early."""


def wait_until_idle(processor_s: Callable[[], float], *, share: float = IDLE_SHARE) -> None:
    """Wait until a server uses less than ``share`` of a processor for a second.

    ``processor_s`` returns its processor time. Raises RuntimeError if it is not idle within :data:`IDLE_S_MAX`.
    """
    until_s, used_s = time.monotonic() + IDLE_S_MAX, processor_s()
    while time.monotonic() < until_s:
        time.sleep(QUIET_S)
        before_s, used_s = used_s, processor_s()
        if used_s - before_s < share * QUIET_S:
            return
    raise RuntimeError(f"the server is not idle after {IDLE_S_MAX:g} s")
