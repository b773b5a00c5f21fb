"""Make the archive of the classes that Spark loads: ``python -m wanderbus.pipeline.make_class_archive``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from wanderbus.errors import StorageError, WanderbusError
from wanderbus.pipeline.class_archive import ARCHIVE, FAST_START
from wanderbus.pipeline.lake import ingest, table
from wanderbus.pipeline.session import java_options, spark_session
from wanderbus.records import Started, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

ENDS_S_MAX: Final = 120.0
"""Longest time that Java takes to write the archive, at its end."""

_AT_US: Final = 1_700_000_000_000_000


def main() -> int:
    """Make the archive and print where it is; exit status 1 if Java cannot make one."""
    try:
        make(ARCHIVE)
    except WanderbusError as error:
        print(f"wanderbus: {error}", file=sys.stderr)
        return 1
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size >> 20} MB; sessions on this machine use it from now on")
    return 0


def make(archive: Path) -> None:
    """Run a small job of the pipeline, and archive the classes that Java has loaded by its end.

    Raises :class:`~wanderbus.errors.StorageError` if Java writes none, and the errors of
    :func:`~wanderbus.pipeline.session.spark_session`.
    """
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(dir=archive.parent)
    except OSError as error:
        raise StorageError(f"{archive.parent} cannot be made or written: {error.strerror}") from None
    with place as directory:
        written = Path(directory) / archive.name
        archiving = f'"-XX:ArchiveClassesAtExit={written}" -Xlog:disable -Xlog:all=error:stderr'
        options = java_options(f"{FAST_START} {archiving}")
        spark = spark_session("wanderbus-classes", settings={"spark.driver.extraJavaOptions": options})
        load_classes(spark, Path(directory))
        gateway = SparkContext._gateway
        assert gateway is not None, "a session was started"
        spark.stop()
        end_java(gateway)
        if not written.exists():
            raise StorageError("this Java archives no classes; sessions of Spark start without an archive, more slowly")
        written.replace(archive)


def end_java(gateway: JavaGateway) -> None:
    """Let Java end and wait until it has: it does so when its standard input ends.

    Raises :class:`~wanderbus.errors.StorageError` if it takes longer than :data:`ENDS_S_MAX`; it is killed then.
    """
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(ENDS_S_MAX)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        raise StorageError(f"Java has not written the archive after {ENDS_S_MAX:g} s") from None


def load_classes(spark: SparkSession, directory: Path) -> None:
    """Make a lake of a log of one record, and read it: most classes that a job needs are loaded then."""
    log, lake = directory / "log", directory / "lake"
    log.mkdir()
    record = encode_record(Started(at_us=_AT_US, server="wanderbus", incarnation=1))
    (log / segment_name(0)).write_bytes(HEADER + pack_frame(0, _AT_US, record))
    (log / HIGH_WATER).write_bytes(pack_mark(1))
    ingest(spark, log, lake, directory / "checkpoint")
    table(spark, lake, "records").groupBy("kind").count().collect()


if __name__ == "__main__":
    sys.exit(main())
