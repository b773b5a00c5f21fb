"""Messages of a trace while it grows: numbered, each once, in bounded memory (SPEC C-22)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from wanderbus.machine import Address
from wanderbus.sip.trace.trace_entry import Direction, TraceEntry
from wanderbus.sip.trace.trace_messages import TracedMessage, sketch

REMEMBERED_MAX: Final = 10_000
"""Messages that are remembered, so that the copy of the other end and a repetition are recognised."""

_Key = tuple[Address, Address, str, bytes]


class Following:
    """Reader of a growing trace; the counterpart of :func:`~wanderbus.sip.trace.trace_messages.traced_messages`."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._number = 0
        self._remembered_max = remembered_max
        self._unmatched: dict[_Key, list[Direction]] = {}
        """Directions of the copies whose copy of the other end has not come, by message; the newest last."""

    def take(self, entries: Iterable[TraceEntry]) -> Iterator[TracedMessage]:
        """Yield the new messages among ``entries``, which have come since the last call; the first copy of each."""
        for entry in sorted(entries, key=lambda each: each.at_us):
            key = (entry.source, entry.destination, entry.transport, entry.data)
            seen = self._unmatched.pop(key, None)
            unmatched = self._unmatched[key] = seen or []
            if unmatched and unmatched[0] != entry.direction:
                unmatched.pop()
                continue
            unmatched.append(entry.direction)
            while len(self._unmatched) > self._remembered_max:
                del self._unmatched[next(iter(self._unmatched))]
            self._number += 1
            yield TracedMessage(self._number, entry, sketch(entry.data), seen is not None)
