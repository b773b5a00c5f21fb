"""Restrictions of the questions, and the slow evaluator of what they let through (SPEC H)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from wanderbus.api.extending import Kind
from wanderbus.event import Event
from wanderbus.subscription import Custom, Daily, Frequency, Interval, Restriction

RARELY: Final = Frequency(3_600.0)
RARELY_AWAY: Final = Frequency(3_600.0, "away")
OVER: Final = Interval(0, 1_000_000)
FEW: Final = Custom("few", {"most": 2})
"""Restriction of a kind of the operator to events with at most two attributes."""

OPERATORS: Final = {"few": Kind(lambda parameters, asked: len(asked.event.attributes) <= parameters["most"])}
"""Kinds of restriction of every server."""


def day_and_night() -> tuple[Daily, Daily]:
    """Return a daily window that is open now and one that is closed, both for hours: it is noon in their zone."""
    zone = f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"  # these names count hours west of Greenwich
    return Daily("06:00", "18:00", zone), Daily("18:00", "06:00", zone)


def lets_through(submitted: Sequence[Restriction], event: Event, *, is_first: bool, is_away: bool) -> bool:
    """Return whether a notification of ``event`` is generated; all events of a case come within a short time."""
    restrictions = [each for each in submitted if is_away or each.when == "always"]
    windows = [each for each in restrictions if isinstance(each, Daily | Interval)]
    return (not windows or any(map(_is_open, windows))) and all(
        is_first if isinstance(each, Frequency) else len(event.attributes) <= 2
        for each in restrictions
        if each not in windows
    )


def _is_open(window: Daily | Interval) -> bool:
    if isinstance(window, Daily):
        return window.start < "12" < window.end
    return window.end_us > _LONG_AGO_US


_LONG_AGO_US: Final = 1_000_000_000_000_000
"""An instant before every run, in 2001: intervals of the questions end before it, or do not end."""
