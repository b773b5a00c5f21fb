"""Times on the command line: ``2026-11-21T10:00:00Z``, a day, or ``-2h`` for two hours ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from wanderbus.cli.spans import span_s
from wanderbus.errors import ConfigurationError

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def read_instant(text: str, option: str, now: datetime | None = None) -> datetime | None:
    """Return the time that ``text`` names, in UTC; None if it is no time. A day begins at 0:00 UTC.

    A span behind a minus sign is that long before ``now``, the present unless given.

    :raises ConfigurationError: it has no zone, since the same command must not mean two times on two machines, or is an
        invalid span
    """
    if text.startswith("-"):
        try:
            return (now or datetime.now(UTC)) - timedelta(seconds=span_s(text[1:], option))
        except OverflowError:
            raise ConfigurationError(f"{option}: {text} is before the year 1") from None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    if _DAY.fullmatch(text):
        return instant.replace(tzinfo=UTC)
    if instant.tzinfo is None:
        raise ConfigurationError(
            f"{option}: the time {text} has no time zone; add Z for UTC, or an offset such as +02:00"
        )
    return instant.astimezone(UTC)
