"""The matching engine: the service ``engine`` of a server, in front of a streaming query (SPEC T-06; DESIGN 7.5).

The server begins the engine, and asks for matches. A query that fails ends its beginning, and the server is answered
with the reason. Then it begins again, at its watermark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from wanderbus.errors import ConfigurationError, StorageError, WanderbusError
from wanderbus.pipeline.engine.chunks import MatchChunk
from wanderbus.pipeline.engine.progress import EngineProgress, Meter
from wanderbus.pipeline.engine.query import EngineQuery, load_in_workers
from wanderbus.pipeline.engine.requests import Beginning, QueryRequests
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.session import plain_errors
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.engine import NAME, Begin
from wanderbus.runtime.services.service import Service
from wanderbus.segments import HIGH_WATER

_log = logging.getLogger("wanderbus.service")

_POLL_S: Final = 0.2


class EngineFailed(WanderbusError):
    """Spark itself has ended; the engine has to be started again."""


class MatchingEngine:
    """The engine of the server in ``data_dir``; its ``service`` has to run meanwhile.

    ``on_progress`` is called in another thread after each batch.
    """

    def __init__(self, data_dir: Path, on_progress: Callable[[EngineProgress], None] = lambda _: None) -> None:
        self._log = log_of_server(data_dir)
        self._requests = QueryRequests(self._check)
        self._on_progress = on_progress
        self.service = Service(data_dir, NAME, self._requests.handlers)
        """The service; requests are answered as soon as it has started, and matched once the engine runs."""

    def prepare(self, spark: SparkSession) -> None:
        """Let every worker load what it needs, which may take some seconds.

        :raises EngineFailed: Spark has ended
        """
        try:
            load_in_workers(spark)
        except (PySparkException, Py4JError, OSError):
            require_spark(spark)
            raise

    def run(self, spark: SparkSession, stop: threading.Event) -> None:
        """Match until ``stop`` is set.

        :raises EngineFailed: Spark has ended
        """
        while not stop.is_set():
            beginning = self._requests.take(_POLL_S)
            if beginning is not None:
                self._serve(spark, beginning, stop)
            else:
                require_spark(spark)

    def _serve(self, spark: SparkSession, beginning: Beginning, stop: threading.Event) -> None:
        """Run the query of a beginning until it fails, another one comes, or ``stop`` is set."""
        begin, meter = beginning.begin, Meter()

        def hand_on(chunks: list[MatchChunk], subscriptions: int) -> None:
            self._on_progress(meter.count(chunks, durable_end(self._log), subscriptions))
            beginning.results.put(chunks)

        query = None
        try:
            query = EngineQuery(spark, self._log, begin, hand_on)
            self._follow(query, beginning, stop)
        except (WanderbusError, PySparkException, Py4JError, OSError) as error:
            self._fail(spark, beginning, (query and query.error) or error)
        finally:
            beginning.results.close()
            if query is not None:
                query.stop()

    def _follow(self, query: EngineQuery, beginning: Beginning, stop: threading.Event) -> None:
        """Run a query until it fails or is no longer wanted."""
        running = query.start()
        while not running.awaitTermination(_POLL_S):  # type: ignore[arg-type]
            if stop.is_set() or not self._requests.is_present(beginning):
                break
            query.keep_warm()

    def _fail(self, spark: SparkSession, beginning: Beginning, error: Exception) -> None:
        """End a beginning because of an error; raise :class:`EngineFailed` if Spark has ended too."""
        try:
            require_spark(spark)
        except EngineFailed as failed:
            self._requests.fail(beginning, str(failed))
            raise
        self._requests.fail(beginning, reason_of(error))
        _log.warning("matching has failed: %s", beginning.reason)

    def _check(self, begin: Begin) -> None:
        """Raise ``StorageError`` if the server that begins has another log."""
        own = log_identity(self._log)
        if own != f"{begin.server}-{begin.incarnation}":
            raise StorageError(f"{self._log} is the log {own}, not {begin.server}-{begin.incarnation}")


def log_of_server(data_dir: Path) -> Path:
    """Return the log of a server; ``ConfigurationError`` if ``data_dir`` is not the data directory of one."""
    log = data_dir / "log"
    if not (log / HIGH_WATER).is_file():
        raise ConfigurationError(f"{data_dir} has no log of a server; give the data directory of a server")
    return log


def reason_of(error: Exception) -> str:
    """Return an error in one line."""
    try:
        with plain_errors():
            raise error
    except Exception as plain:
        text = " ".join(str(plain).split("\n", 1)[0].split())
        return text or type(plain).__name__


def require_spark(spark: SparkSession) -> None:
    """Return if Spark still runs; :class:`EngineFailed` otherwise."""
    try:
        spark.sparkContext.statusTracker().getActiveJobsIds()
    except (Py4JError, OSError):
        raise EngineFailed("Java, in which Spark runs, has ended; start the engine again") from None
