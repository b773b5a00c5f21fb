"""Undecided filters, and what is left of the work that a user's filters may do (SPEC B-01, U-02)."""

from __future__ import annotations

import msgspec


class Undecided(msgspec.Struct, frozen=True):
    """A filter that was not evaluated for an event: its ``units`` of work exceed ``bound``."""

    bound: str
    units: int


class FilterAccount(msgspec.Struct):
    """Units that a user has left: in total at ``at_us``, and for the event of this turn."""

    units: float
    at_us: int
    turn: int = -1
    for_event: int = 0
