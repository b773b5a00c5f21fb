"""Who gets which notification, and how far all have got (DESIGN 5.2, 5.5).

The session's stream is one; an application may read it through several :class:`Notifications`. A notification
is taken when every subscription it is for has been served, and the broker is told the number up to which
everything is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from wanderbus.event import Gap, Notification

Item = Notification | Gap

_ANYBODY: Final = ""
"""Stands for a subscription where a gap waits for the first reader there is."""


class Reader(Protocol):
    """One consumer's place to put items for it."""

    def put(self, item: Item) -> None:
        """Hand over ``item``; the reader says :meth:`Dispatcher.took` when the application has taken it."""
        ...


class Dispatcher:
    """Sorts a session's stream to its readers and keeps count of what has been taken."""

    def __init__(self) -> None:
        self.taken = 0
        """Everything up to this number has been taken."""
        self._readers: dict[str, Reader] = {}
        self._ended: set[str] = set()
        self._open: deque[tuple[int, set[str]]] = deque()
        self._waiting_for: dict[int, set[str]] = {}
        self._unclaimed: dict[int, Item] = {}

    @property
    def unclaimed(self) -> Sequence[str]:
        """Return the subscriptions that have notifications here and no reader."""
        missing = {s for number in self._unclaimed for s in self._waiting_for.get(number, ())}
        return sorted(missing - self._readers.keys() - {_ANYBODY})

    def is_read(self, subscription: str) -> bool:
        """Return whether a reader has claimed ``subscription``."""
        return subscription in self._readers

    def arrived(self, item: Item) -> int | None:
        """Pass ``item`` on; return the number to acknowledge if that has risen."""
        number = item.position.number
        if isinstance(item, Gap):
            for reader in self._readers.values():
                reader.put(item)
            waiting: set[str] = set() if self._readers else {_ANYBODY}
            if waiting:
                self._unclaimed[number] = item
        else:
            waiting = set(item.subscriptions) - self._ended
            self._hand_over(item, waiting)
        self._open.append((number, waiting))
        self._waiting_for[number] = waiting
        return self._advance()

    def claim(self, subscription: str, reader: Reader) -> int | None:
        """Let ``reader`` have what comes, and what has come, for ``subscription``; return as :meth:`arrived` does."""
        self._ended.discard(subscription)
        self._readers[subscription] = reader
        for number, item in list(self._unclaimed.items()):
            waiting = self._waiting_for.get(number, set())
            if isinstance(item, Gap) or subscription in waiting:
                reader.put(item)
                waiting.discard(_ANYBODY)
                if not waiting - self._readers.keys():
                    del self._unclaimed[number]
        return self._advance()

    def inherit(self, ended: str, heir: str, is_wanted: Callable[[Notification], bool]) -> None:
        """Let what waits here for the subscription ``ended``, and is wanted, wait for ``heir`` in its place."""
        for number, item in self._unclaimed.items():
            waiting = self._waiting_for.get(number, set())
            if isinstance(item, Notification) and ended in waiting and is_wanted(item):
                waiting.discard(ended)
                waiting.add(heir)

    def release(self, subscription: str, untaken: Iterable[Item], *, ended: bool) -> int | None:
        """End a reader. Its ``untaken`` items wait for the next one, or are done with if the subscription ended."""
        self._readers.pop(subscription, None)
        if not ended:
            self._unclaimed.update((item.position.number, item) for item in untaken)
            self._unclaimed = dict(sorted(self._unclaimed.items()))
            return None
        self._ended.add(subscription)
        for number, waiting in self._open:
            waiting.discard(subscription)
            if not waiting:
                self._unclaimed.pop(number, None)
        return self._advance()

    def took(self, subscription: str, number: int) -> int | None:
        """The reader of ``subscription`` has taken all its items up to ``number``."""
        for each, waiting in self._open:
            if each > number:
                break
            waiting.discard(subscription)
        return self._advance()

    def _hand_over(self, item: Notification, waiting: set[str]) -> None:
        for subscription in item.subscriptions:
            if subscription in waiting and (reader := self._readers.get(subscription)):
                reader.put(item)
        if waiting - self._readers.keys():
            self._unclaimed[item.position.number] = item

    def _advance(self) -> int | None:
        before = self.taken
        while self._open and not self._open[0][1]:
            self.taken, _ = self._open.popleft()
            del self._waiting_for[self.taken]
        return self.taken if self.taken > before else None
