"""Reading of history for subscriptions, in threads beside the event loop (SPEC T-05).

Lookups may search the whole log, so they have a thread of their own; the pieces come one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetFound, OffsetWanted
from wanderbus.machine import Input
from wanderbus.runtime.log.history_source import HistorySource, find_offset, read_history


class HistoryReading:
    """Answers the broker's questions about the past from ``sources``, the first of which is its own log."""

    def __init__(self, sources: Sequence[HistorySource], feed: Callable[[Input], None]) -> None:
        self._sources = sources
        self._feed = feed
        self._lookups = ThreadPoolExecutor(1, "wanderbus-lookup")
        self._pieces = ThreadPoolExecutor(1, "wanderbus-history")
        self._is_closed = False

    def look_up(self, wanted: OffsetWanted) -> None:
        """Feed the offset that is wanted."""
        self._answer(asyncio.get_running_loop().run_in_executor(self._lookups, find_offset, self._sources, wanted))

    def read(self, wanted: HistoryWanted) -> None:
        """Feed the piece that is wanted."""
        self._answer(asyncio.get_running_loop().run_in_executor(self._pieces, read_history, self._sources, wanted))

    def close(self) -> None:
        """Feed nothing from now on."""
        self._is_closed = True
        for executor in (self._lookups, self._pieces):
            executor.shutdown(wait=False, cancel_futures=True)

    def _answer(self, coming: asyncio.Future[OffsetFound] | asyncio.Future[HistoryRead]) -> None:
        def feed(done: asyncio.Future[OffsetFound] | asyncio.Future[HistoryRead]) -> None:
            if not self._is_closed and not done.cancelled():
                self._feed(done.result())

        coming.add_done_callback(feed)
