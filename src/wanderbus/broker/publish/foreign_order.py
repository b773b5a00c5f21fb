"""Order of the devices of foreign domains on one link: nothing is accepted behind an event that was refused for now.

It is that of outboxes (:mod:`wanderbus.protocol.outbox_order`), except that the refused event may be accepted from
another server meanwhile. Then what was refused behind it comes first on this link, and not what may still be on its way
there: so all refused numbers are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

FOREIGN_ORDERS_MAX: Final = 1_024
"""Devices, each in one of its epochs, with events that have to be sent again; the first is forgotten beyond."""

REFUSED_MAX: Final = 1_024
"""Refused events of one device that are kept apart: more than fit into ``limits.FORWARDED_BYTES_MAX``."""

Outbox = tuple[str, int]
"""Key of the row of a device, and an epoch."""


class _Refused:
    """Refused events of a device: the limit that the first has met, their numbers in order, and the highest one."""

    def __init__(self, limit: str) -> None:
        self.limit = limit
        self.numbers: list[int] = []
        self.last = 0


class ForeignOrder:
    """The events that have to be sent again; another domain chooses devices and numbers, so all is bounded."""

    def __init__(self) -> None:
        self._refused: dict[Outbox, _Refused] = {}

    def refused(self, outbox: Outbox, number: int, limit: str) -> None:
        """Note that an event was refused for now."""
        found = self._refused.setdefault(outbox, _Refused(limit))
        found.last = max(found.last, number)
        place = bisect_left(found.numbers, number)
        if found.numbers[place : place + 1] != [number]:
            found.numbers.insert(place, number)
            del found.numbers[REFUSED_MAX:]
        if len(self._refused) > FOREIGN_ORDERS_MAX:
            del self._refused[next(iter(self._refused))]

    def before(self, outbox: Outbox, number: int) -> str | None:
        """Return the limit that an event has met which has to be accepted before ``number``, None if there is none."""
        found = self._refused.get(outbox)
        return None if found is None or number <= found.numbers[0] else found.limit

    def passed(self, outbox: Outbox, accepted: int) -> None:
        """Forget the events up to number ``accepted``: they were accepted from another server, or never will be."""
        if (found := self._refused.get(outbox)) is not None:
            place = bisect_right(found.numbers, accepted)
            if accepted >= found.last:
                del self._refused[outbox]
            elif place < len(found.numbers):  # else the next one is not known: all of them have to be accepted
                del found.numbers[:place]

    def sent_again(self, outbox: Outbox, number: int) -> None:
        """Let the events behind ``number`` follow it, if it is the first that they wait for."""
        if (found := self._refused.get(outbox)) is not None and found.numbers[0] == number:
            del self._refused[outbox]
