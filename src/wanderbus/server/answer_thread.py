"""Thread beside the event loop for answers that take time: they come from files or from a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from wanderbus.machine import Input


class AnswerThread:
    """The thread ``name``, which computes one answer at a time and feeds it in the event loop."""

    def __init__(self, name: str, feed: Callable[[Input], None]) -> None:
        self._feed = feed
        self._executor = ThreadPoolExecutor(1, name)
        self._is_closed = False

    def ask(self, answer: Callable[[], Input]) -> None:
        """Feed the result of ``answer`` once it has returned."""
        asyncio.get_running_loop().run_in_executor(self._executor, answer).add_done_callback(self._on_answer)

    def close(self) -> None:
        """Feed nothing from now on."""
        self._is_closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _on_answer(self, done: asyncio.Future[Input]) -> None:
        if not self._is_closed and not done.cancelled():
            self._feed(done.result())
