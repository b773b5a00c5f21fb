"""Progress of Spark's tasks on standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wanderbus.cli.output import print_progress
from wanderbus.cli.pipeline.progress_lines import PROGRESS_EACH_S

if TYPE_CHECKING:
    from pyspark import SparkStageInfo
    from pyspark.sql import SparkSession


@contextmanager
def watched_stages(
    spark: SparkSession, each_s: float, on_stages: Callable[[Sequence[SparkStageInfo]], None]
) -> Iterator[None]:
    """Call ``on_stages`` in a thread every ``each_s`` seconds during the block, with Spark's active stages if any."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not ended.wait(each_s):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            if known := [each for each in stages if each is not None]:
                on_stages(known)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def task_progress(spark: SparkSession) -> Iterator[None]:
    """Print the tasks that are done on standard error, every few seconds."""

    def show(stages: Sequence[SparkStageInfo]) -> None:
        done, tasks = sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
        print_progress(f"{done} of {tasks} tasks done")

    with watched_stages(spark, PROGRESS_EACH_S, show):
        yield
