"""The streaming query of the engine: the workers match each batch of records, and the matches are handed on in order.

SPEC T-06. The stream has offsets only, which cost nothing; the tasks read the log themselves (decision 0066). Only the
server knows which matches it has. So the checkpoint is in a temporary directory and begins empty.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.core.broadcast import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StructField, StructType

from wanderbus.matching import load_kernel
from wanderbus.pipeline.checkpoint import checkpoint_location
from wanderbus.pipeline.engine.batches import Batches, EngineBatch, in_order
from wanderbus.pipeline.engine.chunks import MatchChunk, chunks_of
from wanderbus.pipeline.engine.worker_index import index_of
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.pipeline.workers import settle
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.engine import Begin

SETTINGS: Final = {
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of the session of an engine, whose query runs for months. Spark keeps one report less than this number.

The other manager of checkpoints starts a process for each file, to set its permissions: 50 ms for each batch.
"""

ATTEMPTS: Final = 4
"""Attempts of a task: the process of a worker may be killed."""

BATCH_EACH_S: Final = 0.1
"""Least time between the begins of two batches, which cost about the same however few events they have."""

RECORDS_A_BATCH: Final = 20_000
"""Bound of one batch, so that the first matches of a backlog come soon."""

WARM_EACH_S: Final = 20.0
"""Pause between two empty batches of an idle query. Spark ends the processes of workers that are idle for a minute."""

_MEMORY: Final = Path("/dev/shm")

_CHUNKS: Final = StructType([StructField("chunk", BinaryType())])
"""Columns of the result of a task; as a text they would be parsed each time, which takes longer than the task."""

_chunks: Final = msgspec.msgpack.Decoder(MatchChunk)

HandOn = Callable[[list[MatchChunk], int], None]
"""Function that gets the chunks of each batch and the number of subscriptions; it may wait, and the query with it."""


def local_master(cores: int) -> str:
    """Return the master for ``cores`` threads of this machine that try a failed task again."""
    return f"local[{cores},{ATTEMPTS}]"


class BatchFailed(Exception):
    """A batch has failed: Spark's copy of :attr:`EngineQuery.error`."""


class EngineQuery:
    """The query of one beginning, from :meth:`start` to :meth:`stop`."""

    def __init__(self, spark: SparkSession, log: Path, begin: Begin, hand_on: HandOn) -> None:
        self._spark = spark
        self._log = log.absolute()
        self._filter_work_max, self._parents = begin.filter_work_max, begin.parents
        self._hand_on = hand_on
        self._shared: list[Broadcast[bytes]] = []
        self._cores = spark.sparkContext.defaultParallelism
        self._batches = Batches(self._log, begin, self._share)
        self._matching = threading.Lock()
        self._matched_s = time.monotonic()
        self._checkpoint: Path | None = None
        self._query: StreamingQuery | None = None
        self.error: Exception | None = None
        """First error of a batch."""

    def start(self) -> StreamingQuery:
        """Start the query."""
        memory = _MEMORY if _MEMORY.is_dir() else None
        self._checkpoint = Path(tempfile.mkdtemp(prefix="wanderbus-engine-", dir=memory))
        records = self._spark.readStream.format(FORMAT).schema(log_schema("offset")).option("path", str(self._log))
        records = records.option("maxRowsPerTrigger", str(RECORDS_A_BATCH))
        records = records.option("startingOffset", str(self._batches.next))
        writer = records.load().writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", checkpoint_location(self._checkpoint))
        self._query = writer.trigger(processingTime=f"{BATCH_EACH_S} seconds").start()
        return self._query

    def stop(self) -> None:
        """End the query; what it was doing is discarded."""
        try:
            if self._query is not None:
                self._query.stop()
            self._discard(0)
        except (PySparkException, Py4JError, OSError):
            pass  # Spark has ended already, as after a signal to all processes
        finally:
            if self._checkpoint is not None:
                shutil.rmtree(self._checkpoint, ignore_errors=True)

    def keep_warm(self) -> None:
        """Let every core do an empty task, if there was nothing to do for some time: their indexes are up to date."""
        if time.monotonic() - self._matched_s > WARM_EACH_S:
            with self._matching:
                self._run(EngineBatch([[]] * self._cores, self._batches.version))
                self._matched_s = time.monotonic()

    def _on_batch(self, _: DataFrame, batch: int) -> None:
        """Match all durable records: those of the batch, and those that have become durable since it was planned."""
        try:
            first = self._batches.next
            end = min(durable_end(self._log), first + RECORDS_A_BATCH)
            if first < end:
                with self._matching:
                    chunks = in_order(self._run(self._batches.take(end, self._cores)), first, end)
                    self._matched_s = time.monotonic()
                self._hand_on(chunks, self._batches.subscriptions)
        except Exception as error:
            self.error = self.error or error
            # Spark would search the text of Java's error with an expression that overflows the stack of its thread.
            raise BatchFailed("a batch has failed") from None

    def _share(self, data: bytes) -> Broadcast[bytes]:
        """Make bytes available to the workers, and discard those that no coming task needs."""
        self._discard(1)
        self._shared.append(self._spark.sparkContext.broadcast(data))
        return self._shared[-1]

    def _discard(self, kept: int) -> None:
        while len(self._shared) > kept:
            self._shared.pop(0).destroy()

    def _run(self, given: EngineBatch) -> list[MatchChunk]:
        """Match a batch in the workers."""
        tasks, version = given.tasks, given.version
        filter_work_max, parents = self._filter_work_max, self._parents

        def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            index = index_of(version, filter_work_max, parents)
            encode = msgspec.msgpack.Encoder().encode
            for each in numbers:
                for number in each.column(0).to_pylist():
                    found = [encode(chunk) for chunk in chunks_of(index, tasks[number])]
                    yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], names=["chunk"])

        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        return [_chunks.decode(row[0]) for row in numbers.mapInArrow(work, _CHUNKS).collect()]


def load_in_workers(spark: SparkSession) -> None:
    """Let a worker for each core load the kernel of the index."""

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_kernel()
        settle()
        return numbers

    cores = spark.sparkContext.defaultParallelism
    spark.range(0, cores, 1, cores).mapInArrow(work, "id bigint").collect()
