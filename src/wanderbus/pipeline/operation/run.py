"""The run of the pipeline: the job from the log to the lake, with progress, a clean stop, and errors with their place.

SPEC T-03.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wanderbus.errors import WanderbusError
from wanderbus.pipeline.lake.jobs import Ingestion, LakeCounts
from wanderbus.pipeline.lineage import LineageRun, recorded
from wanderbus.pipeline.operation.lake_lock import lake_lock
from wanderbus.pipeline.operation.query_progress import QueryProgress, RunProgress
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.tables.declared import Declared

CHECKPOINT: Final = "_checkpoint"
"""Directory within a lake with the checkpoint of its job."""

BATCH_S_MAX: Final = 10.0
"""Time that a stop waits for the present batch; afterwards the batch is abandoned, and the next run repeats it."""

_POLL_S: Final = 1
_REFRESH_S: Final = 3_600.0
_RUNNING_EACH_S: Final = 60.0


class PipelineFailed(WanderbusError):
    """The pipeline failed; the message has the input, the place in it, and the reason, in one line."""


class PipelineRun:
    """A run on ``lake``; :meth:`run` ends at the log's present end, or with ``every_s`` when ``stop`` is set.

    ``stop`` ends any run after its present batch; a signal handler may set it.
    ``declared`` are attributes beside those of the log's own declarations, as for
    :class:`~wanderbus.pipeline.lake.jobs.Ingestion`.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Path,
        lake: Path,
        *,
        declared: Declared | None = None,
        every_s: float | None = None,
        rows_per_batch: int | None = None,
        lineage_copy: Path | None = None,
        on_progress: Callable[[RunProgress], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._log = log
        self._lake = lake
        self._every_s = every_s
        self._rows_per_batch = rows_per_batch
        self._lineage_copy = lineage_copy
        self._on_progress = on_progress
        self._job = Ingestion(spark, log, lake, declared=declared)
        self._progress: QueryProgress | None = None
        self.stop = stop or threading.Event()

    def run(self) -> LakeCounts:
        """Bring the lake up to date and return the counts of what was added, by table.

        Raises ``StorageError`` if another job has the lake, and :class:`PipelineFailed` for all that stops a batch.
        """
        with lake_lock(self._lake):
            lineage = LineageRun(self._lake, "run", log=self._log, copy=self._lineage_copy)
            lineage.first = lineage.end = self._job.end()
            self._progress = QueryProgress(self._log, lineage.first)
            lineage.counts = self._job.counts
            with recorded(lineage), self._failures():
                self._follow(lineage)
        return self._job.counts

    def _follow(self, lineage: LineageRun) -> None:
        query = self._job.start(self._lake / CHECKPOINT, rows_per_batch=self._rows_per_batch, every_s=self._every_s)
        refreshed_s = emitted_s = time.monotonic()
        try:
            while not (is_done := query.awaitTermination(_POLL_S)) and not self.stop.is_set():
                has_batch = self._show(query, lineage)
                now_s = time.monotonic()
                if now_s - refreshed_s >= _REFRESH_S:
                    refreshed_s = now_s
                    self._job.refresh()
                if has_batch and now_s - emitted_s >= _RUNNING_EACH_S:
                    emitted_s = now_s
                    lineage.emit("RUNNING")
        finally:
            self._job.stop(query, BATCH_S_MAX)
        self._show(query, lineage)
        lineage.end = self._job.end()
        if is_done:
            self._job.register()
        lineage.is_aborted = not is_done and self._every_s is None

    def _show(self, query: StreamingQuery, lineage: LineageRun) -> bool:
        """Report the progress of batches that have ended since the last call; return whether there was one."""
        assert self._progress is not None
        found = False
        for progress in self._progress.ended(query):
            found = True
            lineage.end = progress.offset
            self._on_progress(progress)
        return found

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn every error of a batch into one line with its place in the log."""
        try:
            with plain_errors():
                yield
        except (WanderbusError, PySparkException, Py4JError) as error:
            cause = self._job.error or error
            text = " ".join(str(cause).split("\n", 1)[0].split())
            if isinstance(cause, WanderbusError) and ".seg" in text:
                raise PipelineFailed(text) from None
            raise PipelineFailed(f"{text}; the batch begins at {place_in(self._log, self._job.end())}") from None


def place_in(log: Path, offset: int) -> str:
    """Return the place of a record in words: its segment, byte and offset."""
    try:
        (part,) = LogFiles(log).slices(offset, offset + 1, 1)
    except (WanderbusError, ValueError):
        return f"record {offset} of {log}"
    return f"byte {part.first_byte} of {part.path} (record {offset})"
