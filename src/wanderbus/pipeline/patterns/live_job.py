"""The job that finds a pattern in a growing log and hands on each batch of detections (SPEC T-07; decision 0078).

A batch that was interrupted is repeated by the next run with the same number and the same detections in the same order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wanderbus.errors import StorageError, WanderbusError
from wanderbus.patterns import Counts, Detection, Pattern
from wanderbus.patterns.bounds import Bounds
from wanderbus.pipeline.checkpoint import checkpoint_location
from wanderbus.pipeline.durable_files import write_durably
from wanderbus.pipeline.engine.engine import reason_of
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.registration import reader_name, register_place
from wanderbus.pipeline.operation.lake_lock import directory_lock
from wanderbus.pipeline.operation.query_progress import QueryProgress, RunProgress
from wanderbus.pipeline.patterns.bucket_states import BUCKETS
from wanderbus.pipeline.patterns.detections import detection_of
from wanderbus.pipeline.patterns.live_detections import COLUMNS, live_outcomes
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.runtime.log_readers import load_reader, reader_file

RECORDS_A_BATCH: Final = 100_000
"""Bound of one batch, so that the first detections of a backlog come soon."""

BATCH_S_MAX: Final = 10.0
"""Time that a stop waits for the present batch; afterwards the batch is abandoned, and the next run repeats it."""

_POLL_S: Final = 0.2
_REGISTER_S: Final = 60.0
_IDENTITY_FILE: Final = "pattern.json"
_QUERY_DIRECTORY: Final = "query"

_counts: Final = msgspec.msgpack.Decoder(Counts)

HandOn = Callable[[int, Sequence[Detection], Counts], None]
"""Function that gets the number of a batch, its detections, and the counts of what was refused in it.

It may get the last batch of an earlier run again. What it raises ends the job, and the batch is repeated.
"""


class PatternFailed(WanderbusError):
    """Spark failed; the next run with the same checkpoint continues."""


class BatchFailed(Exception):
    """A batch has failed: Spark's copy of the error that :meth:`LivePattern.run` raises."""


class _Identity(msgspec.Struct, frozen=True):
    """Log and pattern to which a checkpoint belongs."""

    log: str
    pattern: str
    bounds: Bounds
    buckets: int = BUCKETS
    children: Mapping[str, tuple[str, ...]] = {}


