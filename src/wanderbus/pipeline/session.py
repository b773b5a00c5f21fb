"""Local Spark session of the pipeline: quick to start, quiet, with a clear error if Java is missing (DESIGN 8)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import wanderbus
from wanderbus.errors import LogCorrupt, StorageError, WanderbusError
from wanderbus.pipeline.source import OptionError, WanderbusSource

JAVA_VERSION_MIN: Final = 17
"""The oldest Java that Spark 4 runs on."""

_ADVICE = "install it with: apt-get install openjdk-17-jre-headless"
_OWN_ERRORS: Final = {error.__name__: error for error in (LogCorrupt, StorageError, OptionError)}
_OWN_LINE = re.compile(rf"wanderbus\.\S*?\b({'|'.join(_OWN_ERRORS)}): ([^\n]+)")


class JavaMissing(WanderbusError):
    """No Java that Spark can run on; the message says what to install."""


def spark_session(application: str = "wanderbus", *, cores: int = 2, memory: str = "1g") -> SparkSession:
    """Return the Spark session of this process, started if necessary, with the source ``wanderbus`` registered.

    It runs on this machine on ``cores`` threads with ``memory`` for its Java heap (as ``"1g"``), uses UTC and ends with
    this process or with ``stop()``. Adaptive planning is off: at this size, planning again after each shuffle costs
    more than it saves. Raises :class:`JavaMissing` before Spark could fail at length.
    """
    check_java()
    _prepare_environment()
    log_settings = Path(__file__).with_name("log4j2.properties")
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
        f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(application)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(WanderbusSource)
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


def _prepare_environment() -> None:
    """Make Spark's workers use this Python and this package, also from a source tree."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    root = Path(wanderbus.__file__).resolve().parents[1]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root.name not in ("site-packages", "dist-packages") and str(root) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, paths)])
