"""Files of a lake and of Spark: for their owner only, unless the owner has made the directory for others too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster.jobs import fill
from wanderbus.pipeline.analytics.report.file import write_page


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Set the umask of most systems, with which everybody reads new files."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_lake_is_for_its_owner_and_one_that_was_made_before_is_as_open_as_it_was(
    spark: SparkSession, write_log: Callable[..., Path], make_published: Callable[..., Any], tmp_path: Path
) -> None:
    log = write_log([make_published(row, ("sip:bob@localhost",)) for row in range(20)])
    fill(spark, log, tmp_path / "lake")
    assert mode(tmp_path / "lake") == 0o700
    (tmp_path / "shared").mkdir(0o750)
    fill(spark, log, tmp_path / "shared")
    files = list((tmp_path / "shared").rglob("*.parquet"))
    assert files
    assert {mode(each) for each in files} == {0o644}, "the directory above decides"
    assert {mode(each.parent) for each in files} == {0o755}


def test_files_that_java_writes_are_for_their_owner(spark: SparkSession, tmp_path: Path) -> None:
    java: Any = spark._jvm
    java.java.io.File(str(tmp_path / "spilled")).createNewFile()
    spark.range(3).write.parquet(str(tmp_path / "table"))
    assert mode(tmp_path / "spilled") == 0o600
    assert {mode(each) for each in (tmp_path / "table").iterdir()} == {0o600}
    assert mode(tmp_path / "table") == 0o700


def test_programs_beside_a_session_need_its_secret_to_exchange_data(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"


def test_a_report_is_for_its_owner_and_one_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    page = tmp_path / "new" / "report.html"
    write_page(page, "one")
    assert [mode(page.parent), mode(page)] == [0o700, 0o600]
    page.chmod(0o640)
    write_page(page, "two")
    assert (mode(page), page.read_text()) == (0o640, "two")
