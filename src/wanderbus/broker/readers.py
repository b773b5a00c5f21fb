"""Readers: the broker sends a subscription on a link once the agent opens a reader for it (SPEC G-25, DESIGN 5.4).

Each reader has its own window, in notifications and bytes, which its acknowledgements advance. A stalled reader delays
its own subscription and no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from wanderbus.broker.queues.queue_items import Item, Queued
from wanderbus.protocol.outbox_order import OutboxOrder
from wanderbus.tokens import TokenBucket


class OpenReader(msgspec.Struct):
    """One subscription as it is read on one link."""

    handle: int
    """Number that the agent chose for it."""
    subscription: str
    sent: int
    """Highest number of its items that was sent on this link, or acknowledged earlier."""
    former: int | None = None
    """Handle of the previous reader, under which its items may also be acknowledged."""
    unacknowledged: deque[tuple[int, int]] | None = None
    """Number and bytes of the items sent and not acknowledged; None for none, the usual case."""
    unacknowledged_bytes: int = 0
    full_since: float | None = None
    """Monotonic second since which its window has been full without an acknowledgement."""
    is_inherited: bool = False
    """True if it was opened for a subscription that has ended and whose queue another one inherited."""
    is_reported: bool = False
    """True if a warning was given that it is stalled."""
    is_stopped: bool = False
    """True if it gets nothing more, because another device is about to read instead."""
    group: int | None = None
    """Readers of one group are served in the order of the numbers; None for a reader on its own."""

    def send(self, item: Item) -> None:
        """Count ``item`` as sent."""
        size = len(item.event.data) if type(item) is Queued else 0
        self.sent = last = item.last
        if self.unacknowledged is None:
            self.unacknowledged = deque()
        self.unacknowledged.append((last, size))
        self.unacknowledged_bytes += size

    def take(self, number: int) -> None:
        """Count everything up to ``number`` as acknowledged."""
        self.sent = max(self.sent, number)
        self.full_since, self.is_reported = None, False
        waiting = self.unacknowledged
        while waiting and waiting[0][0] <= number:
            self.unacknowledged_bytes -= waiting.popleft()[1]
        if not waiting:
            self.unacknowledged = None


class Link(msgspec.Struct):
    """An open data channel of a device; ``session`` is None until its agent has sent :class:`Attach`."""

    link: int
    user: str
    device: str
    key: str
    """Key of the device."""
    unattended: bool = False
    """True if items are sent at once and count as acknowledged, because nobody acknowledges on this link."""
    session: str | None = None
    knows_waits: bool = False
    """True if the agent understands :class:`~wanderbus.protocol.PublishesWait`."""
    reading: int = 0
    """Number of readers."""
    grouped: int = 0
    """Number of readers that belong to a group."""
    _readers: dict[str | int, OpenReader] | None = None
    """Readers by subscription and by handle, in one dictionary to save memory; None while there are none."""
    sent: int = 0
    """Highest number sent on an unattended link."""
    backlog: int = 0
    """Highest number that waited when the device attached; delivery up to it is paced."""
    pace: TokenBucket | None = None
    outbox_order: OutboxOrder[str, str] | None = None
    """Events of outboxes that were refused temporarily, with the bounds that they met; None while there are none."""
    foreign_order: OutboxOrder[tuple[str, int], str] | None = None
    """The same for devices of foreign domains, each in each of its epochs."""
    whole: OpenReader | None = None
    """Reader of the whole session, in the order of its numbers, if a server or a foreign domain is at the other end;
    None for a device."""
    is_foreign: bool = False
    """True if a foreign domain is at the other end, through a gateway of this one."""

    @property
    def reads_whole(self) -> bool:
        """Return whether the session is read whole: by another server, or for a foreign domain."""
        return self.whole is not None

    @property
    def is_server(self) -> bool:
        """Return whether another server of the domain is at the other end."""
        return self.whole is not None and not self.is_foreign

    def reader(self, which: str | int) -> OpenReader | None:
        """Return the reader of a subscription, or that with a handle."""
        return None if self._readers is None else self._readers.get(which)

    def readers(self) -> list[OpenReader]:
        """Return all readers."""
        return [reader for key, reader in (self._readers or {}).items() if type(key) is str]

    def with_groups(self, readers: Sequence[OpenReader]) -> Sequence[OpenReader]:
        """Return ``readers`` and all others of their groups."""
        if not self.grouped or not (groups := {each.group for each in readers} - {None}):
            return readers
        alone = [each for each in readers if each.group is None]
        return [*alone, *(each for each in self.readers() if each.group in groups)]

    def open(self, reader: OpenReader) -> None:
        """Add a reader; there is no other of the same subscription or handle."""
        if self._readers is None:
            self._readers = {}
        self.reading += 1
        self.grouped += reader.group is not None
        self._readers[reader.subscription] = self._readers[reader.handle] = reader
        if reader.former is not None:
            self._readers[reader.former] = reader

    def close(self, reader: OpenReader) -> None:
        """Remove a reader."""
        if self._readers is None:
            return
        del self._readers[reader.subscription], self._readers[reader.handle]
        if reader.former is not None:
            self._readers.pop(reader.former, None)
        self.reading -= 1
        self.grouped -= reader.group is not None
        if not self.reading:
            self._readers = None

    def rename(self, ended: str, successor: str) -> None:
        """Move the reader of ``ended`` to ``successor``, unless ``successor`` has a reader."""
        if self._readers is not None and successor not in self._readers and (reader := self._readers.pop(ended, None)):
            reader.subscription, reader.is_inherited = successor, True
            self._readers[successor] = reader


class Asker(NamedTuple):
    """Whose subscription is asked for, if no link of that user asks."""

    user: str
    session: str
    device: str
    is_server: bool
