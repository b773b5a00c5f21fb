"""Session timers: Session-Expires, Min-SE, and the refresher (RFC 4028).

Pure values and header fields; :mod:`.session_refresh` runs the timers.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.mobility.properties import MIN_SE_S
from wanderbus.sip.message.headers import DELTA_SECONDS_MAX
from wanderbus.sip.message.message import Message, Request, Response
from wanderbus.sip.message.uri import parse_number

OPTION: Final = "timer"
"""The option tag in Supported and Require (RFC 4028 6)."""

TOO_SMALL: Final = 422
TOO_SMALL_REASON: Final = "Session Interval Too Small"

EXPIRY_MARGIN_S: Final = 32.0
"""Margin before the end of its interval at which a session ends, at most a third of it (RFC 4028 10)."""

Role = Literal["uac", "uas"]
Headers = list[tuple[str, str]]


class SessionTimer(msgspec.Struct, frozen=True):
    """The agreed interval in seconds, and whether this side refreshes the session."""

    interval_s: int
    refreshed_here: bool

    @property
    def refresh_after_s(self) -> float:
        """Time after which the refresher acts: half the interval (RFC 4028 7.2)."""
        return self.interval_s / 2

    @property
    def ends_after_s(self) -> float:
        """Time after which a side ends a session that was not refreshed (RFC 4028 10)."""
        return self.interval_s - min(EXPIRY_MARGIN_S, self.interval_s / 3)


class Interval(msgspec.Struct, frozen=True):
    """A Session-Expires value: seconds, and the refresher if it is named."""

    seconds: int
    refresher: Role | None


def interval_in(message: Message) -> Interval | None:
    """Return Session-Expires of ``message``, None if absent; SIPParseError 400 if it is unreadable (RFC 4028 4)."""
    value = message.header("Session-Expires")
    if value is None:
        return None
    seconds, *params = (part.strip() for part in value.split(";"))
    named = {name.strip().lower(): role.strip().lower() for name, _, role in (param.partition("=") for param in params)}
    role = named.get("refresher")
    refresher: Role | None = "uac" if role == "uac" else "uas" if role == "uas" else None
    return Interval(parse_number(seconds, DELTA_SECONDS_MAX, "Session-Expires"), refresher)


def least_in(message: Message) -> int:
    """Return Min-SE of ``message`` in seconds, 0 if absent; SIPParseError 400 if it is unreadable (RFC 4028 5)."""
    value = message.header("Min-SE")
    return 0 if value is None else parse_number(value.partition(";")[0].strip(), DELTA_SECONDS_MAX, "Min-SE")


def takes_timers(message: Message) -> bool:
    """Return whether the sender of ``message`` supports session timers."""
    try:
        return OPTION in (value.lower() for value in message.headers_all("Supported"))
    except SIPParseError:
        return False


def asking(wanted_s: int | None, least_s: int, present: SessionTimer | None) -> Headers:
    """Return the fields of a request that begins or refreshes a session (RFC 4028 7.1, 7.4).

    A refresh requests the present interval and keeps the roles. If no interval is wanted, none is requested.
    """
    interval_s = wanted_s if present is None else present.interval_s
    fields: Headers = [("Supported", OPTION)]
    if interval_s is not None:
        role = "" if present is None else f";refresher={'uac' if present.refreshed_here else 'uas'}"
        fields.append(("Session-Expires", f"{max(interval_s, least_s)}{role}"))
    if least_s:
        fields.append(("Min-SE", str(least_s)))
    return fields


def too_small(request: Request, min_se_s: int) -> bool:
    """Return whether ``request`` must be refused with 422: only a sender that supports timers understands it (9).

    Raises SIPParseError 400 if Session-Expires or Min-SE is unreadable; afterwards both are readable.
    """
    interval, _ = interval_in(request), least_in(request)
    return interval is not None and interval.seconds < min_se_s and takes_timers(request)


def granted(request: Request, wanted_s: int | None, min_se_s: int) -> SessionTimer | None:
    """Return the timer that our 2xx to ``request`` sets, None for none (RFC 4028 9 with table 2).

    An interval may be reduced to our own, but not below the minimum of the path. The caller refreshes if it can,
    because it is the first to know that it moves.
    """
    interval, able = interval_in(request), takes_timers(request)
    least_s = max(min_se_s, least_in(request))
    if interval is None:
        return None if wanted_s is None else SessionTimer(max(wanted_s, least_s), refreshed_here=not able)
    if interval.seconds < min_se_s:
        return None
    seconds = interval.seconds if wanted_s is None else min(interval.seconds, max(wanted_s, least_s))
    return SessionTimer(seconds, refreshed_here=not able or interval.refresher == "uas")


def granting(timer: SessionTimer | None) -> Headers:
    """Return the fields of a 2xx that sets ``timer`` (RFC 4028 9): the caller must support timers if it refreshes."""
    if timer is None:
        return [("Supported", OPTION)]
    role = "uas" if timer.refreshed_here else "uac"
    required = [] if timer.refreshed_here else [("Require", OPTION)]
    return [("Supported", OPTION), *required, ("Session-Expires", f"{timer.interval_s};refresher={role}")]


def agreed(response: Response) -> SessionTimer | None:
    """Return the timer that a 2xx to our request sets; None without Session-Expires (RFC 4028 7.2).

    An interval that is unreadable or below the minimum counts as none.
    """
    try:
        interval = interval_in(response)
    except SIPParseError:
        return None
    if interval is None or interval.seconds < MIN_SE_S:
        return None
    return SessionTimer(interval.seconds, refreshed_here=interval.refresher != "uas")
