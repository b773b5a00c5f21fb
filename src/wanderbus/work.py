"""Counted work of a computation whose input somebody else chooses, and the bound on it (SPEC U-02).

Work is counted, not timed, so every machine, a simulation and the replay of a log decide alike. One unit is about 10 ns
on the reference machine. What a user may do over time is a bucket of units, :class:`wanderbus.tokens.TokenBucket`.
"""

from __future__ import annotations

import math
from typing import Final

from wanderbus.errors import LimitExceeded


class WorkExceeded(LimitExceeded):
    """A computation has used up its units of work before its end."""


class WorkBudget:
    """Units of work that one computation has ``done``, and the ``most`` that it may do.

    ``limit`` is the name of the bound, as refusals and gaps give it.
    """

    __slots__ = ("done", "limit", "most")

    def __init__(self, most: float = math.inf, limit: str = "") -> None:
        """Create it without work done; without ``most``, work is counted and not bounded."""
        self.most = most
        self.limit = limit
        self.done = 0

    @property
    def left(self) -> float:
        """Units that may still be done; never below 0."""
        return max(0, self.most - self.done)

    def spend(self, units: int = 1) -> None:
        """Count ``units`` that are done next; raise :class:`WorkExceeded` if they are more than are left."""
        self.done += units
        if self.done > self.most:
            raise WorkExceeded(f"more than {self.most:,.0f} units of work are needed", self.limit)


UNCOUNTED: Final = WorkBudget()
"""Budget of computations whose input is trusted, or bounded otherwise."""
