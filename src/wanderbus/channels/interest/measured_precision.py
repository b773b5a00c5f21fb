"""Bound on precision of adaptive merging, held by what is measured where events arrive (SPEC B-08, S-04).

Merging estimates precision from the filters alone, and real events may be worse. If too many of the events that arrive
match no local filter, the estimate has to be stricter, up to perfect merging; after a long time well above the bound it
is relaxed again, each time later, so that it does not alternate.
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 64
"""Number of events of one measurement."""

RELAX_WINDOWS: Final = 16
"""Number of measurements in a row well above the bound until the estimate is relaxed for the first time."""

STRICTER_MAX: Final = 4
"""Number of times that the estimate is made stricter until merging is perfect."""


class MeasuredPrecision:
    """Counts of the events of one subject, and the estimated precision to merge with."""

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._strictness = 0
        self._events = 0
        self._matched = 0
        self._good = 0
        self._relax_windows = RELAX_WINDOWS

    @property
    def estimate(self) -> float:
        """Return the estimated precision that merging is to keep."""
        if self._strictness == STRICTER_MAX:
            return 1.0
        return 1.0 - (1.0 - self._bound) * 0.5**self._strictness

    def count(self, *, matched: bool) -> bool:
        """Count an event that arrived, and whether a local filter matched it; return whether the estimate changed."""
        self._events += 1
        self._matched += matched
        if self._events < WINDOW:
            return False
        precision = self._matched / self._events
        self._events = self._matched = 0
        if precision < self._bound:
            return self._tighten()
        if precision < (1.0 + self._bound) / 2 or not self._strictness:
            self._good = 0
            return False
        self._good += 1
        if self._good < self._relax_windows:
            return False
        self._good = 0
        self._relax_windows *= 2
        self._strictness -= 1
        return True

    def _tighten(self) -> bool:
        self._good = 0
        if self._strictness == STRICTER_MAX:
            return False
        self._strictness += 1
        return True
