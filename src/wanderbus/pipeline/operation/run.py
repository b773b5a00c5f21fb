"""A run of the pipeline: the job log → lake with its lock, its progress, its lineage and a clean stop (SPEC T-03).

A run on several logs has a query for each. Endless queries run together and change the lake in turns, batch by batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.jobs import Ingestion, LakeCounts
from wanderbus.pipeline.lake.lake_domain import store_domain
from wanderbus.pipeline.lake.lake_parents import store_parents
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.logs import add_logs, logs_in
from wanderbus.pipeline.lineage import LineageRun, recorded
from wanderbus.pipeline.operation.lake_lock import lake_lock
from wanderbus.pipeline.operation.log_run import LogRun
from wanderbus.pipeline.operation.query_progress import RunProgress
from wanderbus.pipeline.tables import RECORDS
from wanderbus.pipeline.tables.declared import Declared

CHECKPOINT: Final = "_checkpoint"
"""Directory within a lake with the checkpoint of its first log; others have the identity of their log behind."""

BATCH_S_MAX: Final = 10.0
"""Time that a stop waits for the present batch; afterwards the batch is abandoned, and the next run repeats it."""

_POLL_S: Final = 1.0
_REFRESH_S: Final = 3_600.0
_RUNNING_EACH_S: Final = 60.0


class PipelineRun:
    """A run on ``lake``; :meth:`run` ends at the present ends of the logs, or with ``every_s`` when ``stop`` is set.

    ``log`` is the log of a server, or those of several servers of a domain (decision 0095). ``stop`` ends any run after
    its present batch; a signal handler may set it. ``declared`` are attributes beside those of the logs' own
    declarations, as for :class:`~wanderbus.pipeline.lake.jobs.Ingestion`. ``parents`` are those of subjects in the
    domain, which the lake then knows; with None it keeps those that it knows.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Path | str | Sequence[Path | str],
        lake: Path | str,
        *,
        declared: Declared | None = None,
        parents: Mapping[str, str] | None = None,
        every_s: float | None = None,
        rows_per_batch: int | None = None,
        lineage_copy: Path | None = None,
        on_progress: Callable[[RunProgress], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._logs = [Path(each) for each in ([log] if isinstance(log, Path | str) else log)]
        self._lake = Path(lake)
        self._parents = parents
        self._every_s = every_s
        self._rows_per_batch = rows_per_batch
        self._lineage_copy = lineage_copy
        self._on_progress = on_progress
        storing = threading.Lock()
        self._jobs = [Ingestion(spark, each, self._lake, declared=declared, storing=storing) for each in self._logs]
        self._counts: LakeCounts = {}
        for job in self._jobs:
            job.counts = self._counts
        self.stop = stop or threading.Event()

    def run(self) -> LakeCounts:
        """Bring the lake up to date and return the counts of what was added, by table.

        Raises ``StorageError`` if another job has the lake, or if it is the lake of other logs, and
        ``PipelineFailed`` for all that stops a batch.
        """
        with lake_lock(self._lake):
            runs = [
                LogRun(job, log, *name) for job, log, name in zip(self._jobs, self._logs, self._names(), strict=True)
            ]
            store_domain(self._lake, self._logs)
            if self._parents is not None:
                store_parents(self._lake, self._parents)
            lineage = LineageRun(self._lake, "run", logs=self._logs, copy=self._lineage_copy)
            lineage.spans = lambda: [(each.first, each.end) for each in runs]
            lineage.counts = self._counts
            with recorded(lineage):
                self._follow(runs, lineage)
        return self._counts

    def _names(self) -> list[tuple[str, Path]]:
        """Return the name and the checkpoint of each log in the lake, which has all of them from now on."""
        has_several = len(self._logs) > 1 or (
            LakeTable(self._lake, RECORDS).exists and len(logs_in(self._lake).identities) > 1
        )
        if not has_several:
            return [("", self._lake / CHECKPOINT)]
        identities = [log_identity(each) for each in self._logs]
        for identity, log in zip(identities, self._logs, strict=True):
            if identities.count(identity) > 1:
                raise StorageError(f"{log} is the log {identity} twice; name each data directory once")
        logs = add_logs(self._lake, identities)
        directories = [CHECKPOINT if each == logs.first else f"{CHECKPOINT}-{each}" for each in identities]
        return [(logs.name(each), self._lake / path) for each, path in zip(identities, directories, strict=True)]

    def _follow(self, runs: Sequence[LogRun], lineage: LineageRun) -> None:
        """Run all queries at once if they are endless, and one after the other if they end."""
        for together in [[each] for each in runs] if self._every_s is None else [runs]:
            with ExitStack() as stopping:
                for each in together:
                    each.start(self._rows_per_batch, self._every_s)
                    stopping.callback(each.stop, BATCH_S_MAX)
                self._wait(together, lineage)
            self._show(together)
            if self.stop.is_set():
                break
        for each in runs:
            each.close()
        lineage.is_aborted = not all(each.is_done for each in runs) and self._every_s is None

    def _wait(self, runs: Sequence[LogRun], lineage: LineageRun) -> None:
        """Report progress until all queries have ended, or until the run is stopped."""
        refreshed_s = emitted_s = time.monotonic()
        while not self.stop.is_set() and sum(each.wait(_POLL_S / len(runs)) for each in runs) < len(runs):
            has_batch = self._show(runs)
            now_s = time.monotonic()
            if now_s - refreshed_s >= _REFRESH_S:
                refreshed_s = now_s
                for each in runs:
                    each.job.refresh()
            if has_batch and now_s - emitted_s >= _RUNNING_EACH_S:
                emitted_s = now_s
                lineage.emit("RUNNING")

    def _show(self, runs: Sequence[LogRun]) -> bool:
        """Report the progress of batches that have ended since the last call; return whether there was one."""
        found = False
        for each in runs:
            for progress in each.ended():
                found = True
                self._on_progress(progress)
        return found
