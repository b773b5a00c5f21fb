"""Progress of Spark's tasks on standard error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from wanderbus.cli.output import print_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS_EACH_S: Final = 1.8


@contextmanager
def task_progress(spark: SparkSession) -> Iterator[None]:
    """Print the tasks that are done on standard error, every few seconds."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not ended.wait(PROGRESS_EACH_S):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            known = [each for each in stages if each is not None]
            if known:
                done, tasks = sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
                print_progress(f"{done} of {tasks} tasks done")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
