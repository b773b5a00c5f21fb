"""Progress of the engine: its watermark, the rate and the latency of the last events (SPEC T-06)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from wanderbus.pipeline.engine.chunks import MatchChunk

RATE_OVER_S: Final = 5.0
"""Time over which the rate is measured."""


class EngineProgress(msgspec.Struct, frozen=True):
    """Progress after a batch: there are matches of the log up to ``offset``, ``lag`` records before its durable end.

    ``latency_s`` is the age of the oldest event of the last batch with events, None before the first one.
    """

    offset: int
    lag: int
    subscriptions: int
    events: int
    events_per_s: float
    latency_s: float | None


class Meter:
    """Counter of the events of one beginning."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, wall_us: Callable[[], int] = lambda: time.time_ns() // 1_000
    ) -> None:
        self._now_s = now_s
        self._wall_us = wall_us
        self._marks = [(now_s(), 0)]
        """Times with the number of events until then, the first of them about :data:`RATE_OVER_S` ago."""
        self._events = 0
        self._latency_s: float | None = None

    def count(self, chunks: Sequence[MatchChunk], durable: int, subscriptions: int) -> EngineProgress:
        """Count the events of a batch; ``durable`` is the end of the log."""
        now_s = self._now_s()
        events = sum(chunk.events for chunk in chunks)
        self._events += events
        if events:
            oldest_us = min(chunk.oldest_us for chunk in chunks if chunk.events)
            self._latency_s = max(0.0, (self._wall_us() - oldest_us) / 1e6)
        self._marks.append((now_s, self._events))
        while len(self._marks) > 2 and self._marks[1][0] <= now_s - RATE_OVER_S:
            self._marks.pop(0)
        since_s, before = self._marks[0]
        rate = (self._events - before) / (now_s - since_s) if now_s > since_s else 0.0
        end = chunks[-1].end
        return EngineProgress(end, max(0, durable - end), subscriptions, self._events, rate, self._latency_s)
