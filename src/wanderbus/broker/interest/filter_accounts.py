"""Undecided filters, and what is left of the work that a user's filters or patterns may do (SPEC B-01, T-07, U-02)."""

from __future__ import annotations

import msgspec


class Undecided(msgspec.Struct, frozen=True):
    """A filter that was not evaluated for an event: its ``units`` of work exceed ``bound``."""

    bound: str
    units: int


class WorkAccount(msgspec.Struct):
    """Units of work that a user has left at ``at_us``; below 0 if the last work was more than was left."""

    units: float
    at_us: int

    def refill(self, now_us: int, per_s: float, most: float) -> None:
        """Add what has come since, at ``per_s`` units a second and up to ``most``."""
        if now_us != self.at_us:
            self.units = min(most, self.units + (now_us - self.at_us) * per_s / 1e6)
            self.at_us = now_us


class FilterAccount(WorkAccount):
    """Units that the filters of a user have left, in total and for the event of this turn."""

    turn: int = -1
    for_event: int = 0
    shares: int = 1
    """Users for whom the account is."""
