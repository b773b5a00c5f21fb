"""The part of a run that brings a lake up to one log: its job, its query, and its progress (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from wanderbus.errors import WanderbusError
from wanderbus.pipeline.lake.jobs import Ingestion
from wanderbus.pipeline.operation.query_progress import QueryProgress, RunProgress
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.runtime.log_place import LogReplaced

STARTS_MAX: Final = 3
"""Starts of a query until its reader of the log, a process of Python, is ready within the ten seconds that Spark
allows: a machine may be too busy for that."""

_READER_WAS_LATE: Final = "Python worker failed to connect back"


class PipelineFailed(WanderbusError):
    """The pipeline failed; the message has the input, the place in it, and the reason, in one line."""


class LogRun:
    """The run of ``job`` on ``log``, which has the name ``name`` in the lake, "" if it is the only log of the lake."""

    def __init__(self, job: Ingestion, log: Path, name: str, checkpoint: Path) -> None:
        self.job = job
        self.log = log
        self._checkpoint = checkpoint
        self.first = self.end = job.end()
        """Offset at which the run began, and the one up to which it has come."""
        self.is_done = False
        self._progress = QueryProgress(log, self.first, name)
        self._query: StreamingQuery | None = None
        self._start: Callable[[], StreamingQuery]
        self._starts = 0

    def start(self, rows_per_batch: int | None, every_s: float | None) -> None:
        """Start the query."""
        self._start = partial(self.job.start, self._checkpoint, rows_per_batch=rows_per_batch, every_s=every_s)
        with self._failures():
            self._begin()

    def _begin(self) -> None:
        self._starts += 1
        self._query = self._start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the query, at most for ``timeout_s``; return whether it has ended.

        Raises :class:`PipelineFailed` for all that stops a batch.
        """
        if not self.is_done and self._query is not None:
            with self._failures():
                self.is_done = self._has_ended(self._query, timeout_s)
        return self.is_done

    def _has_ended(self, query: StreamingQuery, timeout_s: float) -> bool:
        """Wait for the end of a query; start it again if its reader was late."""
        try:
            return bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type]  # takes fractions, too
        except StreamingQueryException as error:
            if _READER_WAS_LATE not in str(error) or self._starts == STARTS_MAX:
                raise
            self._begin()
            return False

    def ended(self) -> Iterator[RunProgress]:
        """Yield the progress of the batches that have ended since the last call."""
        if self._query is not None:
            for progress in self._progress.ended(self._query):
                self.end = progress.offset
                yield progress

    def stop(self, batch_s_max: float) -> None:
        """Stop the query between two batches, or after ``batch_s_max`` within one, which the next run repeats."""
        if self._query is not None:
            with self._failures():
                self.job.stop(self._query, batch_s_max)

    def close(self) -> None:
        """Read from the lake how far it has come, and register that."""
        with self._failures():
            self.end = self.job.end()
            if self.is_done:
                self.job.register()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn every error of a batch into one line with its place in the log."""
        try:
            with plain_errors():
                yield
        except PipelineFailed:
            raise
        except (WanderbusError, PySparkException, Py4JError) as error:
            cause = self.job.error or error
            text = " ".join(str(cause).split("\n", 1)[0].split())
            if isinstance(cause, LogReplaced) or (isinstance(cause, WanderbusError) and ".seg" in text):
                raise PipelineFailed(text) from None
            raise PipelineFailed(f"{text}; the batch begins at {place_in(self.log, self.job.end())}") from None


def place_in(log: Path, offset: int) -> str:
    """Return the place of a record in words: its segment, byte and offset."""
    try:
        (part,) = LogFiles(log).slices(offset, offset + 1, 1)
    except (WanderbusError, ValueError):
        return f"record {offset} of {log}"
    return f"byte {part.first_byte} of {part.path} (record {offset})"
