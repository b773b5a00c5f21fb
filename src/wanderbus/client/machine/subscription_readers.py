"""Subscriptions that an application reads, by their handles, and a bound on unacknowledged notifications.

A broker sends at most a window of unacknowledged notifications (SPEC G-25, DESIGN 5.5). A broker that ignores the
window would fill the memory of the program, so :class:`Unacknowledged` bounds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.client.machine.subscription_records import SubscriptionReader
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Position

FORMER_MAX: Final = 1_024
"""Most remembered subscriptions that were replaced by a successor."""


class SubscriptionReaders:
    """All subscriptions that one application reads."""

    def __init__(self) -> None:
        self._by_subscription: dict[str, SubscriptionReader] = {}
        self._by_handle: dict[int, SubscriptionReader] = {}
        self._former: dict[str, SubscriptionReader] = {}
        """By replaced subscription: its notifications may still be acknowledged under its id."""
        self._handles = 0

    def next_handle(self) -> int:
        """Return the next unused handle."""
        self._handles += 1
        return self._handles

    def get(self, subscription: str) -> SubscriptionReader | None:
        """Return the reading of a subscription, None if it is not being read."""
        return self._by_subscription.get(subscription) or self._former.get(subscription)

    def start(self, subscription: str, handle: int, taken: int = 0, group: int | None = None) -> SubscriptionReader:
        """Start reading a subscription that is not being read."""
        reader = SubscriptionReader(handle, subscription, taken, taken, group)
        self._by_subscription[subscription] = self._by_handle[handle] = reader
        self._former.pop(subscription, None)
        return reader

    def finish(self, subscription: str) -> None:
        """Read a subscription no further, since another device does."""
        if (reader := self.get(subscription)) is not None:
            reader.is_finished = True

    def stop(self, subscription: str) -> SubscriptionReader | None:
        """Stop reading a subscription; return its reading, or None."""
        if (reader := self._by_subscription.pop(subscription, None)) is not None:
            del self._by_handle[reader.handle]
            self._former = {former: each for former, each in self._former.items() if each is not reader}
        return reader

    def succeed(self, ended: str, successor: str) -> SubscriptionReader | None:
        """Read ``successor`` instead of ``ended``, unless it is being read already; return the reading."""
        present = self._by_subscription.get(successor)
        if present is not None and (former := self._by_subscription.get(ended)) is not None:
            present.recognise(former)
        if present is not None or (reader := self._by_subscription.pop(ended, None)) is None:
            return None
        reader.subscription = successor
        self._by_subscription[successor] = self._former[ended] = reader
        if len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]
        return reader

    def of(self, handles: Sequence[int], subscriptions: Iterable[str]) -> list[SubscriptionReader]:
        """Return the readings with these handles; without handles, those of these subscriptions."""
        found = map(self._by_handle.get, handles) if handles else map(self._by_subscription.get, subscriptions)
        return [reader for reader in found if reader is not None]

    def keep(self, in_common: Callable[[int], int]) -> None:
        """Go on in another stream; ``in_common`` returns the highest number up to one that is the same there."""
        for reader in self._by_handle.values():
            reader.keep(in_common)

    def all(self) -> Collection[SubscriptionReader]:
        """Return all readings."""
        return self._by_handle.values()


class Unacknowledged:
    """Sizes of the unacknowledged messages of each subscription; their sum is at most ``bytes_max``.

    One message of each subscription is not counted, since one may always be in flight.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_subscription: dict[str, deque[tuple[Position, int]]] = {}

    def add(self, subscription: str, position: Position, size: int) -> None:
        """Count a message for ``subscription``; :class:`RemoteProtocolError` beyond the bound."""
        ahead = self._by_subscription.setdefault(subscription, deque())
        counted = size if ahead else 0
        if counted and self._bytes + counted > self._bytes_max:
            raise RemoteProtocolError(
                f"the broker sent more unacknowledged bytes than untaken_bytes_max, {self._bytes_max}", None
            )
        ahead.append((position, counted))
        self._bytes += counted

    def acknowledged(self, subscription: str, position: Position) -> None:
        """Remove messages of ``subscription`` up to ``position``: they were acknowledged."""
        ahead = self._by_subscription.get(subscription)
        while ahead and ahead[0][0] <= position:
            self._bytes -= ahead.popleft()[1]

    def first(self, subscription: str) -> Position | None:
        """Return the first position of ``subscription`` that is not acknowledged, None if all are."""
        ahead = self._by_subscription.get(subscription)
        return ahead[0][0] if ahead else None

    def succeed(self, ended: str, successor: str) -> None:
        """Count the messages of ``ended`` for ``successor``, which replaces it."""
        if (ahead := self._by_subscription.pop(ended, None)) is not None:
            self._by_subscription[successor] = ahead

    def discard(self, subscription: str) -> None:
        """Remove all messages of ``subscription``: the application no longer reads it."""
        for _, counted in self._by_subscription.pop(subscription, ()):
            self._bytes -= counted


def read_message(readers: Iterable[SubscriptionReader], position: Callable[[int], Position]) -> protocol.Read:
    """Return the message that announces these readings to the broker; ``position`` returns that of a number."""
    return protocol.Read(
        tuple(
            protocol.Reader(each.handle, each.subscription, position(each.taken) if each.taken else None, each.group)
            for each in readers
        )
    )
