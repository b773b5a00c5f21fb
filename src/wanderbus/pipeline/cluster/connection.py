"""Connection of a session to a cluster: checks of its address, settings, and the Python of its workers (SPEC T-11)."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from wanderbus.errors import ConfigurationError

ENVIRONMENT: Final = "environment"
"""Name under which the workers of a cluster see the archive of the environment."""

SUFFIXES: Final = (".tar.gz", ".tgz")
"""Ends of names by which Spark knows how to unpack an archive."""

CONNECT_S_MAX: Final = 5.0

_MASTER: Final = re.compile(r"spark://(.+)|yarn|k8s://.+")
_PLACE: Final = re.compile(r"\[?([^\[\]]+)\]?:(\d{1,5})")

_directories: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""Directories in which Java runs, kept until this process ends."""


def check_master(master: str) -> None:
    """Return if ``master`` may be the address of a cluster, and a standalone master answers there.

    Raises ``ConfigurationError`` otherwise: Spark itself tries for a minute, and then fails at length.
    """
    found = _MASTER.fullmatch(master)
    if found is None:
        raise ConfigurationError(f"invalid master {master!r} (expected spark://HOST:PORT, yarn, k8s://... or local[N])")
    if found[1] is None:
        return
    places = [_PLACE.fullmatch(each) for each in found[1].split(",")]
    failures = []
    for place in places:
        if place is None:
            raise ConfigurationError(f"invalid master {master!r} (expected spark://HOST:PORT)")
        try:
            socket.create_connection((place[1], int(place[2])), CONNECT_S_MAX).close()
            return
        except (OSError, OverflowError) as error:
            failures.append(str(error))
    raise ConfigurationError(f"the master {master} does not answer: {failures[-1]}; start it, or check the address")


def cluster_settings(environment: str | None) -> dict[str, str]:
    """Return the settings that make the workers unpack the archive.

    ``ConfigurationError`` if it is a path without a file, or of a name that Spark does not unpack.
    """
    if environment is None:
        return {}
    if not environment.endswith(SUFFIXES):
        raise ConfigurationError(f"the environment {environment} must end with {' or '.join(SUFFIXES)}")
    if "://" in environment:
        return {"spark.archives": f"{environment}#{ENVIRONMENT}"}
    if not Path(environment).is_file():
        raise ConfigurationError(
            f"the environment {environment} does not exist; make it with: wanderbus pipeline environment {environment}"
        )
    return {"spark.archives": f"{Path(environment).absolute()}#{ENVIRONMENT}"}


def _make_directory() -> None:
    """Make the directory in which Java will run; ``ConfigurationError`` if it runs already."""
    if SparkContext._gateway is not None:
        raise ConfigurationError(
            "Spark already runs in this process, and not for a cluster; use a process of its own for the cluster"
        )
    directory = tempfile.TemporaryDirectory(prefix="wanderbus-driver-")
    Path(directory.name, ENVIRONMENT).symlink_to(sys.prefix)
    _directories.append(directory)


@contextmanager
def python_of_workers(environment: str | None, log_settings: Path) -> Iterator[None]:
    """Make the workers of a session that starts in the block use the Python of the environment.

    Spark starts the Python processes that plan a source on the driver by the same name as those of the workers. So the
    driver's Java starts in a directory in which that name leads to the environment of this process. ``log_settings``
    are for that Java alone, and therefore on its command line and not among the settings of the job.
    """
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = "python3" if environment is None else f"./{ENVIRONMENT}/bin/python"
    if not _directories:
        _make_directory()
    here, options = Path.cwd(), os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options or ''} -Dlog4j2.configurationFile={log_settings.as_uri()}".strip()
    os.chdir(_directories[0].name)
    try:
        yield
    finally:
        os.chdir(here)
        if options is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = options