class LivePattern:
    """A run of ``pattern`` over ``log`` with the state in ``checkpoint``.

    :meth:`run` ends at the log's present end, or with ``every_s`` when ``stop`` is set. ``stop`` ends any run after its
    present batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Path | str,
        checkpoint: Path | str,
        pattern: Pattern,
        hand_on: HandOn,
        *,
        every_s: float | None = None,
        records_per_batch: int = RECORDS_A_BATCH,
        on_progress: Callable[[RunProgress], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._spark = spark
        self._log = Path(log).absolute()
        self._files = LogFiles(self._log)
        self._checkpoint = Path(checkpoint).absolute()
        self._reader = reader_name(self._checkpoint, "pattern")
        self._pattern = pattern
        self._hand_on = hand_on
        self._every_s = every_s
        self._records_per_batch = records_per_batch
        self._on_progress = on_progress
        self._between = threading.Lock()
        self._is_stopped = False
        self._error: BaseException | None = None
        self.stop = stop or threading.Event()

    def run(self) -> None:
        """Find the pattern in what the log has since the last run.

        Raises ``StorageError`` if another job uses the checkpoint, or if it is that of another log or pattern,
        :class:`PatternFailed` if Spark fails or the log cannot be read, and what ``hand_on`` raises.
        """
        with directory_lock(self._checkpoint):
            oldest = self._files.oldest()
            if self._is_new():
                self._register(oldest)
            query = self._start()
            try:
                self._follow(query, QueryProgress(self._log, oldest))
            except (PySparkException, Py4JError) as error:
                raise self._error or PatternFailed(f"finding the pattern failed: {reason_of(error)}") from None
            finally:
                self._end(query)

    def _start(self) -> StreamingQuery:
        records = self._spark.readStream.format(FORMAT).schema(log_schema(*COLUMNS)).option("path", str(self._log))
        records = records.option("maxRowsPerTrigger", str(self._records_per_batch))
        writer = live_outcomes(records.load(), self._pattern).writeStream.foreachBatch(self._on_batch)
        writer = writer.outputMode("append").queryName(f"wanderbus-pattern-{self._pattern.name}")
        trigger: dict[str, Any] = (
            {"availableNow": True} if self._every_s is None else {"processingTime": f"{self._every_s} seconds"}
        )
        location = checkpoint_location(self._checkpoint / _QUERY_DIRECTORY)
        return writer.option("checkpointLocation", location).trigger(**trigger).start()

    def _follow(self, query: StreamingQuery, progress: QueryProgress) -> None:
        registered_s, ended = -_REGISTER_S, None
        is_done = False
        while not is_done and not self.stop.is_set():
            is_done = bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type]
            for each in progress.ended(query):
                ended = each
                self._on_progress(each)
            if ended is not None and time.monotonic() - registered_s >= _REGISTER_S:
                registered_s = time.monotonic()
                self._register(ended.offset - ended.records)
        if is_done:
            self._register_end(None if ended is None else ended.offset)

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        with self._between:
            if self._is_stopped:
                raise BatchFailed("the job was stopped before this batch")  # not returned: Spark would record it
            try:
                detections, refused = outcomes_in(rows)
                self._hand_on(batch, detections, refused)
            except BaseException as error:  # also the end of the output
                self._error = self._error or error
                raise BatchFailed("a batch has failed") from None

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query between two batches, or after some time within one."""
        is_between = self._between.acquire(timeout=BATCH_S_MAX)
        self._is_stopped = True
        try:
            query.stop()
        except (PySparkException, Py4JError, OSError):
            pass  # Java has ended already, as after a signal to all processes
        finally:
            if is_between:
                self._between.release()

    def _register(self, offset: int) -> None:
        """Register that the log is needed from ``offset`` on.

        Within a query that is where its last recorded batch began, and after its end where that batch ended.
        """
        register_place(self._log, self._reader, self._files.place(offset))

    def _register_end(self, offset: int | None) -> None:
        """Register that the run has ended at ``offset``, where the former one ended if it is None."""
        if offset is not None:
            self._register(offset)
            return
        with suppress(FileNotFoundError):
            if (known := load_reader(reader_file(self._log, self._reader))) is not None:
                register_place(self._log, known.name, known.place)

    def _is_new(self) -> bool:
        """Require that the checkpoint is that of this log and pattern; a new one becomes it."""
        path = self._checkpoint / _IDENTITY_FILE
        wanted = _Identity(
            log_identity(self._log), self._pattern.fingerprint, self._pattern.bounds, children=self._pattern.children
        )
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Identity)
        except FileNotFoundError:
            write_durably(path, msgspec.json.encode(wanted))
            return True
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StorageError(f"{path} is damaged; begin with a new checkpoint") from None
        if found.log != wanted.log:
            raise StorageError(f"{self._checkpoint} is the checkpoint of the log {found.log}, not of {wanted.log}")
        if found != wanted:
            raise StorageError(f"{self._checkpoint} is the checkpoint of another pattern; begin with a new one")
        return False


def outcomes_in(rows: DataFrame) -> tuple[list[Detection], Counts]:
    """Return the detections of a batch, in the same order whenever it is repeated, and what was refused in it."""
    detections: list[Detection] = []
    refused = Counts()
    for detection, counts in rows.collect():
        if detection is not None:
            detections.append(detection_of(detection))
        if counts is not None:
            add_counts(refused, _counts.decode(counts))
    detections.sort(key=lambda each: (each.at_us, [taken.offset for taken in each.events], each.id))
    return detections, refused


def add_counts(total: Counts, more: Counts) -> None:
    """Add counts to others."""
    for name in Counts.__struct_fields__:
        setattr(total, name, getattr(total, name) + getattr(more, name))
