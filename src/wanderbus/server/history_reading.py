"""Reading of history for subscriptions and of channels by number, in threads beside the event loop (SPEC T-05, K-03).

Lookups may search the whole log, so they have a thread of their own; so has the history of channels. The pieces come
one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from wanderbus.broker.messages import EventsWanted, HistoryWanted, OffsetWanted
from wanderbus.machine import Input
from wanderbus.runtime.log.channel_events import ChannelEvents
from wanderbus.runtime.log.history_source import HistorySource, find_offset, read_history
from wanderbus.server.answer_thread import AnswerThread


class HistoryReading:
    """Answers the broker's questions about the past from ``sources``, the first of which is its own log.

    ``channels`` reads other sources than these: each is used by the thread of one kind of questions.
    """

    def __init__(
        self, sources: Sequence[HistorySource], channels: ChannelEvents, feed: Callable[[Input], None]
    ) -> None:
        self._sources = sources
        self._channels = channels
        self._lookups = AnswerThread("wanderbus-lookup", feed)
        self._pieces = AnswerThread("wanderbus-history", feed)
        self._events = AnswerThread("wanderbus-channel", feed)

    def look_up(self, wanted: OffsetWanted) -> None:
        """Feed the offset that is wanted."""
        self._lookups.ask(partial(find_offset, self._sources, wanted))

    def read(self, wanted: HistoryWanted) -> None:
        """Feed the piece that is wanted."""
        self._pieces.ask(partial(read_history, self._sources, wanted))

    def read_events(self, wanted: EventsWanted) -> None:
        """Feed the events of a channel that are wanted."""
        self._events.ask(partial(self._channels.read, wanted))

    def close(self) -> None:
        """Feed nothing from now on."""
        self._lookups.close()
        self._pieces.close()
        self._events.close()
