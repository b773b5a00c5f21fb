"""Points in the past on the command line: ``-2h``, an instant, the id of an event, ``earliest`` (SPEC T-05)."""

from __future__ import annotations

from datetime import datetime

from wanderbus.cli.instants import read_instant
from wanderbus.errors import ConfigurationError, EventError
from wanderbus.event import EventId
from wanderbus.subscription import SincePoint


def since_point(text: str, now: datetime) -> SincePoint:
    """Return the point that ``text`` names; :class:`ConfigurationError` if it names none."""
    if text == "earliest":
        return "earliest"
    if (instant := read_instant(text, "--since", now)) is not None:
        return instant
    try:
        return EventId.parse(text)
    except EventError:
        raise ConfigurationError(
            f"--since: invalid point {text!r} (expected for example -2h, 2026-08-01T06:00:00Z, earliest, or the id of "
            "an event)"
        ) from None
