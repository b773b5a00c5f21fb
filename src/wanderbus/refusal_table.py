"""Refusal table: the parties that are limited, the limits, and the counts (one table for each server).

Every component that refuses, drops or defers because of a limit notes it here, so that one list shows them all. The
table is bounded: a new row replaces that of the party limited longest ago. The totals of each limit are kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from wanderbus.refusals import Limited, Noted, RefusalRow

ENTRIES_MAX: Final = 2_048
"""Rows of the table: pairs of limit and party."""

PARTY_CHARACTERS_MAX: Final = 128
"""Characters of a party's name that are kept."""

REASON_CHARACTERS_MAX: Final = 200
"""Characters of a reason that are kept."""

OTHERS: Final = "others"
"""Party of the counts that are not kept separately."""

TALLIED_MAX: Final = 256
"""Pairs of limit and party that a tally reports separately within one :data:`TALLY_S`."""

TALLY_S: Final = 1.0
"""Pause between two reports of a tally about the same limit and party."""


class RefusalTable:
    """Counts refusals, drops and delays by limit and party."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[tuple[str, str], RefusalRow] = OrderedDict()
        self.totals: Counter[str] = Counter()
        """Times that each limit was applied, to all parties."""

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, limited: Limited, now: float) -> RefusalRow:
        """Count ``limited`` at monotonic second ``now``; return the row of its party."""
        self.totals[limited.limit] += limited.count
        party = limited.party[:PARTY_CHARACTERS_MAX]
        key = (limited.limit, party)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = RefusalRow(limited.limit, party, limited.reason, 0, now, now)
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        entry.count += limited.count
        entry.reason, entry.last_s = limited.reason[:REASON_CHARACTERS_MAX], now
        self._entries.move_to_end(key)
        return entry

    def entries(self) -> list[RefusalRow]:
        """Return a copy of the rows, the latest first."""
        return list(reversed(self._entries.values()))

    def evicted(self) -> dict[str, int]:
        """Return how many times each limit was applied to parties that are no longer in the table."""
        left = Counter(self.totals)
        for entry in self._entries.values():
            left[entry.limit] -= entry.count
        return {limit: count for limit, count in left.items() if count}


class Tally:
    """Counts the limits that a machine applies, and reports each at once, and then once a second with the new count.

    The first :meth:`take` after a second reports the rest of that second.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], Noted] = {}
        self._later: dict[tuple[str, str], Noted] = {}
        self._reported: set[tuple[str, str]] = set()
        """Pairs that were reported in the present second."""
        self._second_ends_at = 0.0

    def note(self, limit: str, party: str, reason: str, count: int = 1) -> None:
        """Count that ``party`` was limited; see :class:`Limited`."""
        key = (limit, party)
        noted = self._later.get(key)
        if noted is not None:  # the usual case of a limit that is reached all the time
            noted.reason = reason
            noted.count += count
            return
        waiting = self._later if key in self._reported else self._due
        noted = waiting.get(key)
        if noted is None and len(self._due) + len(self._reported) >= TALLIED_MAX:
            key, waiting = (limit, OTHERS), self._later
            noted = waiting.get(key)
        if noted is None:
            waiting[key] = Noted(reason, count)
        else:
            noted.reason = reason
            noted.count += count

    def take(self, now: float) -> list[Limited]:
        """Return the reports that are due at monotonic second ``now``."""
        if not self._due and not self._later:
            return []
        if now >= self._second_ends_at:
            self._second_ends_at = now + TALLY_S
            self._reported.clear()
            noted = [*self._later.items(), *self._due.items()]
            self._later.clear()
        else:
            noted = list(self._due.items())
        reports = [Limited(*key, each.reason, each.count) for key, each in noted]
        self._due.clear()
        self._reported.update((each.limit, each.party) for each in reports)
        return reports
