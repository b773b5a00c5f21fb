"""The lake has every record of the log once, decoded into typed tables (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import DAY_US, START_US, USER
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake import Ingestion, ingest, reconcile, table
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.tables import TABLES, named
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.pipeline.tables.schemas import spark_schema
from wanderbus.records import Record, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

WriteLog = Callable[..., Path]
MakeRecords = Callable[[int], list[Record]]
pytestmark = pytest.mark.spark

DECLARED: Declared = {
    "Departure": {"Row": "Integer", "Dest": "String", "Delay": "Double", "Number": "Integer"},
    "Arrival / É 100%": {"Row": "Integer", "Delay": "Double"},
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, every_record: MakeRecords, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lake of all records, made in three batches by two jobs; the log is beside it."""
    work = tmp_path_factory.mktemp("lake")
    log = work / "log"
    log.mkdir()
    for durable in (7, 12):
        records = every_record(12)
        packed = b"".join(
            pack_frame(offset, record.at_us, encode_record(record)) for offset, record in enumerate(records)
        )
        (log / segment_name(0)).write_bytes(HEADER + packed)
        (log / HIGH_WATER).write_bytes(pack_mark(durable))
        ingest(spark, log, work / "lake", work / "checkpoint", rows_per_batch=5, declared=DECLARED)
    return work / "lake"


def rows(spark: SparkSession, lake: Path, name: str, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in table(spark, lake, name).select(*columns).orderBy(columns[0]).collect()]


def test_bronze_has_every_record_as_it_is(spark: SparkSession, lake: Path, every_record: MakeRecords) -> None:
    found = rows(spark, lake, "records", "offset", "at_us", "record")
    assert [(offset, at_us, bytes(record)) for offset, at_us, record in found] == [  # type: ignore[call-overload]
        (offset, record.at_us, encode_record(record)) for offset, record in enumerate(every_record(12))
    ]


def test_declared_attributes_have_columns_of_their_types(spark: SparkSession, lake: Path) -> None:
    columns = ("offset", "server", "incarnation", "number", "published_us", "subject", "Row", "Dest", "Delay")
    assert rows(spark, lake, "events", *columns) == [
        (3, "wb", 7, 3, START_US + 2_500, "Departure", 3, "IAH", 2.5),
        (4, "wb", 7, 4, START_US + DAY_US + 3_500, "Departure", 4, "IAH", 3.0),
        (6, "wb", 7, 6, START_US + 5_500, "Arrival / É 100%", 6, None, None),
    ]


def test_values_of_other_types_and_undeclared_ones_are_in_the_variant(spark: SparkSession, lake: Path) -> None:
    found = table(spark, lake, "events").orderBy("offset").select("attributes").collect()
    assert [row[0] and row[0].toPython() for row in found] == [None, {"Delay": 3}, {"Dest": "IAH", "Delay": "late"}]


def test_notifications_deliveries_and_sessions_are_decoded(spark: SparkSession, lake: Path) -> None:
    assert rows(spark, lake, "notifications", "offset", "user", "number", "subscriptions") == [
        (3, USER, 3, ["s1"]),
        (4, USER, 4, ["s1"]),
        (6, USER, 6, ["s1"]),
    ]
    assert rows(spark, lake, "deliveries", "offset", "kind", "first", "last", "reason") == [
        (7, "acknowledged", None, 4, None),
        (8, "dropped", 5, 6, "full"),
    ]
    assert rows(spark, lake, "sessions", "offset", "kind", "epoch", "status", "grace_s") == [
        (1, "attached", 4, None, None),
        (9, "status", None, "DISCONNECTED", 30.0),
    ]


def test_each_version_of_a_subscription_has_its_lifetime(spark: SparkSession, lake: Path) -> None:
    columns = ("from_offset", "id", "to_offset", "ended", "restrictions", "is_live")
    assert rows(spark, lake, "subscriptions", *columns) == [
        (2, "s1", 5, "changed", "[]", False),
        (5, "s1", 10, "asked", '[{"type":"frequency","period_s":60.0,"when":"always"}]', False),
        (11, "s2", None, None, "[]", True),
    ]


