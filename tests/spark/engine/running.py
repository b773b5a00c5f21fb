"""The engine in this process, beside a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from wanderbus.pipeline.engine import EngineProgress, MatchingEngine

END_S_MAX = 30.0


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
