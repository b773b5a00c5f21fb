"""The process of Spark: one session matches for the server, streams the log into the lake, audits and reports.

It starts Spark at once. The order ``{"do": "match"}``, after the server has started, lets it match the subjects that
the server leaves to it, and stream once it has matched. The order ``{"do": "finish"}``, after the server has ended,
lets it complete the lake, and compute from it the journeys and the page of the server.

Reports: ``{"phase": text}`` as it goes; ``{"matched": n, "age_s": s, "lag": r}`` after a batch: the events since the
server has begun the engine, the age of the oldest one in the batch, and the records that the log has beyond;
``{"lake": n}`` for the records in the lake; at last ``{"journeys": {...}}``, or ``{"error": line}``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from demo.audit import DECLARED, journeys
from demo.json_lines import report
from wanderbus.errors import WanderbusError
from wanderbus.pipeline.analytics import write_report
from wanderbus.pipeline.engine import SETTINGS, EngineProgress, MatchingEngine, load_in_workers, local_master
from wanderbus.pipeline.operation.query_progress import RunProgress
from wanderbus.pipeline.operation.run import PipelineRun
from wanderbus.pipeline.session import spark_session

CORES: Final = 2

PROGRESS_UPDATES: Final = {"spark.sql.streaming.numRecentProgressUpdates": "100"}
"""The engine's own setting keeps no report, and the progress of the lake is read from the reports."""

LAKE_EACH_S: Final = 4.0
"""Time between the begins of two batches of the lake."""


class SparkWork:
    """The work of the process; ``config`` names the directories ``data``, ``lake`` and ``evidence``, the file ``page``
    and the ``engines`` of the subjects.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._data, self._lake, self._evidence, self._page = (
            Path(config[name]) for name in ("data", "lake", "evidence", "page")
        )
        self._engines: Mapping[str, str] = config["engines"]
        self._stop = threading.Event()
        self._has_matched = threading.Event()

    def run(self) -> None:
        """Do all the work."""
        report(phase="starting Spark")
        with ThreadPoolExecutor() as beside:
            starting = beside.submit(_start_spark)
            sys.stdin.readline()
            matching = MatchingEngine(self._data, self._report_matched)
            with matching.service:
                spark = starting.result()
                is_ordered = self._match(matching, spark)
        if is_ordered:
            self._finish(spark)
        spark.stop()

    def _match(self, matching: MatchingEngine, spark: SparkSession) -> bool:
        """Match and stream until the next order; return whether there is one."""
        streams = [self._start(lambda: matching.run(spark, self._stop)), self._start(lambda: self._stream(spark))]
        is_ordered = bool(sys.stdin.readline())
        report(phase="completing the lake")
        self._stop.set()
        for stream in streams:
            stream.join()
        return is_ordered

    def _finish(self, spark: SparkSession) -> None:
        """Complete the lake; then compute the journeys and the page of the server, which share the cores."""
        self._stop.clear()
        self._pipeline(spark).run()
        report(phase="judging the journeys, and analysing the server")
        with ThreadPoolExecutor() as both:
            judged = both.submit(journeys, spark, self._lake, self._evidence, self._engines)
            both.submit(write_report, spark, self._lake, self._page).result()
            report(journeys=judged.result().as_dict())

    def _stream(self, spark: SparkSession) -> None:
        """Stream into the lake once the engine has matched, so that both do not plan their first batches at once."""
        while not self._has_matched.wait(0.1):
            if self._stop.is_set():
                return
        self._pipeline(spark, every_s=LAKE_EACH_S).run()

    def _report_matched(self, found: EngineProgress) -> None:
        self._has_matched.set()
        report(matched=found.events, age_s=found.latency_s, lag=found.lag)

    def _pipeline(self, spark: SparkSession, every_s: float | None = None) -> PipelineRun:
        return PipelineRun(
            spark,
            self._data / "log",
            self._lake,
            declared=DECLARED,
            every_s=every_s,
            on_progress=_report_lake,
            stop=self._stop,
        )

    def _start(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=_ending_on_error, args=(work,), daemon=True)
        thread.start()
        return thread


def _start_spark() -> SparkSession:
    """Return the session, whose workers have loaded what matching needs."""
    spark = spark_session(
        "wanderbus demo", cores=CORES, master=local_master(CORES), settings=SETTINGS | PROGRESS_UPDATES
    )
    load_in_workers(spark)
    return spark


def _ending_on_error(work: Callable[[], object]) -> None:
    """Do work; an error ends the process, whichever thread has it."""
    try:
        work()
    except WanderbusError as error:
        report(error=str(error))
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _report_lake(found: RunProgress) -> None:
    report(lake=found.offset)


if __name__ == "__main__":
    _ending_on_error(SparkWork(json.loads(Path(sys.argv[1]).read_text())).run)
