"""Readers of one stream of events at an even pace: the pauses of what they receive, and what is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, Final

SETTLED_S: Final = 1.0
"""Time for the last events to arrive."""


class Streams:
    """Events that each reader has received, and when; :attr:`count` events were published, ``per_s`` a second."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self.received: list[list[tuple[float, int]]] = []
        self.count = 0

    def reader(self) -> Callable[[int], None]:
        """Return what takes the numbers of the events of a further reader."""
        own: list[tuple[float, int]] = []
        self.received.append(own)
        return lambda number: own.append((time.monotonic(), number))

    async def read(self, subscription: Any) -> None:
        """Read a subscription as a further reader, until cancelled."""
        take = self.reader()
        async for notification in subscription:
            take(int(str(notification.event["Number"])))

    @contextlib.asynccontextmanager
    async def publishing(self, publish: Callable[[int], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
        """Publish numbered events during the block, and wait until all are accepted."""
        is_over, waiting = asyncio.Event(), set[asyncio.Task[None]]()

        async def run() -> None:
            began_s = time.monotonic()
            while not is_over.is_set():
                self.count += 1
                task = asyncio.create_task(publish(self.count))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                await asyncio.sleep(began_s + self.count / self._per_s - time.monotonic())

        running = asyncio.create_task(run())
        try:
            yield
        finally:
            is_over.set()
            await running
            await asyncio.gather(*waiting)
            await asyncio.sleep(SETTLED_S)

    def times(self, reader: int = 0) -> list[float]:
        """Return when the events of a reader came."""
        return [at for at, _ in self.received[reader]]

    def faults(self) -> dict[str, int]:
        """Return what the readers lack, have twice, or have after a later one."""
        return faults_in([[number for _, number in own] for own in self.received], self.count)


def faults_in(received: Sequence[Sequence[int]], count: int) -> dict[str, int]:
    """Return what readers lack of ``count`` events, have twice, or have after a later one."""
    return {
        "lost": sum(count - len(set(each)) for each in received),
        "repeated": sum(len(each) - len(set(each)) for each in received),
        "out_of_order": sum(later < before for each in received for before, later in pairwise(each)),
    }


def pause_ms(times: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest pause between two events that lies at least in part between two times."""
    found = [later - before for before, later in pairwise(times) if later >= begin_s and before < end_s]
    return 1e3 * max(found, default=end_s - begin_s)
