"""The last event of each server and subject that came here, also from other domains (decision 0165).

Events of one server and subject come in its order: whatever came before the last one need not come again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from wanderbus.event import Event, EventId

ORIGINS_MAX: Final = 65_536
"""Servers and subjects that are known at most; the one whose event came first is forgotten first. A session that leaves
then gets its events twice rather than not at all, if there are so many while it leaves."""


class Origins:
    """Last events by origin and subject, since the start of this server.

    :param is_used: false if there are no other domains
    """

    def __init__(self, *, is_used: bool) -> None:
        self._is_used = is_used
        self._last: OrderedDict[tuple[str, str], EventId] = OrderedDict()

    def note(self, identity: EventId, event: Event) -> None:
        """Note an event that is about to be written, as accepted here or come from another server."""
        if not self._is_used:
            return
        last = event.origin or identity
        key = last.origin, event.subject
        before = self._last.pop(key, last)
        self._last[key] = max(before, last)
        if len(self._last) > ORIGINS_MAX:
            self._last.popitem(last=False)

    def __iter__(self) -> Iterator[tuple[str, EventId]]:
        """Iterate over the subjects, each with the last event of a server."""
        return ((subject, last) for (_, subject), last in self._last.items())
