"""The log as a Spark source: exact offsets, the durable mark, restarts (SPEC T-02)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source import ColumnError, OptionError, log_schema, register
from wanderbus.pipeline.source.log_source import FORMAT, LogStreamReader
from wanderbus.pipeline.source.options import LogOptions
from wanderbus.records import (
    Acknowledged,
    DialogStored,
    Published,
    Record,
    Started,
    Subscribed,
    Unsubscribed,
    encode_record,
)
from wanderbus.runtime.log_place import LogReplaced, checksum_before
from wanderbus.segments import HEADER, HIGH_WATER, frames, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Subscription

ROOT = Path(__file__).resolve().parents[3]

WriteLog = Callable[..., Path]
MakePublished = Callable[..., Published]


def read(spark: SparkSession, log: Path, **options: Any) -> DataFrame:
    return spark.read.format("wanderbus").options(**options).load(str(log))


def drain(spark: SparkSession, log: Path, work: Path, **options: Any) -> list[int]:
    """Run an available-now query into ``work``; return the sizes of its micro-batches."""
    query = (
        spark.readStream.format("wanderbus")
        .options(path=str(log), **options)
        .load()
        .select("offset", "kind")
        .writeStream.format("parquet")
        .option("path", str(work / "out"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with plain_errors():
        query.awaitTermination()
    return [int(progress["numInputRows"]) for progress in query.recentProgress if progress["numInputRows"]]


def offsets_written(spark: SparkSession, work: Path) -> list[int]:
    rows = spark.read.schema("offset bigint, kind string").parquet(str(work / "out")).collect()
    return sorted(row["offset"] for row in rows)


@pytest.mark.spark
def test_each_kind_of_record_becomes_a_row_with_the_fields_it_has(spark: SparkSession, write_log: WriteLog) -> None:
    subscription = Subscription("n-1", "sip:bob@localhost", "default", "Departure", "", device="urn:uuid:b")
    records: list[Record] = [
        Started(at_us=1, server="north", incarnation=1),
        Subscribed(at_us=2, subscription=subscription, number=1),
        Unsubscribed(at_us=3, user="sip:bob@localhost", subscription="n-1", reason="asked"),
        Acknowledged(at_us=4, user="sip:bob@localhost", session="default", device="d", number=9),
        DialogStored(at_us=5, user="sip:bob@localhost", device="d", address="127.0.0.1:5", binding=b"\x00\xff"),
    ]
    log = write_log(records, per_segment=2)
    rows = [row.asDict() for row in read(spark, log).orderBy("offset").collect()]
    bob = {"user": "sip:bob@localhost"}
    empty = dict.fromkeys(("user", "session", "device", "subject", "published_us", "attributes"))
    assert [(row["record"], row["error"]) for row in rows] == [(encode_record(record), None) for record in records]
    assert [{name: value for name, value in row.items() if name not in ("record", "error")} for row in rows] == [
        empty | {"offset": 0, "at_us": 1, "kind": "started"},
        empty
        | bob
        | {"offset": 1, "at_us": 2, "kind": "subscribed", "session": "default", "device": "urn:uuid:b"}
        | {"subject": "Departure"},
        empty | bob | {"offset": 2, "at_us": 3, "kind": "unsubscribed"},
        empty | bob | {"offset": 3, "at_us": 4, "kind": "acknowledged", "session": "default", "device": "d"},
        empty | bob | {"offset": 4, "at_us": 5, "kind": "dialog_stored", "device": "d"},
    ]
    texts = spark.read.format("wanderbus").schema(log_schema("offset", "json")).load(str(log)).orderBy("offset")
    fields = [json.loads(row["json"]) for row in texts.collect()]
    assert fields[1]["subscription"]["id"] == "n-1"
    assert fields[4] == {
        **{"kind": "dialog_stored", "at_us": 5, "device": "d", "address": "127.0.0.1:5", "binding": "AP8="},
        **bob,
    }


@pytest.mark.spark
def test_a_batch_read_spans_segments_and_tasks(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished
) -> None:
    log = write_log([make_published(row) for row in range(100)], per_segment=30)
    table = read(spark, log, rowsPerPartition=13, startingOffset=5)
    assert sorted(row["offset"] for row in table.select("offset").collect()) == list(range(5, 100))


@pytest.mark.spark
def test_nothing_at_or_beyond_the_durable_mark_is_seen(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    """DESIGN 5.1: whole records beyond the mark and a torn tail are equally invisible, to batch and stream."""
    log = write_log([make_published(row) for row in range(12)], per_segment=5, durable=11)
    with (log / segment_name(10)).open("ab") as file:
        file.write(pack_frame(12, 1, b"torn")[:-2])
    assert read(spark, log).count() == 11
    assert drain(spark, log, tmp_path) == [11]
    (log / HIGH_WATER).write_bytes(pack_mark(12))
    assert drain(spark, log, tmp_path) == [1]
    assert offsets_written(spark, tmp_path) == list(range(12))


@pytest.mark.spark
def test_three_restarts_mid_stream_read_every_record_once(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    """SPEC T-02: each life admits exactly ten rows a batch, dies after some, and the log grows in between."""
    sizes = []
    for durable in (25, 40, 40, 61):
        records = [make_published(row) for row in range(durable)]
        log = write_log(records, per_segment=9)
        sizes.append(drain(spark, log, tmp_path, maxRowsPerTrigger=10))
    assert sizes == [[10, 10, 5], [10, 5], [], [10, 10, 1]]
    assert offsets_written(spark, tmp_path) == list(range(61))


@pytest.mark.spark
def test_a_query_that_died_inside_a_batch_does_it_again_and_once(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    """The batch is planned in the checkpoint but committed nowhere: it has to be the same records again."""
    log = write_log([make_published(row) for row in range(20)], per_segment=6)
    drain(spark, log, tmp_path, maxRowsPerTrigger=10)
    for commits in (tmp_path / "checkpoint" / "commits", tmp_path / "out" / "_spark_metadata"):
        (commits / ".1.crc").unlink()
        (commits / "1").unlink()
    log = write_log([make_published(row) for row in range(23)], per_segment=6)
    assert drain(spark, log, tmp_path, maxRowsPerTrigger=10) == [10, 3]
    assert offsets_written(spark, tmp_path) == list(range(23))


@pytest.mark.spark
def test_spark_leaves_to_the_source_what_it_can_check(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished
) -> None:
    """The rows are those that Spark itself would keep; the plan has no filter of its own left."""
    log = write_log(
        [make_published(row, subject=("Departure", "Arrival")[row % 2]) for row in range(100)], per_segment=30
    )
    wanted = (
        "subject = 'Arrival' and kind = 'published' and offset >= 20 and at_us < 1700000000090000 and user is not null"
    )
    table = read(spark, log).where(wanted).select("offset")
    assert sorted(row["offset"] for row in table.collect()) == list(range(21, 90, 2))
    assert "Filter (" not in plan_of(table)
    half = read(spark, log).where("offset < 50 and length(subject) = 7").select("offset")
    assert sorted(row["offset"] for row in half.collect()) == list(range(1, 50, 2))
    assert "length" in plan_of(half)


@pytest.mark.spark
def test_a_session_without_pushdown_gets_a_reader_without_it(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished
) -> None:
    """Spark refuses a reader that can filter where this is not enabled."""
    log = write_log([make_published(row) for row in range(10)])
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    try:
        with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
            read(spark, log).count()
        register(spark)
        table = read(spark, log).where("offset >= 7").select("offset")
        assert sorted(row["offset"] for row in table.collect()) == [7, 8, 9]
        assert "Filter (" in plan_of(table)
    finally:
        spark.conf.set(name, "true")
        register(spark)


def plan_of(table: DataFrame) -> str:
    """Return the physical plan as text."""
    return str(table._jdf.queryExecution().executedPlan().toString())


@pytest.mark.spark
def test_records_that_cannot_be_read_stop_neither_batch_nor_stream(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    log = write_log([make_published(row) for row in range(10)], per_segment=5)
    segment = log / segment_name(5)
    data = bytearray(segment.read_bytes())
    byte = next(frames(bytes(data), len(HEADER))).end
    data[byte + 40] ^= 0xFF
    segment.write_bytes(data)
    first = log / segment_name(0)
    unknown = b"\x82\xa4kind\xa5later\xa5at_us\x01"
    first.write_bytes(HEADER + pack_frame(0, 1, unknown) + first.read_bytes()[next_start(first) :])
    table = read(spark, log)
    found = [tuple(row) for row in table.where("error is not null").select("offset", "record", "error.*").collect()]
    reason = "a record of the unknown kind 'later'"
    assert sorted(found) == [
        (0, unknown, reason, str(first), len(HEADER)),
        (6, None, "the frame is damaged", str(segment), byte),
    ]
    assert table.where("error is null").count() == 8
    assert drain(spark, log, tmp_path, maxRowsPerTrigger=4) == [4, 4, 2]
    assert offsets_written(spark, tmp_path) == list(range(10))


def next_start(segment: Path) -> int:
    return next(frames(segment.read_bytes(), len(HEADER))).end


@pytest.mark.spark
def test_a_stream_whose_next_records_were_removed_fails_in_one_line(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    """Retention: a batch begins at the oldest record kept, a checkpoint never skips."""
    log = write_log([make_published(row) for row in range(30)], per_segment=10)
    assert drain(spark, log, tmp_path, maxRowsPerTrigger=5, startingOffset=0)[0] == 5
    log = write_log([make_published(row) for row in range(60)], per_segment=10)
    for first in range(0, 40, 10):
        (log / segment_name(first)).unlink()
    assert sorted(row["offset"] for row in read(spark, log).select("offset").collect()) == list(range(40, 60))
    with pytest.raises(StorageError, match=r"no longer has record 30: the oldest kept is 40; begin with a new check"):
        drain(spark, log, tmp_path, maxRowsPerTrigger=5, startingOffset=0)


@pytest.mark.spark
def test_a_damaged_frame_below_the_mark_is_one_line_with_file_and_byte(
    spark: SparkSession, write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    log = write_log([make_published(row) for row in range(10)], per_segment=5)
    segment = log / segment_name(5)
    data = bytearray(segment.read_bytes())
    byte = next(frames(bytes(data), len(HEADER))).end
    data[byte + 40] ^= 0xFF
    segment.write_bytes(data)
    line = f"{segment} is damaged at byte {byte}: record 6 cannot be read although it was durable; "
    with pytest.raises(LogCorrupt) as caught, plain_errors():
        read(spark, log, mode="failfast").collect()
    assert str(caught.value) == line + "restore the file from a copy"
    with pytest.raises(LogCorrupt) as caught:
        drain(spark, log, tmp_path, mode="failfast")
    assert str(caught.value) == line + "restore the file from a copy"


@pytest.mark.spark
def test_a_record_of_no_known_kind_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / segment_name(0)).write_bytes(HEADER + pack_frame(0, 1, b"\x81\xa4kind\xa5later"))
    (tmp_path / HIGH_WATER).write_bytes(pack_mark(1))
    line = rf"record 0 at byte {len(HEADER)} is unknown to this version \(a record of the unknown kind 'later'\)"
    with pytest.raises(LogCorrupt, match=line), plain_errors():
        read(spark, tmp_path, mode="failfast").collect()


@pytest.mark.spark
def test_a_wrong_option_reaches_the_user_as_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught, plain_errors():
        read(spark, tmp_path, maxRowsPerTrigger="ten").count()
    assert str(caught.value) == "maxRowsPerTrigger must be a whole number above 0, not 'ten'"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "needs the option path"),
        ({"path": "/nowhere/at/all"}, "path '/nowhere/at/all' is not a directory"),
        ({"path": "/", "rows": "1"}, "unknown option 'rows'; the source 'wanderbus' knows path, startingOffset"),
        ({"path": "/", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be a whole number above 0, not '0'"),
        ({"path": "/", "maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger must be a whole number above 0, not '-1'"),
        ({"path": "/", "rowsPerPartition": "1.5"}, "rowsPerPartition must be a whole number above 0, not '1.5'"),
        ({"path": "/", "mode": "strict"}, "mode must be permissive or failfast, not 'strict'"),
        ({"path": "/", "startingOffset": "now"}, "startingOffset must be earliest, latest or a whole number"),
        ({"path": "/", "maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "exclude each other; give one"),
    ],
)
def test_each_option_is_checked_and_named(options: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError) as caught:
        LogOptions.parse(options, FORMAT)
    assert line in str(caught.value)


def test_a_data_directory_is_that_of_its_log_and_one_without_a_log_is_refused(
    write_log: WriteLog, make_published: MakePublished, tmp_path: Path
) -> None:
    log = write_log([make_published(row) for row in range(3)], name="data/log")
    for given in (log, log.parent):
        assert LogOptions.parse({"path": str(given)}, FORMAT).path == log
    (tmp_path / "lake" / "bronze").mkdir(parents=True)
    for wrong in (tmp_path, tmp_path / "lake"):
        with pytest.raises(OptionError, match="holds no event log that a server has opened; give a server's data dire"):
            LogOptions.parse({"path": str(wrong)}, FORMAT)


@pytest.mark.spark
def test_every_session_of_spark_has_the_source_with_the_attributes(
    write_log: WriteLog, make_published: MakePublished
) -> None:
    log = write_log([make_published(row) for row in range(3)], name="data/log")
    code = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("wanderbus").load({str(log.parent)!r})
print(rows.selectExpr("sum(variant_get(attributes, '$.Row', 'int'))").collect()[0][0], rows.columns)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout.startswith("3 ['offset', 'at_us'"), ran.stderr[-3000:]


def stream_reader(log: Path, **options: str) -> LogStreamReader:
    return LogStreamReader(LogOptions.parse({"path": str(log), **options}, FORMAT), log_schema())


def at(log: Path, offset: int) -> dict[str, int]:
    """Return an offset as a stream of this log has it."""
    checksum = checksum_before(log, offset)
    return {"offset": offset} if checksum is None else {"offset": offset, "checksum": checksum}


def test_admission_is_arithmetic_on_offsets(write_log: WriteLog, make_published: MakePublished) -> None:
    log = write_log([make_published(10 + row) for row in range(30)], per_segment=8)
    reader = stream_reader(log)
    assert reader.initialOffset() == {"offset": 0}
    assert reader.latestOffset({"offset": 0}, ReadMaxRows(7)) == at(log, 7)
    assert reader.latestOffset(at(log, 28), ReadMaxRows(7)) == at(log, 30)
    assert reader.latestOffset(at(log, 3), ReadAllAvailable()) == at(log, 30)
    assert reader.latestOffset(at(log, 30), ReadMaxBytes(1)) == at(log, 30)
    assert reader.latestOffset(at(log, 29), ReadMaxBytes(1)) == at(log, 30)


def test_limits_come_from_the_options(write_log: WriteLog, make_published: MakePublished) -> None:
    log = write_log([make_published(row) for row in range(3)])
    assert stream_reader(log).getDefaultReadLimit() == ReadAllAvailable()
    assert stream_reader(log, maxrowspertrigger="2").getDefaultReadLimit() == ReadMaxRows(2)
    assert stream_reader(log, maxBytesPerTrigger="99").getDefaultReadLimit() == ReadMaxBytes(99)
    assert stream_reader(log, startingOffset="latest").initialOffset() == at(log, 3)
    assert stream_reader(log, startingOffset="2").initialOffset() == at(log, 2)
    with pytest.raises(OptionError, match="startingOffset 4 is beyond the 3 durable records"):
        stream_reader(log, startingOffset="4").initialOffset()


def test_available_now_ends_where_the_mark_stood_when_it_began(
    write_log: WriteLog, make_published: MakePublished
) -> None:
    log = write_log([make_published(row) for row in range(5)])
    reader = stream_reader(log)
    reader.prepareForTriggerAvailableNow()
    write_log([make_published(row) for row in range(8)])
    assert reader.latestOffset({"offset": 0}, ReadAllAvailable()) == at(log, 5)
    assert reader.reportLatestOffset() == {"offset": 8}


def test_the_checkpoint_of_another_log_is_refused(write_log: WriteLog, make_published: MakePublished) -> None:
    reader = stream_reader(write_log([make_published(row) for row in range(3)]))
    with pytest.raises(LogReplaced, match=r"is not the log that the checkpoint has read: it ends before record 3, and"):
        reader.latestOffset({"offset": 9}, ReadAllAvailable())


@pytest.mark.parametrize("is_new_reader", [True, False])
def test_a_log_that_was_restored_and_grew_past_the_checkpoint_is_refused(
    write_log: WriteLog, make_published: MakePublished, is_new_reader: bool
) -> None:
    log = write_log([make_published(row) for row in range(9)], per_segment=4)
    reader = stream_reader(log)
    common, read = (
        reader.latestOffset({"offset": 0}, ReadMaxRows(3)),
        reader.latestOffset({"offset": 0}, ReadMaxRows(6)),
    )
    write_log([make_published(row if row < 3 else 100 + row) for row in range(19)], per_segment=4)
    if is_new_reader:
        reader = stream_reader(log)
    line = r"record 5 is another one; it was restored from a copy or replaced; begin with a new checkp"
    with pytest.raises(LogReplaced, match=line):
        reader.latestOffset(read, ReadAllAvailable())
    for start, end in ((read, at(log, 19)), ({"offset": 0}, read)):  # the second batch was planned before
        with pytest.raises(LogReplaced, match=line):
            reader.partitions(start, end)
    assert reader.latestOffset(common, ReadAllAvailable()) == at(log, 19), "it stopped before the copy"


def test_a_checkpoint_of_an_earlier_version_gets_a_checksum(write_log: WriteLog, make_published: MakePublished) -> None:
    log = write_log([make_published(row) for row in range(3)])
    assert stream_reader(log).latestOffset({"offset": 3}, ReadAllAvailable()) == at(log, 3)
    assert len(stream_reader(log).partitions({"offset": 1}, {"offset": 3})) == 1


def test_a_schema_chooses_columns_and_only_those_that_exist() -> None:
    assert log_schema("kind", "offset").simpleString() == "struct<kind:string,offset:bigint>"
    with pytest.raises(ColumnError, match="the source has no column 'colour'; it has offset, at_us, kind"):
        log_schema("offset", "colour")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ("offset bigint, colour string", "the source has no column 'colour'; it has offset,"),
        ("offset string", "the column 'offset' of the source is bigint, not string"),
    ],
)
def test_a_wrong_schema_reaches_the_user_as_one_line(
    spark: SparkSession, write_log: WriteLog, schema: str, line: str
) -> None:
    with pytest.raises(ColumnError, match=line), plain_errors():
        spark.read.format("wanderbus").schema(schema).load(str(write_log([]))).count()
