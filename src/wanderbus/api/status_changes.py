"""What an application hears of its agent's status: every change from the call on, none missed (SPEC E-07)."""

from __future__ import annotations

import asyncio
import weakref
from typing import Self

import msgspec


class StatusChange(msgspec.Struct, frozen=True):
    """The agent became ``CONNECTED`` or ``DISCONNECTED``, or completed a move; ``address`` is where its data goes."""

    status: str
    address: str
    at_us: int
    reason: str


class StatusChanges:
    """An async iterator over the changes since it was made; it ends when the agent is closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[StatusChange | None] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StatusChange:
        change = None if self._ended else await self._queue.get()
        if change is None:
            self._ended = True
            raise StopAsyncIteration
        return change

    def put(self, change: StatusChange | None) -> None:
        """Take a change to be read, None for the end (the agent's side of this object)."""
        self._queue.put_nowait(change)


class Watchers:
    """All iterators of one agent; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._watching: weakref.WeakSet[StatusChanges] = weakref.WeakSet()
        self._closed = False

    def watch(self) -> StatusChanges:
        """Return an iterator over every change from now on; an ended one if there will be none."""
        changes = StatusChanges()
        if self._closed:
            changes.put(None)
        else:
            self._watching.add(changes)
        return changes

    def tell(self, change: StatusChange) -> None:
        """Let every iterator have ``change``."""
        for each in list(self._watching):
            each.put(change)

    def close(self) -> None:
        """End every iterator once it has been read to here."""
        self._closed = True
        for each in list(self._watching):
            each.put(None)
        self._watching.clear()
