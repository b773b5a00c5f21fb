"""Who gets which notification, and how far all have got (DESIGN 5.2, 5.5).

The session's stream is one; an application may read it through several :class:`Notifications`. A place in it is
taken when every subscription that it concerns has been served, with a notification or with a gap (SPEC U-02), and
the broker is told the number up to which everything is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from wanderbus.event import Gap, Notification

Item = Notification | Gap

FORMER_MAX: Final = 1_024
"""Ended subscriptions for whose notifications another one stands, at once; the stream is past the oldest by then."""

_ANYBODY: Final = ""
"""Stands for a subscription where a loss that names none waits for the first reader there is."""


class Reader(Protocol):
    """One consumer's place to put items for it."""

    def put(self, item: Item) -> None:
        """Hand over ``item``; the reader says :meth:`Dispatcher.took` when the application has taken it."""
        ...


AnyReader = TypeVar("AnyReader", bound=Reader)


class _Untaken(msgspec.Struct):
    """An item, and the subscriptions that have not been served with it."""

    item: Item
    waiting: set[str]


class Dispatcher(Generic[AnyReader]):
    """Sorts a session's stream to its readers and keeps count of what has been taken."""

    def __init__(self) -> None:
        self.epoch = 0
        """Of the stream that flows: what was not taken of an earlier one is nobody's business any more."""
        self.taken = 0
        """Everything up to this number has been taken."""
        self._readers: dict[str, AnyReader] = {}
        self._ended: set[str] = set()
        self._successors: dict[str, str] = {}
        """Of ended subscriptions, those whose readers have their notifications now."""
        self._untaken: dict[int, _Untaken] = {}
        """By number, in order."""
        self._unclaimed: set[int] = set()
        """Numbers that some subscription without a reader waits for."""

    @property
    def unclaimed(self) -> Sequence[str]:
        """Return the subscriptions that have notifications here and no reader."""
        missing = {s for number in self._unclaimed for s in self._untaken[number].waiting}
        return sorted(missing - self._readers.keys() - {_ANYBODY})

    def reader(self, subscription: str) -> AnyReader | None:
        """Return who has claimed ``subscription``."""
        return self._readers.get(subscription)

    def arrived(self, item: Item) -> int | None:
        """Pass ``item`` on; return the number to acknowledge if that has risen."""
        number = item.position.number
        if item.position.epoch != self.epoch:
            self.epoch, self.taken = item.position.epoch, 0
            self._untaken.clear()
            self._unclaimed.clear()
        waiting = self._concerned(item)
        self._untaken[number] = _Untaken(item, waiting)
        for subscription in waiting:
            if reader := self._readers.get(subscription):
                reader.put(self._share(item, subscription))
            else:
                self._unclaimed.add(number)
        return self._advance()

    def claim(self, subscription: str, reader: AnyReader) -> None:
        """Let ``reader`` have what comes, and what has come, for ``subscription``."""
        self._ended.discard(subscription)
        self._readers[subscription] = reader
        for number in sorted(self._unclaimed):
            untaken = self._untaken[number]
            if _ANYBODY in untaken.waiting:
                untaken.waiting.discard(_ANYBODY)
                untaken.waiting.add(subscription)
            if subscription in untaken.waiting:
                reader.put(self._share(untaken.item, subscription))
                self._forget_claimed(number)

    def inherit(self, ended: str, heir: str, is_wanted: Callable[[Notification], bool]) -> None:
        """Let what waits here for the subscription ``ended``, and is wanted, wait for ``heir`` in its place."""
        for number in self._unclaimed:
            untaken = self._untaken[number]
            if isinstance(untaken.item, Notification) and ended in untaken.waiting and is_wanted(untaken.item):
                untaken.waiting.discard(ended)
                untaken.waiting.add(heir)

    def succeed(self, ended: str, successor: str) -> None:
        """Let ``successor``, which nobody has claimed, stand for ``ended`` from now on: its reader, and its items."""
        assert successor not in self._readers, successor
        for former, present in self._successors.items():
            if present == ended:
                self._successors[former] = successor
        self._successors[ended] = successor
        if len(self._successors) > FORMER_MAX:
            del self._successors[next(iter(self._successors))]
        for untaken in self._untaken.values():
            if ended in untaken.waiting:
                untaken.waiting.discard(ended)
                untaken.waiting.add(successor)
        if (reader := self._readers.pop(ended, None)) is not None:
            self._readers[successor] = reader

    def release(self, subscription: str, *, ended: bool) -> int | None:
        """End a reader. What it has not taken waits for the next one, or is done with if the subscription ended."""
        self._readers.pop(subscription, None)
        its_own = [number for number, untaken in self._untaken.items() if subscription in untaken.waiting]
        if not ended:
            self._unclaimed.update(its_own)
            return None
        self._ended.add(subscription)
        for number in its_own:
            self._untaken[number].waiting.discard(subscription)
            self._forget_claimed(number)
        return self._advance()

    def took(self, subscription: str, number: int) -> int | None:
        """The reader of ``subscription`` has taken all its items up to ``number``."""
        for each, untaken in self._untaken.items():
            if each > number:
                break
            untaken.waiting.discard(subscription)
        return self._advance()

    def _concerned(self, item: Item) -> set[str]:
        """Return the subscriptions that have to be served with ``item``."""
        named = [loss.subscription for loss in item.lost]
        if isinstance(item, Notification):
            named += item.subscriptions
        elif not named and item.reason:
            named = [_ANYBODY]
        concerned = {self._successors.get(each, each) for each in named} - self._ended
        if _ANYBODY in concerned and self._readers:
            concerned |= self._readers.keys()
            concerned.discard(_ANYBODY)
        return concerned

    def _share(self, item: Item, subscription: str) -> Item:
        """Return what of ``item`` concerns ``subscription``: the whole of it, or a gap.

        Of losses that name no subscription any of those that are not named may have had some (SPEC U-02).
        """
        if not item.lost:
            return item
        its_own = tuple([s for s in item.lost if self._present(s.subscription) == subscription])
        served = item.subscriptions if isinstance(item, Notification) else ()
        if not its_own and subscription not in map(self._present, served):
            its_own = tuple([s for s in item.lost if s.subscription == _ANYBODY])
        if not its_own:
            return item
        reasons = ", ".join(dict.fromkeys(loss.reason for loss in its_own))
        return Gap(sum(loss.count for loss in its_own), reasons, item.position, its_own)

    def _present(self, subscription: str) -> str:
        return self._successors.get(subscription, subscription)

    def _forget_claimed(self, number: int) -> None:
        if self._untaken[number].waiting <= self._readers.keys():
            self._unclaimed.discard(number)

    def _advance(self) -> int | None:
        before = self.taken
        while self._untaken and not (first := next(iter(self._untaken.items())))[1].waiting:
            self.taken = first[0]
            del self._untaken[self.taken]
        return self.taken if self.taken > before else None
