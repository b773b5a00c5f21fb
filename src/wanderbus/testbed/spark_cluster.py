"""A standalone Spark cluster of processes on this machine, on free ports of loopback.

Its workers share nothing with the program that uses them but the file system: neither its Python packages nor its
settings.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.processes import Process

HOST: Final = "127.0.0.1"
DAEMON_MEMORY: Final = "256m"
WORKER_MEMORY: Final = "1g"
"""Memory that a worker offers for executors."""

READY_S_MAX: Final = 240.0
_MASTER_AT: Final = re.compile(rf"Starting Spark master at (spark://{re.escape(HOST)}:\d+)")
_REGISTERED: Final = "Successfully registered with master"


class SparkCluster:
    """A master and some workers of one core each, as a context manager; their logs are in ``directory``.

    ``java_options`` are options of their Java.
    """

    def __init__(self, directory: Path, *, workers: int = 2, java_options: str = "") -> None:
        self.directory = directory
        self._java_options = java_options
        self.master = ""
        """Address of the master, as ``spark://HOST:PORT``."""
        self.workers: list[Process] = []
        self._count = workers
        self._daemons: list[Process] = []

    def __enter__(self) -> Self:
        try:
            self._start_master()
            for _ in range(self._count):
                self.add_worker()
            for each in self.workers:
                _wait_for(each, _REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add_worker(self) -> Process:
        """Start one more worker, which registers within some seconds."""
        number = sum(each.name.startswith("worker") for each in self._daemons)
        arguments = ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(self.work_of(number)), self.master]
        worker = self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *arguments)
        self.workers.append(worker)
        return worker

    def work_of(self, number: int) -> Path:
        """Return the directory in which a worker runs its executors."""
        return self.directory / f"work-{number}"

    def stop(self) -> None:
        """Kill all processes of the cluster, executors included, and delete their files; no harm if called twice.

        Each executor has unpacked the environment of its job, which takes hundreds of megabytes.
        """
        while self._daemons:
            self._daemons.pop().kill()
        for number in range(len(self.workers)):
            shutil.rmtree(self.work_of(number), ignore_errors=True)

    def _start_master(self) -> None:
        master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.master = _wait_for(master, _MASTER_AT)[1]

    def _start(self, name: str, java_class: str, *arguments: str) -> Process:
        program = [str(spark_home() / "bin" / "spark-class"), java_class, "--host", HOST, "--webui-port", "0"]
        log = self.directory / f"{name}.log"
        process = Process(name, [*program, *arguments], log, more_environment=self._environment())
        self._daemons.append(process)
        return process

    def _environment(self) -> Mapping[str, str]:
        # An empty PYTHONPATH, for the workers must import from the environment of the job alone.
        options = f"-Djava.io.tmpdir={tempfile.gettempdir()} {self._java_options}".rstrip()
        return {
            "PYTHONPATH": "",
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.directory),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": options,
        }


def spark_home() -> Path:
    """Return the directory of Spark; :class:`CannotRunError` if it is not installed."""
    try:
        from pyspark import find_spark_home
    except ModuleNotFoundError:
        raise CannotRunError("a Spark cluster needs pyspark: pip install 'wanderbus[pipeline]'") from None
    return Path(find_spark_home.__file__).parent


def _wait_for(process: Process, wanted: str | re.Pattern[str]) -> re.Match[str]:
    """Return where ``wanted`` is in the log of a process; :class:`CannotRunError` if it does not appear in time."""
    pattern = re.compile(re.escape(wanted)) if isinstance(wanted, str) else wanted
    process.wait_until(lambda: pattern.search(process.log.read_text(errors="replace")) is not None, READY_S_MAX)
    found = pattern.search(process.log.read_text(errors="replace"))
    assert found is not None
    return found
