"""Limits that this process applied: the table of them, and lines about them in its log.

The log has the first refusal by a limit of each party, and each that doubles their number; no more than a few lines a
minute are written, however many parties there are.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from wanderbus.event_text import escaped
from wanderbus.refusal_table import OTHERS, Limited, RefusalTable
from wanderbus.sip.authentication.login_guard import LoginRefused

_log = logging.getLogger("wanderbus.limits")

QUIET_S: Final = 60.0
"""The time that the bound on lines is for."""

LINES_MAX: Final = 20
"""Lines in that time."""


class Refusals:
    """One place of a process where everything that a limit refuses, drops or defers is noted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.table = RefusalTable()
        self._clock = clock
        self._logged: deque[float] = deque()
        """When the last lines were written."""
        self._suppressed = 0
        self.counted: dict[str, Callable[[], Mapping[str, int]]] = {}
        """Counters of what is dropped whoever sends it, by the part that counts and the reason."""

    def note(self, refused: Limited | LoginRefused) -> None:
        """Count what was refused, and log it if it is news; of a login without anything that was given as a proof."""
        limited, now = _limited(refused), self._clock()
        entry = self.table.note(limited, now)
        while self._logged and self._logged[0] <= now - QUIET_S:
            self._logged.popleft()
        before = entry.count - limited.count
        if before.bit_length() == entry.count.bit_length() or len(self._logged) >= LINES_MAX:
            self._suppressed += limited.count
            return
        self._logged.append(now)
        times = f", {entry.count} times so far" if entry.count > 1 else ""
        more = f"; {self._suppressed} more were limited meanwhile" if self._suppressed else ""
        self._suppressed = 0
        party, reason = escaped(entry.party), escaped(entry.reason)
        _log.warning("%s is limited by %s: %s%s%s", party, entry.limit, reason, times, more)

    def rows(self, bounds: Iterable[Mapping[str, Any]] = ()) -> tuple[Mapping[str, Any], ...]:
        """Return a row for each limit and party, with its value in ``bounds``; times are seconds until now.

        Of each limit, the party :data:`wanderbus.refusal_table.OTHERS` has what the table no longer counts apart.
        """
        now = self._clock()
        rows: list[dict[str, Any]] = [
            {
                "limit": each.limit,
                "party": each.party,
                "reason": each.reason,
                "count": each.count,
                "since_s": now - each.first_s,
                "last_s": now - each.last_s,
            }
            for each in self.table.entries()
        ]
        others = {row["limit"]: row for row in rows if row["party"] == OTHERS}
        for limit, count in self.table.evicted().items():
            if limit in others:
                others[limit]["count"] += count
            else:
                rows.append({"limit": limit, "party": OTHERS, "reason": "limited longest ago", "count": count})
        for part, counts in self.counted.items():
            for reason, count in counts().items():
                if count:
                    rows.append({"limit": f"{part}.{reason}", "party": OTHERS, "reason": "dropped", "count": count})
        values = {bound["limit"]: bound["value"] for bound in bounds}
        return tuple({**row, "value": values.get(row["limit"])} for row in rows)


def _limited(refused: Limited | LoginRefused) -> Limited:
    if isinstance(refused, Limited):
        return refused
    reason = f"login of {refused.user} from {refused.source} refused: {refused.reason}"
    return Limited(refused.limit, refused.party, reason)
