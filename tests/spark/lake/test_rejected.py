"""A batch of arrivals alone has all its notifications (SPEC T-03)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.spark.domain_logs import BOB, arrived, at, departure
from wanderbus.pipeline.lake import Ingestion, table
from wanderbus.pipeline.lake.quarantine import rejected_records
from wanderbus.records import Notified, Record, Started

pytestmark = pytest.mark.spark


def test_a_batch_of_arrivals_alone_has_all_its_notifications(spark: SparkSession, tmp_path: Path) -> None:
    notified = Notified(BOB, "default", 1, ("s1",))
    records: list[Record] = [Started(at_us=at(0), server="s2", incarnation=9)]
    records += [arrived(number, departure(40.0), number, notified) for number in range(1, 4)]
    Ingestion(spark, write_records(tmp_path / "log", records), tmp_path / "lake").store(0, 4)
    assert table(spark, tmp_path / "lake", "notifications").count() == 3
    assert rejected_records(tmp_path / "lake") == {}
