"""Trace of sent and received messages of a node, without secrets, in a bounded ring (SPEC U-06).

:meth:`Trace.add` is the only way to add messages, and it redacts them first; so no output of a trace can contain a
password or a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.trace.redaction import redact
from wanderbus.sip.trace.trace_entry import Direction, TraceEntry

ENTRIES_MAX: Final = 10_000
"""Default number of messages in a trace."""

BYTES_MAX: Final = 16 * 2**20
"""Default number of bytes of messages in a trace."""


class Trace:
    """The last messages, at most ``entries_max`` of them and ``bytes_max`` bytes; the oldest are removed first."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        """Bytes of the messages that are kept."""
        self.dropped = 0
        """Number of removed messages."""
        self._entries: deque[TraceEntry] = deque()
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    def add(self, entry: TraceEntry) -> TraceEntry:
        """Add ``entry`` without its secrets, and return it so."""
        entry = msgspec.structs.replace(entry, data=redact(entry.data))
        self._entries.append(entry)
        self.bytes += len(entry.data)
        while len(self._entries) > self._entries_max or self.bytes > self._bytes_max:
            self.bytes -= len(self._entries.popleft().data)
            self.dropped += 1
        return entry

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TraceEntry]:
        return iter(tuple(self._entries))


def in_order(entries: Iterable[TraceEntry]) -> list[TraceEntry]:
    """Return the entries by time, each message once: of a message traced at both ends, the sent copy is kept.

    A message that really was sent twice was traced twice at each end, and is returned twice.
    """
    kept: list[TraceEntry] = []
    single: dict[tuple[Address, Address, str, bytes], list[Direction]] = {}
    for entry in sorted(entries, key=lambda entry: entry.at_us):
        seen = single.setdefault((entry.source, entry.destination, entry.transport, entry.data), [])
        if seen and seen[0] != entry.direction:
            seen.pop()
        else:
            seen.append(entry.direction)
            kept.append(entry)
    return kept
