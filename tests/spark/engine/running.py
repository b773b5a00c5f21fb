"""The engine in this process, beside a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from wanderbus.pipeline.engine import EngineProgress, MatchingEngine
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.segments import HIGH_WATER

END_S_MAX = 90.0


@contextmanager
def running_engine(spark: SparkSession, data_dir: Path, seen: list[EngineProgress] | None = None) -> Iterator[None]:
    """Run the engine of a server for the block; ``seen`` gets its progress."""
    progress: list[EngineProgress] = [] if seen is None else seen
    engine, stop, errors = MatchingEngine(data_dir, progress.append), threading.Event(), []

    def run() -> None:
        try:
            engine.run(spark, stop)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    with engine.service:
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(END_S_MAX)
    assert not thread.is_alive()
    assert errors == []


class EngineOnSpark:
    """The engine on Spark in this process."""

    subjects: tuple[str, ...] = ("*",)
    quiet_s = 0.5

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running = ExitStack()

    def start(self, data_dir: Path) -> None:
        """Run it; the engine needs a log, so one without records is made if the server has not been started yet."""
        if not (data_dir / "log" / HIGH_WATER).exists():
            ServerFiles.open(data_dir).close()
        self._running.enter_context(running_engine(self._spark, data_dir))

    def kill(self) -> None:
        """End the query in the middle of its batch, and lose the matches that the server has not got."""
        self._running.close()
