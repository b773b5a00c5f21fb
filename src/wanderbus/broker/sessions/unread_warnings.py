"""Warnings about unread subscriptions, whose reader is stalled or missing (SPEC G-25).

There is no warning while a user is away: notifications are meant to wait then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.messages import SubscriptionUnread
from wanderbus.broker.queues.queue import SubscriptionQueue
from wanderbus.broker.readers import Link, OpenReader
from wanderbus.broker.state.rows import SubscriptionRow

WARNINGS_MAX: Final = 16
"""Warnings of one check; the others follow with the next checks."""


class UnreadWarnings:
    """Checks periodically, and warns once of each unread subscription until it is read again."""

    def __init__(self, basics: Basics) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._blocked_s = basics.config.blocked_s
        self._since: dict[str, float] = {}
        """Monotonic second at which a subscription was first found without a reader, by subscription."""
        self._warned: set[str] = set()
        """Subscriptions without a reader for which a warning was given."""

    def look(self) -> None:
        """Warn of subscriptions that have been unread for ``blocked_s``."""
        since, self._since = self._since, {}
        left = WARNINGS_MAX
        for row, queue, links in self._attended():
            identity = row.subscription.id
            readers = [(link, reader) for link in links if (reader := link.reader(identity)) is not None]
            if not readers:
                began = self._since[identity] = since.get(identity, self._links.now)
                if left and identity not in self._warned and self._links.now - began >= self._blocked_s:
                    left -= 1
                    self._not_read(row, queue, links, began)
            for link, reader in readers:
                if left and self._is_stalled(reader):
                    left -= 1
                    self._window_full(row, queue, link, reader)
        self._warned &= self._since.keys()

    def _attended(self) -> Iterator[tuple[SubscriptionRow, SubscriptionQueue, Sequence[Link]]]:
        """Yield each subscription with waiting notifications, with the links on which it could be read now."""
        for key, session_queue in self._state.queue.waiting():
            links = self._links.of_session(key)
            if not links or any(link.unattended or link.reads_whole for link in links):
                continue
            for identity, queue in session_queue.queues.items():
                row = self._state.known(identity)
                if row is None or not queue.waiting:
                    continue
                bound_to = row.subscription.device
                if able := [link for link in links if bound_to in (None, link.device)]:
                    yield row, queue, able

    def _is_stalled(self, reader: OpenReader) -> bool:
        full_since = reader.full_since
        return full_since is not None and not reader.is_reported and self._links.now - full_since >= self._blocked_s

    def _not_read(self, row: SubscriptionRow, queue: SubscriptionQueue, links: Sequence[Link], began: float) -> None:
        self._warned.add(row.subscription.id)
        self._report(row, None, queue.waiting, began)
        for link in links:
            self._links.send(link, protocol.NotRead(row.subscription, queue.waiting))

    def _window_full(self, row: SubscriptionRow, queue: SubscriptionQueue, link: Link, reader: OpenReader) -> None:
        assert reader.full_since is not None
        reader.is_reported = True
        self._report(row, link.device, queue.waiting, reader.full_since)

    def _report(self, row: SubscriptionRow, device: str | None, waiting: int, began: float) -> None:
        subscription = row.subscription
        self._journal.emit(
            SubscriptionUnread(
                subscription.owner,
                subscription.session,
                subscription.id,
                device,
                waiting,
                self._links.now - began,
            )
        )
