"""Publishes that wait at the leader of their channel until it knows who wants them (SPEC K-02, J-10).

They are processed later in the order in which they came. Whatever the same publisher sends after a waiting event waits,
too: its numbers have to be accepted in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from wanderbus import protocol
from wanderbus.broker.links import Links
from wanderbus.broker.readers import Link
from wanderbus.limits import HELD_BYTES_MAX, HELD_EVENT_BYTES

PublisherMessage: TypeAlias = protocol.Publish | protocol.PublishFor
"""Messages with an event to publish."""

Message = TypeVar("Message")


class HeldPublishes(Generic[Message]):
    """Messages that wait, at most ``HELD_BYTES_MAX`` bytes of each publisher."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._waiting: list[tuple[Link, str, int, Message]] = []
        self._bytes_of: Counter[str] = Counter()
        """Bytes of the waiting messages of each publisher."""
        self._from: set[int] = set()
        """Links that waiting messages have come on."""

    def __len__(self) -> int:
        return len(self._waiting)

    def has(self, publisher: str) -> bool:
        """Return whether messages of a publisher wait."""
        return publisher in self._bytes_of

    def is_from(self, link: Link) -> bool:
        """Return whether messages of this link wait."""
        return link.link in self._from

    def add(self, link: Link, publisher: str, event_bytes: int, message: Message) -> bool:
        """Let a message wait; return False if its publisher has too much that waits."""
        if link.link not in self._from:
            self._drop_closed()
        if self._bytes_of[publisher] >= HELD_BYTES_MAX:
            return False
        size = HELD_EVENT_BYTES + event_bytes
        self._waiting.append((link, publisher, size, message))
        self._bytes_of[publisher] += size
        self._from.add(link.link)
        return True

    def take(self) -> Iterator[tuple[Link, Message]]:
        """Yield what waits on links that are still open, in order; nothing waits any more."""
        waiting, self._waiting = self._waiting, []
        self._bytes_of.clear()
        self._from.clear()
        yield from ((link, message) for link, _, _, message in waiting if self._links.is_open(link))

    def _drop_closed(self) -> None:
        """Drop the messages of closed links: their senders repeat them on others."""
        kept = [each for each in self._waiting if self._links.is_open(each[0])]
        self._waiting = kept
        self._bytes_of = Counter()
        for _, publisher, size, _ in kept:
            self._bytes_of[publisher] += size
        self._from = {link.link for link, _, _, _ in kept}
