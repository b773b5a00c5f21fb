"""Check of the restrictions on generating notifications (SPEC H, X26 to X29).

**Clocks.** A frequency uses the broker's own clock, which never jumps. Windows use the wall clock as read when the
event arrived, so that correcting a wrong clock opens and closes them at once (DESIGN 5.8).

**Days of 23 and 25 hours.** A daily window is open while the local time of its zone is from ``start`` up to ``end``.
When clocks go forward, a window inside the skipped hour does not open on that day; one that begins in it opens, and one
that ends in it closes, when the clocks jump. When clocks go back, a window inside the repeated hour opens twice. The
part of a window after midnight belongs to the weekday before in the calendar, even if that day was skipped entirely
(Apia had no 30 December 2011).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_kinds import Asked
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.event import Event
from wanderbus.limits import RESTRICTIONS_MAX
from wanderbus.subscription import Custom, Daily, Frequency, Interval, Restriction

RESTRICTION_WORK: Final = 60
"""Units of work to check one restriction, about 10 ns each; a user may have thousands that one event asks for."""

_ZONES: Final = 1_024
"""More than there are names of zones, so that a user who names all of them does not empty the cache."""

_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)


def blocked_by(
    restrictions: Sequence[Restriction],
    *,
    now_us: int,
    received_us: int,
    last_us: int | None,
    away: bool,
    event: Event,
    kinds: CustomRestrictions,
) -> int | None:
    """Return the place of the first restriction that forbids a notification, or None if it may be generated.

    ``now_us`` is the broker's clock, ``received_us`` the wall clock as read, ``last_us`` the time of the subscription's
    last notification, ``away`` whether its owner is DISCONNECTED. Restrictions are checked in order, up to the first
    that forbids (SPEC H-03). One open window is enough (H-08): all windows that apply are checked together, at the
    place of the first.
    """
    windows_asked = False
    for place, restriction in enumerate(restrictions):
        if restriction.when == "away" and not away:
            continue
        match restriction:
            case Frequency(period_s=period_s):
                allowed = last_us is None or now_us - last_us >= period_s * 1e6
            case Custom():
                allowed = kinds.allows(restriction, Asked(now_us, received_us, last_us, away, event))
            case _:
                allowed = windows_asked or _any_open(restrictions[place:], received_us, away)
                windows_asked = True
        if not allowed:
            return place
    return None


def admitted(restrictions: Sequence[Restriction], *, zone: str, kinds: CustomRestrictions) -> tuple[Restriction, ...]:
    """Return ``restrictions`` as they are stored: daily windows without a zone get ``zone`` (SPEC X27).

    :class:`Refused` if they exclude each other (SPEC H-06) or one is invalid, :class:`LimitExceeded` if there are too
    many.
    """
    if len(restrictions) > RESTRICTIONS_MAX:
        raise LimitExceeded(f"a subscription has at most {RESTRICTIONS_MAX} restrictions", "restrictions_max")
    if sum(isinstance(restriction, Frequency) for restriction in restrictions) > 1:
        raise Refused("a subscription takes one frequency restriction at most; leave the others out")
    return tuple(_admitted(restriction, zone, kinds) for restriction in restrictions)


def _admitted(restriction: Restriction, zone: str, kinds: CustomRestrictions) -> Restriction:
    match restriction:
        case Frequency(period_s=period_s):
            if not 0 < period_s < 1e10:
                raise Refused("the period of a frequency restriction must be above 0 seconds, and less than 300 years")
        case Interval(start_us=start_us, end_us=end_us):
            if end_us <= start_us:
                raise Refused("an interval must end after it starts")
        case Daily():
            explicit = restriction if restriction.zone is not None else msgspec.structs.replace(restriction, zone=zone)
            _check_daily(explicit)
            return explicit
        case Custom():
            kinds.check(restriction)
    return restriction


def _check_daily(window: Daily) -> None:
    if _second_of_day(window.start) == _second_of_day(window.end):
        raise Refused("a daily interval needs two different times of day")
    if len(window.weekdays) > 7 or not all(1 <= day <= 7 for day in window.weekdays):
        raise Refused("weekdays are numbered 1 for Monday to 7 for Sunday")
    try:
        _zone(window.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refused(f"unknown time zone {window.zone!r}; use an IANA name such as America/Sao_Paulo") from None


def _any_open(restrictions: Sequence[Restriction], received_us: int, away: bool) -> bool:
    for window in restrictions:
        if window.when == "away" and not away:
            continue
        if isinstance(window, Interval):
            if window.start_us <= received_us < window.end_us:
                return True
        elif isinstance(window, Daily) and _daily_open(window, received_us // 1_000_000):
            return True
    return False


def _daily_open(window: Daily, instant_s: int) -> bool:
    start, end = _second_of_day(window.start), _second_of_day(window.end)
    second, today, yesterday = _local_time(window.zone, instant_s)
    if start < end:
        began = today if start <= second < end else None
    elif second >= start:
        began = today
    else:
        began = yesterday if second < end else None
    return began is not None and (not window.weekdays or began in window.weekdays)


@lru_cache(maxsize=4_096)
def _second_of_day(text: str) -> int:
    """Return the seconds from midnight to the time of day ``text``; :class:`Refused` if it is invalid."""
    if (found := _TIME_OF_DAY.fullmatch(text)) is None:
        raise Refused(f"invalid time of day {text!r} (expected HH:MM or HH:MM:SS; the zone is a separate field)")
    hour, minute, second = found.groups(default="0")
    return int(hour) * 3600 + int(minute) * 60 + int(second)


@lru_cache(maxsize=_ZONES)
def _zone(name: str | None) -> ZoneInfo:
    """Return the zone of this name; None is UTC."""
    return ZoneInfo("UTC" if name is None else name)


@lru_cache(maxsize=_ZONES)
def _local_time(zone: str | None, instant_s: int) -> tuple[int, int, int]:
    """Return the local time in ``zone``: second of the day, weekday, and weekday of the day before.

    The result is cached, because all windows that are checked for one event need the same instant.
    """
    shown = datetime.fromtimestamp(instant_s, _zone(zone))
    second = shown.hour * 3600 + shown.minute * 60 + shown.second
    return second, shown.isoweekday(), (shown - timedelta(days=1)).isoweekday()
