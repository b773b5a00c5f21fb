"""Spark session of the pipeline: on this machine or a cluster, quiet, with a clear error without Java (SPEC T-11).

On a cluster nothing names a path or an address of the driver's machine: Spark finds the address that the workers can
reach, and they run in an environment that travels with the job.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import wanderbus
from wanderbus.errors import LogCorrupt, StorageError, WanderbusError
from wanderbus.pipeline.class_archive import fast_start_options
from wanderbus.pipeline.cluster.connection import check_master, cluster_settings, python_of_workers
from wanderbus.pipeline.java_output import filtered_java_output
from wanderbus.pipeline.source import ColumnError, OptionError, register
from wanderbus.runtime.files.file_modes import private_umask
from wanderbus.runtime.log_place import LogReplaced

JAVA_VERSION_MIN: Final = 17
"""The oldest Java that Spark 4 runs on."""

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.driver.defaultJavaOptions": _ARROW,
    "spark.executor.defaultJavaOptions": _ARROW,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.variant.annotateLogicalType.enabled": "false",
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}
"""Settings of every session.

Files that Spark writes are for their owner only, since they hold users and their events. Adaptive planning is off
because planning again after each shuffle costs more than it saves at this size. Noting the line of Python for each
column of a query would multiply the calls to Java. Stateful
Python operators need RocksDB as the state store, ``avro`` lets a state's fields change later, and timers of an
available-now query only fire if batches without data are on. Several open files in a task save the sorting of rows by
partition. Readers other than Spark do not know shredded variants, nor all of them annotated
variants and Spark's own form of timestamps. Arrow in Java checks the bounds and the validity of every value that it
reads of a worker's results; Spark asks for validity itself, and without these checks Java takes 0.6 times as long with
its first compiler alone.
"""

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_ADVICE = "install it with: apt-get install openjdk-17-jre-headless"
_OWN_ERRORS: Final = {
    error.__name__: error for error in (LogCorrupt, LogReplaced, StorageError, OptionError, ColumnError)
}
_OWN_LINE = re.compile(rf"wanderbus\.\S*?\b({'|'.join(_OWN_ERRORS)}): ([^\n]+)")


class JavaMissing(WanderbusError):
    """No Java that Spark can run on; the message says what to install."""


def spark_session(
    application: str = "wanderbus",
    *,
    master: str | None = None,
    cores: int = 2,
    memory: str = "1g",
    environment: Path | str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, started if necessary, with the sources of the pipeline registered.

    ``master`` is that of a cluster, as ``spark://host:7077``; by default the session runs on this machine on ``cores``
    threads. ``memory`` is for the Java heap of the driver (as ``"1g"``). ``environment`` is the archive of the Python
    environment for the workers of a cluster (:mod:`wanderbus.pipeline.cluster.environment`): a path, from which the
    workers get it through the driver, or an address that they can reach. Without it they run their own ``python3``.
    ``settings`` are further settings of Spark. The session uses UTC, and ends with this process or with ``stop()``.
    On a cluster, paths that are given to Spark itself must be absolute. Raises :class:`JavaMissing` and
    ``ConfigurationError`` before Spark could fail at length.
    """
    check_java()
    is_local = master is None or master.startswith("local")
    if not is_local:
        check_master(master or "")
    values = {**SETTINGS, "spark.driver.memory": memory, "spark.sql.shuffle.partitions": str(cores)}
    archive = None if environment is None else str(environment)
    values |= _local_settings() if is_local else cluster_settings(archive)
    builder = SparkSession.builder.master(master or f"local[{cores}]").appName(application)
    for name, value in (values | dict(settings or {})).items():
        builder = builder.config(name, value)
    workers = _own_python() if is_local else python_of_workers(archive, _LOG_SETTINGS)
    # What Spark spills, and what its workers write, holds users and their events.
    with workers, filtered_java_output(), private_umask():
        spark = builder.getOrCreate()
    if not is_local:
        spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def check_java() -> None:
    """Return if there is a Java that Spark can run on; raise :class:`JavaMissing` otherwise.

    The search is the same as Spark's: ``JAVA_HOME`` first, then the search path.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if program is None:
        where = f"in JAVA_HOME ({home})" if home else "on the search path"
        raise JavaMissing(f"Spark needs Java {JAVA_VERSION_MIN} and there is no java {where}; {_ADVICE}")
    version_output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', version_output)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        version = f"is Java {found[1]}" if found else "does not report its version"
        raise JavaMissing(f"Spark needs Java {JAVA_VERSION_MIN} and {program} {version}; {_ADVICE}")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn an error of ours, which Spark wraps in pages of its own, back into one line."""
    try:
        yield
    except PySparkException as error:
        found = _OWN_LINE.search(str(error))
        if found is None:
            raise
        raise _OWN_ERRORS[found[1]](found[2]) from None


def _local_settings() -> dict[str, str]:
    return {
        "spark.authenticate": "true",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options(fast_start_options()),
    }


def java_options(start: str) -> str:
    """Return the options of Java for a session on this machine: those of its ``start``, and where its log goes."""
    return f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} {start}"


@contextmanager
def _own_python() -> Iterator[None]:
    """Make Spark's workers on this machine use this Python and this package."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    root = Path(wanderbus.__file__).resolve().parents[1]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root.name not in ("site-packages", "dist-packages") and str(root) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, paths)])
    yield
