"""Times on the command line: ``2026-11-21T10:00:00Z``, or a day."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from wanderbus.errors import ConfigurationError

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def read_instant(text: str, option: str) -> datetime | None:
    """Return the time that ``text`` names, in UTC; None if it is no time. A day begins at 0:00 UTC.

    :raises ConfigurationError: it has no zone: the same command must not mean two times on two machines
    """
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
