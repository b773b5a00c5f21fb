"""Spark's part in a live pattern without Spark: grouping, watermark, states and timers of ``transformWithState``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from wanderbus.patterns import Counts, Detection, Pattern
from wanderbus.pipeline.patterns.bucket_states import BucketStates
from wanderbus.pipeline.patterns.detections import detection_of
from wanderbus.pipeline.patterns.live_detections import packed
from wanderbus.pipeline.patterns.live_job import add_counts
from wanderbus.pipeline.patterns.spark_time import from_spark_ms
from wanderbus.pipeline.patterns.taking_part import text_of


class FakeQuery:
    """A query that does a batch at a time; every batch has a new process, so only the store is kept."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._store = _Store()
        self.watermark_ms = 0
        self.detections: list[Detection] = []
        self.counts = Counts()

    @property
    def watermark_us(self) -> int:
        """The watermark in the time of events; that before all times if there is none yet."""
        return from_spark_ms(self.watermark_ms)

    @property
    def stored(self) -> int:
        """Number of states and timers in the store."""
        return len(self._store.states) + sum(map(len, self._store.timers.values()))

    def batch(self, parts: Sequence[pa.RecordBatch]) -> None:
        """Process the records of some tasks, and then an empty batch if the watermark has moved."""
        rows = [row for part in parts for row in _rows_of(packed(self._pattern, part))]
        self._run(rows)
        lateness_ms = -(-self._pattern.lateness_us // 1_000)
        latest_ms = max((row["at"] // 1_000 - lateness_ms for row in rows), default=0)
        if latest_ms > self.watermark_ms:
            self.watermark_ms = latest_ms
            self._run([])

    def _run(self, rows: Sequence[dict[str, Any]]) -> None:
        processor = BucketStates(text_of(self._pattern))
        processor.init(self._store)  # type: ignore[arg-type]
        timers = TimerValues(0, self.watermark_ms)
        for bucket in sorted({row["bucket"] for row in rows}):
            self._store.key = bucket
            own = (Row(seen=row["seen"]) for row in rows if row["bucket"] == bucket)
            self._take(processor.handleInputRows((bucket,), own, timers))
        for bucket, at_ms in self._store.expired(self.watermark_ms):
            self._store.key = bucket
            self._take(processor.handleExpiredTimer((bucket,), timers, ExpiredTimerInfo(at_ms)))
            self._store.timers[bucket].discard(at_ms)

    def _take(self, outcomes: Iterator[Row]) -> None:
        for detection, counts in outcomes:
            if detection is not None:
                self.detections.append(detection_of(detection))
            if counts is not None:
                add_counts(self.counts, msgspec.msgpack.decode(counts, type=Counts))


class _Store:
    """Handle and value state of one partition."""

    def __init__(self) -> None:
        self.key = 0
        self.states: dict[int, tuple[Any, ...]] = {}
        self.timers: dict[int, set[int]] = {}

    def getValueState(self, name: str, schema: object) -> _Store:  # noqa: N802 (Spark's name)
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.states.get(self.key)

    def update(self, value: tuple[Any, ...]) -> None:
        self.states[self.key] = value

    def clear(self) -> None:
        del self.states[self.key]

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802
        assert at_ms > 0, "Spark never fires a timer before 1970"
        self.timers.setdefault(self.key, set()).add(at_ms)

    def deleteTimer(self, at_ms: int) -> None:  # noqa: N802
        self.timers[self.key].remove(at_ms)

    def expired(self, watermark_ms: int) -> list[tuple[int, int]]:
        return [(key, at_ms) for key, several in self.timers.items() for at_ms in several if at_ms <= watermark_ms]


def _rows_of(packed: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows with their times as numbers: Spark has no bounds where Python's calendar ends."""
    rows: list[dict[str, Any]] = packed.set_column(1, "at", packed.column("at").cast(pa.int64())).to_pylist()
    return rows
