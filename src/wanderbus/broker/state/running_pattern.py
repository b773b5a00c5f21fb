"""Pattern of a subscription with the state of its automaton (SPEC T-07)."""

from __future__ import annotations

import msgspec

from wanderbus.patterns import Pattern, State
from wanderbus.patterns.state import BEFORE_ALL_US


class RunningPattern(msgspec.Struct):
    """A pattern at work for one subscription."""

    owner: str
    pattern: Pattern
    state: State
    latest_us: int = BEFORE_ALL_US
    kept: int = 0

    @property
    def goes_by_receipt(self) -> bool:
        """Return whether the time of an event is that of its receipt."""
        return self.pattern.declaration.time_source == "receipt"

    def watermark_us(self, now_us: int) -> int:
        """Return the time below which all events have come, by the broker's clock ``now_us``."""
        return self.pattern.watermark_us(now_us if self.goes_by_receipt else self.latest_us)

    @property
    def due_us(self) -> int | None:
        """Return the time of the broker's clock from which on there is something to match, None if there is nothing."""
        due_us = self.state.due_us
        if self.goes_by_receipt:
            return due_us + self.pattern.lateness_us + 1 if self.state.keys else None
        return 0 if self.watermark_us(0) > due_us else None
