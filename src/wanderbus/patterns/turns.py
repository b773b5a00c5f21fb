"""Turns of a pattern's matching: as much work as its owner may do now, or as a record says was done (SPEC T-07, U-02).

Without a turn, everything below the watermark is matched at once. With one, matching stops where the turn ends, and the
next turn continues there: after ``State.steps`` steps, ``State.taken`` detections of which were taken. Steps are in
order of (time, key), so a replay stops at the same place.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from wanderbus.patterns.automaton import Seen
from wanderbus.patterns.costs import EMPTY_DETECTION

TOO_COSTLY: Final = "pattern_work_max"
"""Bound of the work for one event, as gaps name it."""

NO_ROOM: Final = "user_pattern_events_max"
"""Bound of what the patterns of a user keep, as gaps name it."""


class Turn:
    """Matching of at most ``units`` units of work, and at least one step.

    An event that would take more than ``event_max`` units by itself is left out, as if it matched no step, and so is
    one that comes while more than ``kept_max`` events are kept.
    """

    counts_work = True

    def __init__(self, units: float, event_max: float, kept_max: float) -> None:
        self.units = units
        """Units that are left; below 0 by the work of the last step."""
        self.left_out: list[tuple[Seen, str, int]] = []
        """Events that were left out, each with the bound and the value that exceeds it."""
        self._event_max = event_max
        self._kept_max = kept_max
        self._is_begun = False

    def may_step(self, steps: int) -> bool:
        """Return whether a step more may be done after ``steps`` steps."""
        may, self._is_begun = self.units > 0 or not self._is_begun, True
        return may

    def may_detect(self, taken: int) -> bool:
        """Return whether a detection more may be taken after ``taken`` ones."""
        return self.may_step(taken)

    def spend(self, units: int) -> None:
        """Count units of work."""
        self.units -= units

    def detect(self, units: int) -> None:
        """Count the work of a detection; its values are not evaluated beyond the bound of an event."""
        self.spend(units if units <= self._event_max else EMPTY_DETECTION.fixed)

    def takes(self, seen: Seen, units: int, kept: int) -> bool:
        """Return whether an event is taken that needs ``units`` of work, while ``kept`` events are kept."""
        if units <= self._event_max and kept <= self._kept_max:
            self.spend(units)
            return True
        self.spend(EMPTY_DETECTION.fixed)
        self.left_out.append((seen, NO_ROOM, kept) if units <= self._event_max else (seen, TOO_COSTLY, units))
        return False


class RecordedTurn(Turn):
    """The turn that a record describes, repeated: up to ``steps`` steps and ``taken`` detections, None for all.

    It evaluates nothing for the events whose offsets are ``left_out``.
    """

    counts_work = False

    def __init__(self, steps: int | None, taken: int | None, left_out: Container[int]) -> None:
        super().__init__(0, 0, 0)
        self._steps = steps
        self._taken = taken
        self._offsets = left_out

    def may_step(self, steps: int) -> bool:
        """Return whether the turn had a step more."""
        return self._steps is None or steps < self._steps

    def may_detect(self, taken: int) -> bool:
        """Return whether the turn took a detection more."""
        return self._taken is None or taken < self._taken

    def takes(self, seen: Seen, units: int, kept: int) -> bool:
        """Return whether the turn took an event."""
        return seen.offset not in self._offsets
