"""Agents of one process, which publish at a rate until an order ends it."""

from __future__ import annotations

import asyncio
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Final

TICK_S: Final = 0.01


class Party(ABC):
    """All agents of the process.

    :param rate_per_s: events a second
    """

    def __init__(self, rate_per_s: float) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._rate_per_s = rate_per_s
        self.stop, self.end = asyncio.Event(), asyncio.Event()

    @abstractmethod
    def _publish_one(self) -> None:
        """Begin to publish an event, unless too much is unanswered."""

    async def _publish(self) -> None:
        """Publish until the order to stop."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self.stop.is_set():
            now = loop.time()
            # After a long pause the rate is not made up for.
            due = max(due, now - 1.0)
            count = max(0, math.ceil((now - due) * self._rate_per_s))
            due += count / self._rate_per_s
            self._begin_publishes(count)
            await asyncio.sleep(TICK_S)

    def _begin_publishes(self, count: int) -> None:
        for _ in range(0 if self.stop.is_set() else count):
            self._publish_one()

    def finish(self) -> None:
        """End everything."""
        self.stop.set()
        self.end.set()

    def _begin(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
