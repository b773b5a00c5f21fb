"""Reading of history for subscriptions, in threads beside the event loop (SPEC T-05).

Lookups may search the whole log, so they have a thread of their own; the pieces come one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from wanderbus.broker.messages import HistoryWanted, OffsetWanted
from wanderbus.machine import Input
from wanderbus.runtime.log.history_source import HistorySource, find_offset, read_history
from wanderbus.server.answer_thread import AnswerThread


class HistoryReading:
    """Answers the broker's questions about the past from ``sources``, the first of which is its own log."""

    def __init__(self, sources: Sequence[HistorySource], feed: Callable[[Input], None]) -> None:
        self._sources = sources
        self._lookups = AnswerThread("wanderbus-lookup", feed)
        self._pieces = AnswerThread("wanderbus-history", feed)

    def look_up(self, wanted: OffsetWanted) -> None:
        """Feed the offset that is wanted."""
        self._lookups.ask(partial(find_offset, self._sources, wanted))

    def read(self, wanted: HistoryWanted) -> None:
        """Feed the piece that is wanted."""
        self._pieces.ask(partial(read_history, self._sources, wanted))

    def close(self) -> None:
        """Feed nothing from now on."""
        self._lookups.close()
        self._pieces.close()
