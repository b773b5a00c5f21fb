"""The archive of Spark's classes: used where it is, and no harm where it is not or cannot be used."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from wanderbus.errors import StorageError
from wanderbus.pipeline import make_class_archive
from wanderbus.pipeline.class_archive import ARCHIVE, archive_options


def test_without_an_archive_there_is_no_option(tmp_path: Path) -> None:
    assert archive_options(tmp_path / "none.jsa") == ""


@pytest.mark.spark
@pytest.mark.parametrize("content", [b"", b"no archive", bytes(10_000)])
def test_java_starts_without_a_word_if_an_archive_is_damaged(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "an archive.jsa"
    archive.write_bytes(content)
    java = shutil.which("java")
    assert java is not None
    run = subprocess.run([java, *shlex.split(archive_options(archive)), "-version"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")
    assert all("archive" not in line for line in run.stderr.splitlines())


@pytest.mark.spark
@pytest.mark.skipif(not ARCHIVE.exists(), reason="no archive: python -m wanderbus.pipeline.make_class_archive")
def test_java_of_a_session_has_the_archive_in_its_memory(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    maps = Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    assert str(ARCHIVE.resolve()) in maps


def test_an_archive_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file cannot be made or written: (File exists|Not a directory)"):
        make_class_archive.make(tmp_path / "file" / "spark-classes.jsa")


def test_a_directory_that_cannot_be_written_is_said_in_one_line() -> None:
    # Nobody may make files there, not even root.
    with pytest.raises(StorageError, match="/proc/self cannot be made or written: "):
        make_class_archive.make(Path("/proc/self/spark-classes.jsa"))


def test_a_java_that_does_not_end_is_killed_and_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_class_archive, "ENDS_S_MAX", 0.1)
    java = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
    with pytest.raises(StorageError, match=r"Java has not written the archive after 0\.1 s"):
        make_class_archive.end_java(SimpleNamespace(proc=java, shutdown=lambda: None))
    assert java.wait(10.0) == -signal.SIGKILL
