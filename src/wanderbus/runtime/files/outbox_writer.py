"""Group commit of an agent's outbox: a thread writes; operations that arrive meanwhile go into the next commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from wanderbus.errors import Closed, StorageError
from wanderbus.runtime.files.outbox_file import OutboxFile

RETRY_S: Final = 1.0
"""Pause before another attempt to remove events, or to renew the epoch, after a failure, for example of a full disk."""

_Batch = list[tuple[bytes, asyncio.Future[int]]]


class OutboxWriter:
    """Owner of an outbox's file; ``on_removed(numbers)`` is called on the loop when removals are durable."""

    def __init__(self, file: OutboxFile, on_removed: Callable[[Sequence[int]], None]) -> None:
        self.commits = 0
        self._file = file
        self._on_removed = on_removed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "wanderbus-outbox")
        self._events: _Batch = []
        self._removed: list[int] = []
        self._renewed: asyncio.Future[None] | None = None
        self._commit: asyncio.Future[int] | None = None
        self._closed = False

    def append(self, event: bytes) -> asyncio.Future[int]:
        """Store ``event`` after all earlier ones; return a future of its number, or of a :class:`StorageError`.

        The event is stored even if the caller stops waiting, so the future must not be cancelled.
        """
        stored: asyncio.Future[int] = self._loop.create_future()
        self._events.append((event, stored))
        self._go_on()
        return stored

    def remove(self, number: int) -> None:
        """Remove the event ``number``."""
        self._removed.append(number)
        self._go_on()

    def renew(self) -> asyncio.Future[None]:
        """Give the events that stay after all earlier removals a new epoch; return a future that ends when it is so."""
        if self._renewed is None:
            self._renewed = self._loop.create_future()
        self._go_on()
        return self._renewed

    async def finish(self) -> None:
        """Wait until all operations are written or have failed."""
        while self._commit is not None:
            await asyncio.wait([self._commit])

    def close(self) -> None:
        """Close the file, once; pending operations fail with :class:`Closed`. Blocks for one commit at most."""
        if self._closed:
            return
        self._closed = True
        for _, stored in self._events:
            stored.set_exception(Closed("the agent was closed"))
        self._events.clear()
        self._thread.submit(self._file.close)
        self._thread.shutdown()

    def _go_on(self) -> None:
        if self._commit is not None or self._closed or not (self._events or self._removed or self._renewed):
            return
        events, self._events = self._events, []
        removed, self._removed = self._removed, []
        renewed = self._renewed
        write = partial(self._file.write, [event for event, _ in events], removed, renews=renewed is not None)
        self._commit = self._loop.run_in_executor(self._thread, write)
        self._commit.add_done_callback(partial(self._written, events, removed, renewed))

    def _written(
        self, events: _Batch, removed: list[int], renewed: asyncio.Future[None] | None, commit: asyncio.Future[int]
    ) -> None:
        self._commit = None
        try:
            first = commit.result()
        except StorageError as error:
            self._failed(events, removed, error)
            return
        self.commits += 1
        for number, (_, stored) in enumerate(events, first):
            stored.set_result(number)
        self._on_removed(removed)
        if renewed is not None:
            self._renewed = None
            renewed.set_result(None)
        self._go_on()

    def _failed(self, events: _Batch, removed: list[int], error: StorageError) -> None:
        for _, stored in events:
            stored.set_exception(error)
        self._removed = removed + self._removed
        if self._events:
            self._go_on()
        elif self._removed or self._renewed:
            self._loop.call_later(RETRY_S, self._go_on)
