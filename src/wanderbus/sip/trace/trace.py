"""The trace: what a node sent and received, without its secrets, in a ring that cannot grow (SPEC U-06).

:meth:`Trace.add` is the only way in, and it redacts first; so nothing that a trace is shown as or exported to can hold
a password or a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.trace.redaction import redact

ENTRIES_MAX: Final = 10_000
"""Messages that a trace keeps unless told otherwise."""

BYTES_MAX: Final = 16 * 2**20
"""Bytes of messages that a trace keeps unless told otherwise."""

Direction = Literal["in", "out"]
"""Whether the node that kept the trace received or sent."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=2**32 * 1_000_000)]
"""Since the Unix epoch; as far as the formats that a trace is exported to can count."""


class TraceEntry(msgspec.Struct, frozen=True):
    """One message on the wire: when, between which addresses, over what, and its bytes."""

    at_us: Microseconds
    source: tuple[str, Port]
    destination: tuple[str, Port]
    transport: Transport
    direction: Direction
    data: bytes

    def __repr__(self) -> str:
        ends = f"{self.source} -> {self.destination}"
        return f"TraceEntry({self.at_us}, {ends}, {self.transport}, {self.direction}, {len(self.data)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("entry", repr(self))]


class Trace:
    """The last messages, at most ``entries_max`` of them and ``bytes_max`` bytes; the oldest go first."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        """Bytes of the messages that are kept."""
        self.dropped = 0
        """Messages that had to go."""
        self._entries: deque[TraceEntry] = deque()
        self._entries_max = entries_max
        self._bytes_max = bytes_max

    def add(self, entry: TraceEntry) -> TraceEntry:
        """Keep ``entry`` without its secrets, and return it so."""
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
    """Return the entries by time, each message once: one that was traced at both of its ends is kept as it was sent.

    A message that really was sent twice was traced twice at each end, and stays twice.
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
