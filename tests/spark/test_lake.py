"""The lake holds every durable record once, typed (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from wanderbus.errors import LogCorrupt
from wanderbus.pipeline.lake import RECORD_COLUMNS, ingest, lake_rows, notifications, published, read_lake
from wanderbus.pipeline.schemas import LAKE_SCHEMA
from wanderbus.pipeline.source import log_schema
from wanderbus.records import Attached, DialogStored, Dropped, Published, Record, StatusChanged
from wanderbus.segments import HEADER, segment_name

WriteLog = Callable[..., Path]
MakePublished = Callable[..., Published]

DAY_US = 86_400_000_000
pytestmark = pytest.mark.spark


def test_a_records_fields_become_typed_columns(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished
) -> None:
    user = "sip:bob@localhost"
    records: list[Record] = [
        make_published(7, [user, "sip:eve@localhost"]),
        Dropped(at_us=DAY_US, user=user, session="default", first=3, last=5, reason="full"),
        StatusChanged(at_us=DAY_US - 1, user=user, device="d", status="CONNECTED", reason="invite"),
        DialogStored(at_us=2, user=user, device="d", address="127.0.0.7:9", binding=b"x"),
        Attached(at_us=3, user=user, session="default", device="d", epoch=4),
    ]
    rows = spark.read.format("wanderbus").schema(log_schema(*RECORD_COLUMNS)).load(str(write_log(records)))
    table = lake_rows(rows).cache()
    assert table.dtypes == spark.createDataFrame([], LAKE_SCHEMA).dtypes
    event, dropped, status, bound, attached = table.orderBy("offset").collect()
    assert (event["epoch"], event["number"], event["subject"]) == (1, 7, "Departure")
    assert event["published_us"] == event["at_us"] - 500
    assert event["attributes"].toPython() == {"Row": 7, "Dest": "IAH"}
    assert [tuple(item) for item in event["notified"]] == [
        (user, "default", 7, ["north-1"]),
        ("sip:eve@localhost", "default", 7, ["north-1"]),
    ]
    assert (dropped["first"], dropped["last"], dropped["reason"]) == (3, 5, "full")
    assert (str(dropped["date"]), str(status["date"])) == ("1970-01-02", "1970-01-01")
    assert (status["status"], status["device"], status["attributes"]) == ("CONNECTED", "d", None)
    assert bound["address"] == "127.0.0.7:9"
    assert attached["epoch"] == 4
    table.unpersist()


def test_the_lake_equals_the_log_after_three_restarts(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    """SPEC T-03: lake rows = log records, after three restarts."""
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    added = []
    for durable in (10, 25, 25, 32):
        records = [make_published(row, ["sip:bob@localhost"]) for row in range(durable + 2)]
        log = write_log(records, per_segment=8, durable=durable)
        added.append(ingest(spark, log, lake, checkpoint, rows_per_batch=12))
    assert added == [10, 15, 0, 7]
    table = read_lake(spark, lake)
    assert sorted(row["offset"] for row in table.select("offset").collect()) == list(range(32))
    assert {path.parent.name for path in lake.glob("kind=*/date=*/*.parquet")} == {"date=2023-11-14"}


def test_events_and_notifications_are_found_in_the_lake(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    records = [
        make_published(0, ["sip:bob@localhost"]),
        make_published(1, [], subject="Arrival"),
        make_published(2, ["sip:bob@localhost", "sip:eve@localhost"]),
    ]
    ingest(spark, write_log(records), tmp_path / "lake", tmp_path / "checkpoint")
    events = published(read_lake(spark, tmp_path / "lake"), "Departure")
    assert events.count() == 2
    counts = notifications(events).groupBy("user").agg(F.count("*").alias("n")).orderBy("user").collect()
    assert [tuple(row) for row in counts] == [("sip:bob@localhost", 2), ("sip:eve@localhost", 1)]


def test_an_empty_log_makes_an_empty_lake(spark: SparkSession, write_log: WriteLog, tmp_path: Path) -> None:
    assert ingest(spark, write_log([]), tmp_path / "lake", tmp_path / "checkpoint") == 0
    assert read_lake(spark, tmp_path / "lake").count() == 0


def test_a_damaged_log_stops_ingestion_in_one_line(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    log = write_log([make_published(row) for row in range(3)])
    data = bytearray((log / segment_name(0)).read_bytes())
    data[len(HEADER) + 30] ^= 0xFF
    (log / segment_name(0)).write_bytes(data)
    with pytest.raises(LogCorrupt, match=rf"is damaged at byte {len(HEADER)}: record 0 cannot be read"):
        ingest(spark, log, tmp_path / "lake", tmp_path / "checkpoint")
