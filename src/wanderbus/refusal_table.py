"""Table of who is being limited, by which limit, and how often (one for each server).

Every place that refuses, drops or defers because of a limit notes it here, so that one list shows all of them. The
table is bounded: the party that was limited longest ago gives way. The totals of each limit stay.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

import msgspec

from wanderbus.machine import Output

ENTRIES_MAX: Final = 2_048
"""Pairs of limit and party that are kept apart."""

PARTY_CHARACTERS_MAX: Final = 128
"""Characters of a party's name that are kept."""


class Limited(Output, frozen=True):
    """A party was limited ``count`` times by ``limit``.

    :param limit: the setting that bounds it, such as ``flood.requests_per_s``
    :param party: the user's URI, or the source: an IPv4 address or a /64 of IPv6
    :param reason: what was refused, dropped or deferred the last time; one line for people
    """

    limit: str
    party: str
    reason: str
    count: int = 1


class Entry(msgspec.Struct):
    """One row of the table; times are monotonic seconds."""

    limit: str
    party: str
    reason: str
    count: int
    first_s: float
    last_s: float


class RefusalTable:
    """Counts what was limited by limit and party."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[tuple[str, str], Entry] = OrderedDict()
        self.totals: Counter[str] = Counter()
        """Times that each limit was applied, to whomever."""

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, limited: Limited, now: float) -> Entry:
        """Count ``limited`` at monotonic second ``now``; return the row of its party."""
        self.totals[limited.limit] += limited.count
        party = limited.party[:PARTY_CHARACTERS_MAX]
        key = (limited.limit, party)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(limited.limit, party, limited.reason, 0, now, now)
            if len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        entry.count += limited.count
        entry.reason, entry.last_s = limited.reason, now
        self._entries.move_to_end(key)
        return entry

    def entries(self) -> list[Entry]:
        """Return a copy of the rows, the latest first."""
        return list(reversed(self._entries.values()))
