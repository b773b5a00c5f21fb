"""Table of the limits that this process applied, and log lines about them.

For each party and limit, the first refusal is logged, and then each one that doubles their number. All parties
together get no more than :data:`LINES_MAX` lines a minute.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from wanderbus.event_text import escaped
from wanderbus.refusal_table import OTHERS, RefusalTable
from wanderbus.refusals import Limited, LoginRefused

_log = logging.getLogger("wanderbus.limits")

QUIET_S: Final = 60.0
"""Period of the bound on lines."""

LINES_MAX: Final = 20
"""Lines in that period."""


SHARED: Final = frozenset({"broker.turn_units"})
"""Limits that share the processor among users: nothing is refused, and nobody is at fault, so they are no warning."""


class Refusals:
    """Record of everything that limits of one process refuse, discard or defer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.table = RefusalTable()
        self._clock = clock
        self._logged: deque[float] = deque()
        """Times of the last lines."""
        self._suppressed = 0
        self.counted: dict[str, Callable[[], Mapping[str, int]]] = {}
        """Counters of discarded input, whatever its sender, by the part that counts and the reason."""

    def note(self, refused: Limited | LoginRefused) -> None:
        """Count a refusal, and log it if it is new. Credentials of a refused login are never logged."""
        limited, now = _limited(refused), self._clock()
        entry = self.table.note(limited, now)
        if entry.limit in SHARED:
            _log.info("%s waited for others, by %s", escaped(entry.party), entry.limit)
            return
        while self._logged and self._logged[0] <= now - QUIET_S:
            self._logged.popleft()
        before = entry.count - limited.count
        if before.bit_length() == entry.count.bit_length() or len(self._logged) >= LINES_MAX:
            self._suppressed += limited.count
            return
        self._logged.append(now)
        times = f", {entry.count} times so far" if entry.count > 1 else ""
        more = f"; {self._suppressed} other refusals were not logged meanwhile" if self._suppressed else ""
        self._suppressed = 0
        party, reason = escaped(entry.party), escaped(entry.reason)
        _log.warning("%s is limited by %s: %s%s%s", party, entry.limit, reason, times, more)

    def rows(self, bounds: Iterable[Mapping[str, Any]] = ()) -> tuple[Mapping[str, Any], ...]:
        """Return a row for each limit and party, with the limit's value in ``bounds``; times are seconds before now.

        For each limit, the party :data:`wanderbus.refusal_table.OTHERS` has the counts of those removed from the table.
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
                rows.append({"limit": limit, "party": OTHERS, "reason": "no longer counted by party", "count": count})
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
