"""States of a pattern's automaton in Spark's store: one for each bucket of keys, with a timer (SPEC T-07).

Spark asks its store for each group in turn, which takes about a millisecond. So a group is a bucket of keys: a batch
with thousands of keys loads and stores a few dozen states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from zlib import crc32

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from wanderbus.patterns import NEVER_US, Counts, PatternState, Seen
from wanderbus.pipeline.patterns.spark_time import from_spark_ms, to_spark_ms
from wanderbus.pipeline.patterns.taking_part import PatternText, compiled
from wanderbus.pipeline.workers import settle

BUCKETS: Final = 64
"""Groups into which the keys are divided; a checkpoint belongs to one number of them."""

NO_BUCKET: Final = -1
"""Bucket of rows without events, which only move the watermark."""

OUTCOMES: Final = StructType([StructField("detection", BinaryType()), StructField("counts", BinaryType())])
"""Columns of the outcomes of a batch: a :class:`Detection`, or what was refused as :class:`Counts`, in msgpack."""

_STORED: Final = StructType([StructField("state", BinaryType()), StructField("timer_ms", LongType())])
_NO_COUNTS: Final = Counts()

_encode: Final = msgspec.msgpack.Encoder().encode
_several: Final = msgspec.msgpack.Decoder(list[Seen])


def bucket_of(key: str) -> int:
    """Return the bucket of a key: the same one in every process."""
    return crc32(key.encode("utf-8", "surrogatepass")) % BUCKETS


class BucketStates(StatefulProcessor):
    """The automaton of one pattern for ``groupBy(bucket).transformWithState``.

    A row has events in msgpack as ``seen``. The watermark is that of the query. Events below it are late: they are
    refused and counted. A timer wakes a bucket whose events or partial matches end by the watermark alone.
    """

    def __init__(self, pattern: PatternText) -> None:
        self._pattern = pattern

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See :class:`StatefulProcessor`."""
        self._handle = handle
        self._stored = handle.getValueState("state", _STORED)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        """Advance a bucket by the events of a batch."""
        several = [seen for row in rows if row.seen is not None for seen in _several.decode(row.seen)]
        return self._advanced(several, timerValues) if key[0] != NO_BUCKET else iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Advance a bucket by the watermark alone."""
        return self._advanced((), timerValues)

    def _advanced(self, several: Iterable[Seen], timers: TimerValues) -> Iterator[Row]:
        """Yield the outcomes of a bucket, and store its next state."""
        pattern, watermark_us = compiled(self._pattern), from_spark_ms(timers.getCurrentWatermarkInMs())
        settle()
        stored = self._stored.get()
        state, timer_ms = (pattern.start(), None) if stored is None else (pattern.load(stored[0]), stored[1])
        state, detections = pattern.advance(state, several, watermark_us, late_below_us=watermark_us)
        counts, state.counts = msgspec.structs.replace(state.counts, events=0, detections=0), Counts()
        next_ms = self._set_timer(state, timer_ms, timers.getCurrentWatermarkInMs())
        if next_ms is not None:
            self._stored.update((pattern.save(state), next_ms))
        elif stored is not None:
            self._stored.clear()
        for each in detections:
            yield Row(detection=_encode(each), counts=None)
        if counts != _NO_COUNTS:
            yield Row(detection=None, counts=_encode(counts))

    def _set_timer(self, state: PatternState, timer_ms: int | None, watermark_ms: int) -> int | None:
        """Let Spark wake the bucket as soon as something is due; return that watermark, None if nothing will be."""
        due_us = state.due_us
        next_ms = None if due_us == NEVER_US else to_spark_ms(due_us) + 1
        if next_ms != timer_ms:
            if timer_ms is not None and timer_ms > watermark_ms:
                self._handle.deleteTimer(timer_ms)
            if next_ms is not None:
                self._handle.registerTimer(next_ms)
        return next_ms
