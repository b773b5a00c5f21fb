"""Columns of attributes follow the schemas that the log declares (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import START_US, departure
from wanderbus.event import DeclaredAttribute, TypeName
from wanderbus.pipeline.lake import Ingestion, ingest, table
from wanderbus.pipeline.lake.delta import LakeTable, misfits_in
from wanderbus.pipeline.lake.reading import opened
from wanderbus.pipeline.lake.schema_rows import newest_schemas
from wanderbus.pipeline.tables import named
from wanderbus.records import Record, SchemaDeclared
from wanderbus.segments import segment_name

WriteLog = Callable[..., Path]
pytestmark = pytest.mark.spark

LARGE = (1 << 53) + 1


def schema(version: int, **types: TypeName) -> Record:
    """Return the record of a version of the schema of departures."""
    attributes = tuple(DeclaredAttribute(name, type_) for name, type_ in types.items())
    return SchemaDeclared(at_us=START_US, subject="Departure", version=version, attributes=attributes, by="sip:adam@a")


def rows(spark: SparkSession, lake: Path, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in table(spark, lake, "events").select(*columns).orderBy("offset").collect()]


def test_columns_follow_the_log_although_its_first_segment_is_removed(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    records = [
        departure(0, START_US, Delay=1),
        schema(1, Delay="Integer"),
        departure(2, START_US, Delay=2),
        departure(3, START_US, Delay=3),
        schema(2, Delay="Integer", Dest="String"),
        departure(5, START_US, Delay=5),
    ]
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    log = write_log(records, per_segment=2, durable=1)
    ingest(spark, log, lake, checkpoint)
    assert "Delay" not in table(spark, lake, "events").columns
    for durable in (3, 4, 6):
        write_log(records, per_segment=2, durable=durable)
        if durable > 3:
            (log / segment_name(0)).unlink()  # the segment with the first declaration
        ingest(spark, log, lake, checkpoint)
    assert rows(spark, lake, "offset", "Delay", "Dest") == [(0, None, None), (2, 2, None), (3, 3, None), (5, 5, "IAH")]
    newest = newest_schemas(lake)["Departure"]
    assert (newest.version, newest.offset, newest.by) == (2, 4, "sip:adam@a")


def test_a_wider_type_replaces_the_column_and_loses_no_value(
    spark: SparkSession, write_log: WriteLog, tmp_path: Path
) -> None:
    records = [
        departure(0, START_US, Delay=7),
        schema(1, Delay="Integer", Dest="String"),
        departure(2, START_US, Delay=LARGE),
        departure(3, START_US, Delay="late"),
        departure(4, START_US, Delay=2.5),
        schema(2, Delay="Double", Dest="String"),
        departure(6, START_US, Delay=1.5),
        departure(7, START_US, Delay=LARGE),
    ]
    lake = tmp_path / "lake"
    log = write_log(records, per_segment=2)
    for first, end in ((0, 1), (1, 5), (5, 8)):
        Ingestion(spark, log, lake).store(first, end)
    target = LakeTable(lake, named("events"))
    assert misfits_in(opened(lake, target.table, version=3)) == 2
    assert misfits_in(target.load()) == 1, "2.5 fits the wider type"
    before = table(spark, lake, "events", version=3).select("Delay").schema[0].dataType.simpleString()
    assert before == "bigint"
    left = "variant_get(attributes, '$.Delay', 'string') as left"
    found = table(spark, lake, "events").selectExpr("offset", "Delay", left).orderBy("offset").collect()
    assert [tuple(row) for row in found] == [
        (0, 7.0, "7"),
        (2, float(LARGE), str(LARGE)),
        (3, None, "late"),
        (4, 2.5, None),
        (6, 1.5, None),
        (7, float(LARGE), str(LARGE)),
    ]
