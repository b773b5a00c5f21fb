"""Restrictions on generating notifications (SPEC H, X26 to X28): a pure question with a reason for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from wanderbus.errors import Refused
from wanderbus.subscription import Daily, Frequency, Interval, Restriction


def check_restrictions(restrictions: Sequence[Restriction]) -> None:
    """Raise :class:`Refused` if these cannot stand together (SPEC H-06) or one makes no sense."""
    if sum(isinstance(restriction, Frequency) for restriction in restrictions) > 1:
        raise Refused("a subscription takes one frequency restriction at most; leave the others out")
    for restriction in restrictions:
        match restriction:
            case Frequency(period_s=period_s) if not 0 < period_s < 1e10:
                raise Refused("the period of a frequency restriction must be above 0 seconds, and less than 300 years")
            case Interval(start_us=start_us, end_us=end_us) if end_us <= start_us:
                raise Refused("an interval must end after it starts")
            case Daily():
                _check_daily(restriction)


def blocked_by(
    restrictions: Sequence[Restriction], *, now_us: int, last_us: int | None, away: bool
) -> Restriction | None:
    """Return the restriction that forbids a notification at wall time ``now_us``, or None if it may be generated.

    ``last_us`` is when the subscription last generated one; ``away`` whether its owner is DISCONNECTED. They are
    asked in their order (SPEC H-03); intervals are complementary, any one suffices (H-08).
    """
    applicable = [restriction for restriction in restrictions if restriction.when == "always" or away]
    windows = [restriction for restriction in applicable if isinstance(restriction, (Interval, Daily))]
    inside = any(_open(window, now_us) for window in windows)
    for restriction in applicable:
        match restriction:
            case Frequency(period_s=period_s):
                if last_us is not None and now_us - last_us < period_s * 1e6:
                    return restriction
            case _ if not inside:
                return restriction
    return None


def _open(window: Interval | Daily, now_us: int) -> bool:
    if isinstance(window, Interval):
        return window.start_us <= now_us < window.end_us
    clock = datetime.fromtimestamp(now_us / 1e6, UTC).astimezone(ZoneInfo(window.zone or "UTC")).time()
    start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    if start <= end:
        return start <= clock < end
    return clock >= start or clock < end


def _check_daily(window: Daily) -> None:
    try:
        start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    except ValueError:
        raise Refused(f"times of day read HH:MM or HH:MM:SS, not {window.start!r} to {window.end!r}") from None
    if start.tzinfo or end.tzinfo or start == end:
        raise Refused("a daily interval needs two different times of day; the zone is a field of its own")
    try:
        ZoneInfo(window.zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refused(f"no time zone is called {window.zone!r}; use an IANA name such as America/Sao_Paulo") from None