def test_duckdb_polars_and_pandas_read_the_same_tables(spark: SparkSession, lake: Path) -> None:
    for each in TABLES:
        target = LakeTable(lake, each)
        count = table(spark, lake, each.name).count()
        delta = DeltaTable(target.directory)
        plain = [column.name for column in each.columns if column.type != "variant"]
        assert polars.scan_delta(delta).select(plain).collect().height == count, each.name
        assert len(delta.to_pandas(columns=plain)) == count, each.name
        if count:
            assert duckdb.read_parquet(delta.file_uris()).count("*").fetchall() == [(count,)], each.name
    events = DeltaTable(LakeTable(lake, named("events")).directory)
    frame = polars.scan_delta(events).filter(polars.col("subject") == "Arrival / É 100%").select("Row").collect()
    assert frame["Row"].to_list() == [6]


def test_files_are_separated_by_subject_and_date(lake: Path) -> None:
    target = LakeTable(lake, named("events"))
    found = {(file.partition["subject"], file.partition["date"]) for file in target.files(target.load())}
    assert found == {
        ("Departure", "2023-11-14"),
        ("Departure", "2023-11-15"),
        ("Arrival / É 100%", "2023-11-14"),
    }


def test_the_lake_reconciles_with_the_log(spark: SparkSession, lake: Path) -> None:
    (segment,) = reconcile(spark, lake.parent / "log", lake)
    assert (segment.differs, segment.log.records) == (False, 12)


def test_a_version_and_an_instant_are_read_as_they_were(spark: SparkSession, lake: Path) -> None:
    assert table(spark, lake, "records", version=0).count() == 0
    assert table(spark, lake, "records", version=1).count() == 5
    with pytest.raises(StorageError, match=r"records has no version 99"):
        table(spark, lake, "records", version=99)


def test_a_lake_belongs_to_one_log(
    spark: SparkSession, lake: Path, write_log: WriteLog, make_published: Callable[..., Record]
) -> None:
    other = write_log([make_published(0)])
    with pytest.raises(StorageError, match=r"has the log wb-7, not wb-1; use another directory"):
        Ingestion(spark, other, lake).store(0, 1)


def test_a_checkpoint_of_another_lake_is_refused(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log = write_log(every_record(12))
    with pytest.raises(StorageError, match=r"has the log up to record 0, but the checkpoint is at 5"):
        Ingestion(spark, log, tmp_path / "lake").store(5, 12)


def test_columns_are_added_as_attributes_are_declared(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    lake, records = tmp_path / "lake", every_record(12)
    log = write_log(records, durable=4)
    ingest(spark, log, lake, tmp_path / "checkpoint", declared={"Departure": {"Row": "Integer"}})
    write_log(records)
    counts = ingest(
        spark, log, lake, tmp_path / "checkpoint", declared={"Departure": {"Row": "String", "Dest": "String"}}
    )
    assert rows(spark, lake, "events", "offset", "Row", "Dest") == [(3, 3, None), (4, None, "IAH"), (6, None, None)]
    assert counts["events"].rows == 2


def test_the_schema_in_delta_is_that_of_the_specification(spark: SparkSession, lake: Path) -> None:
    for each in TABLES:
        if each.name != "events":
            assert table(spark, lake, each.name).schema == spark_schema(each)


def test_a_continuous_job_follows_the_log_until_it_is_stopped(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log, lake = write_log(every_record(12), durable=3), tmp_path / "lake"
    job = Ingestion(spark, log, lake, has_silver=False)
    query = job.start(tmp_path / "checkpoint", every_s=0.1)
    try:
        query.processAllAvailable()
        write_log(every_record(12))
        query.processAllAvailable()
    finally:
        query.stop()
    assert (job.counts["records"].rows, job.error) == (12, None)
    assert table(spark, lake, "records").count() == 12


def test_an_error_of_the_log_is_one_line(
    spark: SparkSession, write_log: WriteLog, every_record: MakeRecords, tmp_path: Path
) -> None:
    log = write_log([every_record(12)[1]])
    with pytest.raises(StorageError, match=r"\A\S+ has no record that names its server; a job needs one with a start"):
        ingest(spark, log, tmp_path / "lake", tmp_path / "checkpoint")
