"""Sending side of a link to another server: which events it still needs, and what it has been told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from wanderbus.channels.causal.header import HeaderEntry, Origin, members
from wanderbus.channels.causal.header_codec import HeaderDecoder, HeaderEncoder

if TYPE_CHECKING:
    from wanderbus.channels.causal.header import Header


class OutLink:
    """Events for ``server`` in order, with its cursor; a new link begins behind the cursor."""

    def __init__(self, server: int) -> None:
        self.server = server
        self.base = 0
        """Number of the last event that the server needs no more."""
        self.acknowledged_by = 0
        """Incarnation of the server that has acknowledged ``base``."""
        self.dropped = 0
        """Number of the last event that was dropped before the server had it."""
        self.before = 0
        """Number of the last event that was published to the server."""
        self.waiting: deque[int] = deque()
        """Numbers of the events after ``base``."""
        self.open()
        self.close()

    def open(self) -> None:
        """Begin a new link."""
        self.is_up = True
        self.is_welcomed = False
        """True once the server has named its cursor on this link."""
        self.decoder = HeaderDecoder()
        self.mark_sent = self.mark_heard = 0
        """Settled marks that the last acknowledgement or mark on this link had, in both directions."""
        self.mark_known = 0
        """Highest settled mark that the server was told, in a header too."""
        self._encoder = HeaderEncoder()
        self._in_flight = 0
        self._announced: dict[tuple[int, Origin], int] = {}
        """Knowledge of the server by this link: for each other server and origin, the last event."""

    def close(self) -> None:
        """End the link."""
        self.is_up = self.is_welcomed = False
        self._in_flight = 0

    def has_in_flight(self) -> bool:
        """Return whether events are on their way."""
        return self._in_flight > 0

    def enqueue(self, number: int) -> None:
        """Add an event."""
        self.before = number
        self.waiting.append(number)

    def acknowledge(self, number: int) -> list[int]:
        """Advance the cursor; return the numbers of the events that the server needs no more."""
        done = []
        while self.waiting and self.waiting[0] <= number:
            done.append(self.waiting.popleft())
            self._in_flight = max(0, self._in_flight - 1)
        self.base = max(self.base, done[-1] if done else 0)
        return done

    def due(self, window: int) -> list[int]:
        """Return the numbers of the events to send now; they count as sent."""
        if not self.is_welcomed:
            return []
        until = min(len(self.waiting), window)
        numbers = [self.waiting[index] for index in range(self._in_flight, until)]
        self._in_flight = max(self._in_flight, until)
        return numbers

    def encode(self, header: Header) -> bytes:
        """Return the header for this link, without what its server knows already."""
        destinations, entries = header.servers, []
        self.mark_known = max(self.mark_known, header.settled)
        for entry in header.entries:
            # Causes stay, also those of other destinations: this server may be asked for the event.
            servers = entry.servers & destinations
            servers |= self._mark_told(entry.servers & ~destinations, entry.origin, entry.number)
            if servers:
                entries.append(HeaderEntry(entry.origin, entry.number, servers))
        self._mark_told(destinations, header.origin, header.number)
        return self._encoder.encode(msgspec.structs.replace(header, entries=tuple(entries)))

    def mark(self, settled: int) -> int:
        """Return the difference of a settled mark from the one before; it counts as sent."""
        more, self.mark_sent = settled - self.mark_sent, settled
        self.mark_known = max(self.mark_known, settled)
        return more

    def wants_mark(self, settled: int) -> bool:
        """Return whether the server has events that it does not know to be settled."""
        return self.is_welcomed and self.mark_known < min(settled, self.before)

    def learned(self, entries: Iterable[HeaderEntry]) -> None:
        """Note entries that the server itself knew."""
        for entry in entries:
            self._mark_told(entry.servers, entry.origin, entry.number)

    def _mark_told(self, servers: int, origin: Origin, number: int) -> int:
        """Note what the server knows now; return those of ``servers`` for which it is new."""
        new = 0
        for server in members(servers):
            if self._announced.get((server, origin), 0) < number:
                self._announced[server, origin] = number
                new |= 1 << server
        return new
