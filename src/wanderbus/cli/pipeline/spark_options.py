"""Options for the place where Spark runs, and the session there."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from wanderbus.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Cores = Annotated[int, typer.Option("--cores", min=1, help="Threads of Spark on this machine; a cluster has its own.")]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Run on this cluster, as spark://HOST:7077, yarn or k8s://...", show_default=False),
]
Environment = Annotated[
    str | None,
    typer.Option(
        "--environment",
        help="Packages for the workers of the cluster: a file of 'wanderbus pipeline environment', or its address.",
        show_default=False,
    ),
]


class SparkPlace(NamedTuple):
    """Place where Spark runs: on threads of this machine, or on a cluster."""

    cores: int = 2
    master: str | None = None
    environment: str | None = None


_CALL_REPORTS: Final = ("KeyboardInterrupt while sending command", "Exception while sending command")


@contextmanager
def needing_packages(purpose: str) -> Iterator[None]:
    """Turn a missing package into one line that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{purpose} needs Spark, and {error.name} is not installed: pip install 'wanderbus[pipeline]'"
        ) from None


def _started(start: Callable[[], SparkSession]) -> SparkSession:
    """Start Spark in a thread: in the main one it takes Ctrl-C, and then calls Java in the middle of another call."""
    outcome: Future[SparkSession] = Future()

    def run() -> None:
        try:
            outcome.set_result(start())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    return outcome.result()


def _is_of_no_call(record: logging.LogRecord) -> bool:
    """Return false for py4j's report, with a traceback, of a call that Ctrl-C or the end of Java has ended."""
    return not record.getMessage().startswith(_CALL_REPORTS)


def let_job_report() -> None:
    """Silence Spark's own reports of an error of a batch: the job reports it once."""
    for name in ("py4j", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def session(
    application: str, purpose: str, place: SparkPlace, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Run Spark for the block, with further ``settings``; ``purpose`` is named if it is not installed."""
    if place.environment is not None and place.master is None:
        raise ConfigurationError("--environment is for a cluster; give --master too")
    with needing_packages(purpose):
        from wanderbus.pipeline.session import spark_session
    logging.getLogger().addFilter(_is_of_no_call)
    spark = _started(
        lambda: spark_session(
            application, cores=place.cores, master=place.master, environment=place.environment, settings=settings
        )
    )
    _let_no_counter_report()
    try:
        yield spark
    finally:
        _stop(spark)


def _let_no_counter_report() -> None:
    """Silence the thread that reads Spark's counters when Java has ended: the job reports that."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]


def _stop(spark: SparkSession) -> None:
    """End Spark, whose Java may have ended already."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()
