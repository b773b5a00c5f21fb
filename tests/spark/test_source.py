"""The log as a Spark source: exact offsets, the durable mark, restarts (SPEC T-02)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.pipeline.schemas import LOG_ARROW_SCHEMA
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source import LogStreamReader, OptionError, SourceOptions
from wanderbus.records import Acknowledged, DialogStored, Published, Record, Started, Subscribed, Unsubscribed
from wanderbus.segments import HEADER, HIGH_WATER, frames, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Subscription

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
    rows = [row.asDict() for row in read(spark, write_log(records, per_segment=2)).orderBy("offset").collect()]
    bob = {"user": "sip:bob@localhost"}
    empty = dict.fromkeys(("user", "session", "device", "subject"))
    assert [{name: value for name, value in row.items() if name != "record"} for row in rows] == [
        empty | {"offset": 0, "at_us": 1, "kind": "started"},
        empty
        | bob
        | {"offset": 1, "at_us": 2, "kind": "subscribed", "session": "default", "device": "urn:uuid:b"}
        | {"subject": "Departure"},
        empty | bob | {"offset": 2, "at_us": 3, "kind": "unsubscribed"},
        empty | bob | {"offset": 3, "at_us": 4, "kind": "acknowledged", "session": "default", "device": "d"},
        empty | bob | {"offset": 4, "at_us": 5, "kind": "dialog_stored", "device": "d"},
    ]
    assert json.loads(rows[1]["record"])["subscription"]["id"] == "n-1"
    assert json.loads(rows[4]["record"]) == {
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
        read(spark, log).collect()
    assert str(caught.value) == line + "restore the file from a copy"
    with pytest.raises(LogCorrupt) as caught:
        drain(spark, log, tmp_path)
    assert str(caught.value) == line + "restore the file from a copy"


@pytest.mark.spark
def test_a_record_of_no_known_kind_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / segment_name(0)).write_bytes(HEADER + pack_frame(0, 1, b"\x81\xa4kind\xa5later"))
    (tmp_path / HIGH_WATER).write_bytes(pack_mark(1))
    line = r"record 0, which ends at byte \d+, is unknown to this version"
    with pytest.raises(LogCorrupt, match=line), plain_errors():
        read(spark, tmp_path).collect()


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
        ({"path": "/", "startingOffset": "now"}, "startingOffset must be earliest, latest or a whole number"),
        ({"path": "/", "maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "exclude each other; give one"),
    ],
)
def test_each_option_is_checked_and_named(options: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse(options)
    assert line in str(caught.value)


def stream_reader(log: Path, **options: str) -> LogStreamReader:
    return LogStreamReader(SourceOptions.parse({"path": str(log), **options}))


def test_admission_is_arithmetic_on_offsets(write_log: WriteLog, make_published: MakePublished) -> None:
    reader = stream_reader(write_log([make_published(10 + row) for row in range(30)], per_segment=8))
    assert reader.initialOffset() == {"offset": 0}
    assert reader.latestOffset({"offset": 0}, ReadMaxRows(7)) == {"offset": 7}
    assert reader.latestOffset({"offset": 28}, ReadMaxRows(7)) == {"offset": 30}
    assert reader.latestOffset({"offset": 3}, ReadAllAvailable()) == {"offset": 30}
    assert reader.latestOffset({"offset": 30}, ReadMaxBytes(1)) == {"offset": 30}
    assert reader.latestOffset({"offset": 29}, ReadMaxBytes(1)) == {"offset": 30}


def test_limits_come_from_the_options(write_log: WriteLog, make_published: MakePublished) -> None:
    log = write_log([make_published(row) for row in range(3)])
    assert stream_reader(log).getDefaultReadLimit() == ReadAllAvailable()
    assert stream_reader(log, maxrowspertrigger="2").getDefaultReadLimit() == ReadMaxRows(2)
    assert stream_reader(log, maxBytesPerTrigger="99").getDefaultReadLimit() == ReadMaxBytes(99)
    assert stream_reader(log, startingOffset="latest").initialOffset() == {"offset": 3}
    assert stream_reader(log, startingOffset="2").initialOffset() == {"offset": 2}
    with pytest.raises(OptionError, match="startingOffset 4 is beyond the 3 durable records"):
        stream_reader(log, startingOffset="4").initialOffset()


def test_available_now_ends_where_the_mark_stood_when_it_began(
    write_log: WriteLog, make_published: MakePublished
) -> None:
    reader = stream_reader(write_log([make_published(row) for row in range(5)]))
    reader.prepareForTriggerAvailableNow()
    write_log([make_published(row) for row in range(8)])
    assert reader.latestOffset({"offset": 0}, ReadAllAvailable()) == {"offset": 5}
    assert reader.reportLatestOffset() == {"offset": 8}


def test_the_checkpoint_of_another_log_is_refused(write_log: WriteLog, make_published: MakePublished) -> None:
    reader = stream_reader(write_log([make_published(row) for row in range(3)]))
    with pytest.raises(StorageError, match=r"the checkpoint is at record 9, but .* durable only up to 3: it is"):
        reader.latestOffset({"offset": 9}, ReadAllAvailable())


def test_arrow_columns_are_those_that_spark_expects() -> None:
    assert [(field.name, str(field.type)) for field in LOG_ARROW_SCHEMA][:3] == [
        ("offset", "int64"),
        ("at_us", "int64"),
        ("kind", "string"),
    ]
