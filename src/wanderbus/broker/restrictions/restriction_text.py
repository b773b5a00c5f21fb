"""Text of the reason for which a restriction blocked a notification (SPEC U-01, H)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from wanderbus.subscription import Custom, Daily, Frequency, Interval, Restriction

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_000_000
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def instant(at_us: int) -> str:
    """Return a time, in microseconds since the Unix epoch, as ISO 8601 in UTC to the millisecond.

    A time outside the years 1 to 9999, which a restriction may contain, is given as a number.
    """
    if not _FIRST_US <= at_us <= _LAST_US:
        return f"{at_us} µs since 1970"
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def forbidding(
    restrictions: Sequence[Restriction], place: int, *, now_us: int, received_us: int, last_us: int | None
) -> str:
    """Return the reason for which the restriction at ``place`` blocked a notification; the times are its inputs.

    See :func:`wanderbus.broker.restrictions.restriction_check.blocked_by`. One open window would have been enough, so
    the reason lists all windows.
    """
    restriction = restrictions[place]
    match restriction:
        case Frequency(period_s=period_s):
            since = "" if last_us is None else f", and the last was {(now_us - last_us) / 1e6:g} s before"
            why = f"at most one notification in {period_s:g} s{since}"
        case Custom(kind=kind, parameters=parameters):
            given = "".join(f" {name}={value}" for name, value in parameters.items())
            why = f"the restriction {kind}{given} blocked it"
        case _:
            windows = [each for each in restrictions[place:] if isinstance(each, Interval | Daily)]
            why = "; ".join(_closed(window, received_us) for window in windows)
    return f"while the user is away: {why}" if restriction.when == "away" else why


def _closed(window: Interval | Daily, received_us: int) -> str:
    if isinstance(window, Interval):
        return f"only from {instant(window.start_us)} to {instant(window.end_us)}, and it was {instant(received_us)}"
    zone = window.zone or "UTC"
    shown = datetime.fromtimestamp(received_us / 1e6, ZoneInfo(zone))
    days = f" on {', '.join(_DAYS[day - 1] for day in window.weekdays)}" if window.weekdays else ""
    was = f"{_DAYS[shown.weekday()]} {shown:%H:%M:%S}"
    return f"only from {window.start} to {window.end} {zone}{days}, and it was {was} there"
