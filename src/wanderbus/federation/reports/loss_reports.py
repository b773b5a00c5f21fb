"""Reports about events that a foreign domain has lost: users read a gap for each, so there is one in a while."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from wanderbus.federation.wire import EventsLost
from wanderbus.limits import NUMBER_MAX

PAUSE_S: Final = 10.0
"""Time between two reports about one domain."""


class LossReports:
    """The losses of one domain: the first is reported at once, and those of the next seconds together."""

    def __init__(self) -> None:
        self._waiting: EventsLost | None = None
        self._next_at: float | None = None
        """Time from which on the next report may be made; None if there has been none lately."""

    def lost(self, message: EventsLost, now: float) -> tuple[EventsLost | None, float | None]:
        """Take a loss; return the report if it may be made now, and when to call :meth:`due` if that is new."""
        if self._next_at is not None:
            before = 0 if self._waiting is None else self._waiting.count
            self._waiting = structs.replace(message, count=min(NUMBER_MAX, before + message.count))
            return None, None
        self._next_at = now + PAUSE_S
        return message, self._next_at

    def due(self, now: float) -> tuple[EventsLost | None, float | None]:
        """Return the report about what was lost meanwhile, None if nothing was, and when to call this again."""
        report, self._waiting = self._waiting, None
        self._next_at = None if report is None else now + PAUSE_S
        return report, self._next_at
