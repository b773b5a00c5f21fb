"""Bounds of the state of one key; the rest is refused and counted in :class:`wanderbus.patterns.Counts`."""

from __future__ import annotations

from typing import Final, NamedTuple

PARTIAL_MATCHES_MAX: Final = 1_000
"""Partial matches of one key."""

EVENTS_WAITING_MAX: Final = 100_000
"""Events of one key that wait for the watermark."""

EVENTS_PER_MATCH_MAX: Final = 1_000
"""Events of one match."""

WORK_PER_EVENT_MAX: Final = 20_000_000
"""Units of work of about 10 ns for one event at its key: an event that would take more is left out."""


class Bounds(NamedTuple):
    """Bounds of one pattern."""

    partial_matches_max: int = PARTIAL_MATCHES_MAX
    events_waiting_max: int = EVENTS_WAITING_MAX
    events_per_match_max: int = EVENTS_PER_MATCH_MAX
    work_per_event_max: int = WORK_PER_EVENT_MAX
