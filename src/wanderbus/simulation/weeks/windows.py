"""Meaning of restrictions, written differently from the broker: slow, and easy to verify (SPEC H)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from wanderbus.broker.restrictions.restriction_kinds import Asked
from wanderbus.event import Event
from wanderbus.subscription import Custom, Daily, Frequency, Interval, Restriction

LOTS: Final = "lots"
"""A kind of restriction that the operator added: only prices that are multiples of ``of`` (SPEC H-10)."""


def are_lots(parameters: Mapping[str, Any], asked: Asked) -> bool:
    """Decide for the broker; ``KeyError`` for an event without a price, which counts as no."""
    price: int = asked.event.attributes["Price"]
    return price % int(parameters["of"]) == 0


def is_open(window: Interval | Daily, instant_us: int) -> bool:
    """Return whether ``window`` allows notifications at ``instant_us`` of the wall clock."""
    if isinstance(window, Interval):
        return window.start_us <= instant_us and not instant_us >= window.end_us
    shown = datetime.fromtimestamp(instant_us // 1_000_000, UTC).astimezone(ZoneInfo(window.zone or "UTC"))
    return _start_weekday(window, shown.replace(tzinfo=None)) in (window.weekdays or range(1, 8))


def _start_weekday(window: Daily, shown: datetime) -> int | None:
    """Return the weekday on which the window began that is open at this local time; None if none is.

    The later of two counts: the last time that the clock showed its start, and the last time that it showed its end.
    """
    since_start, since_end = (_since(shown, hands) for hands in (window.start, window.end))
    return (shown - since_start).isoweekday() if since_start < since_end else None


def _since(shown: datetime, hands: str) -> timedelta:
    """Return the time since the clock last showed ``hands``."""
    hour, minute, second = (int(part) for part in (hands + ":00").split(":")[:3])
    then = shown.replace(hour=hour, minute=minute, second=second)
    return (shown - then) % timedelta(days=1)


def forbidding(
    restrictions: Sequence[Restriction],
    event: Event,
    *,
    at_us: int,
    wall_us: int,
    last_us: int | None,
    away: bool,
) -> int | None:
    """Return the index of the one of the ``restrictions`` that forbids a notification, None if all that apply allow it.

    ``at_us`` is by the broker's clock, ``wall_us`` the wall clock as read, ``last_us`` the last notification.
    """
    applying = [(place, r) for place, r in enumerate(restrictions) if away or r.when == "always"]
    windows = [r for _, r in applying if isinstance(r, Interval | Daily)]
    first_window = windows[0] if windows else None
    for place, restriction in applying:
        if isinstance(restriction, Frequency):
            if last_us is not None and at_us - last_us < restriction.period_s * 1e6:
                return place
        elif isinstance(restriction, Custom):
            if event["Price"] not in {n * int(restriction.parameters["of"]) for n in range(100)}:
                return place
        elif restriction is first_window and not any(is_open(window, wall_us) for window in windows):
            return place
    return None
