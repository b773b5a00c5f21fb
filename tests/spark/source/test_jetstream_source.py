"""Records in a stream of NATS JetStream as a Spark source: exact sequence numbers, restarts, removed messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import datasource as sql
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.spark.nats_server import HAS_SERVER, delete, nats_server, publish, remove
from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.pipeline.session import plain_errors
from wanderbus.pipeline.source.columns import log_schema
from wanderbus.pipeline.source.jetstream_source import (
    JETSTREAM_FORMAT,
    FilteringJetStreamReader,
    JetStreamReader,
    JetStreamStreamReader,
)
from wanderbus.pipeline.source.options import OptionError, StreamOptions
from wanderbus.records import Published, encode_record
from wanderbus.runtime.log_place import LogReplaced

MakePublished = Callable[..., Published]

needs_server = pytest.mark.skipif(not HAS_SERVER, reason="nats-server is not installed: apt-get install nats-server")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as address:
        yield address


def options(url: str, stream: str, **given: Any) -> StreamOptions:
    return StreamOptions.parse({"url": url, "stream": stream, **given}, JETSTREAM_FORMAT)


def offsets(reader: JetStreamReader | JetStreamStreamReader, partitions: list[sql.InputPartition]) -> list[int]:
    return [row["offset"] for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


@pytest.mark.integration
@needs_server
def test_offsets_are_sequence_numbers(url: str, make_published: MakePublished) -> None:
    made = [make_published(row) for row in range(25)]
    payloads = [encode_record(record) for record in made]
    asyncio.run(publish(url, "exact", payloads))
    reader = JetStreamReader(options(url, "exact", rowsPerPartition="10"), log_schema())
    partitions = reader.partitions()
    assert len(partitions) == 3
    rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    assert [(row["offset"], row["record"], row["at_us"]) for row in rows] == [
        (sequence, payload, record.at_us)
        for sequence, (record, payload) in enumerate(zip(made, payloads, strict=True), 1)
    ]
    stream = JetStreamStreamReader(options(url, "exact", maxRowsPerTrigger="7"), log_schema())
    start = stream.initialOffset()
    assert start == {"offset": 1}
    seven, all_25 = ({"offset": end, "checksum": crc32(payloads[end - 2])} for end in (8, 26))
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == seven
    stream.prepareForTriggerAvailableNow()
    asyncio.run(publish(url, "exact", payloads[:3]))
    assert stream.latestOffset(start, ReadAllAvailable()) == all_25
    assert stream.reportLatestOffset() == {"offset": 29}
    assert stream.latestOffset({"offset": 26}, ReadMaxRows(7)) == all_25
    assert offsets(stream, stream.partitions({"offset": 8}, {"offset": 15})) == list(range(8, 15))


@pytest.mark.integration
@needs_server
def test_pushdown_asks_only_for_the_messages_wanted(url: str, make_published: MakePublished) -> None:
    made = [make_published(row, subject=("A", "B")[row % 2]) for row in range(20)]
    asyncio.run(publish(url, "pushed", [encode_record(record) for record in made]))
    reader = FilteringJetStreamReader(options(url, "pushed"), log_schema())
    wanted = [sql.GreaterThan(("offset",), 12), sql.LessThanOrEqual(("offset",), 17), sql.EqualTo(("subject",), "A")]
    assert list(reader.pushFilters([*wanted, sql.LessThan(("at_us",), made[16].at_us)])) == []
    partitions = reader.partitions()
    assert [each.value for each in partitions] == [(13, 18)]
    assert offsets(reader, partitions) == [13, 15]


@pytest.mark.integration
@needs_server
def test_a_stream_that_was_made_again_is_refused(url: str, make_published: MakePublished) -> None:
    payloads = [encode_record(make_published(row)) for row in range(12)]
    asyncio.run(publish(url, "again", payloads[:6]))
    stream = JetStreamStreamReader(options(url, "again"), log_schema())
    read = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    asyncio.run(delete(url, "again"))
    asyncio.run(publish(url, "again", payloads[3:]))
    line = r"record 6 is another one; .*; begin with a new checkpoint"
    with pytest.raises(LogReplaced, match=line):
        stream.latestOffset(read, ReadAllAvailable())
    with pytest.raises(LogReplaced, match=line):
        stream.partitions({"offset": 1}, read)


@pytest.mark.integration
@needs_server
def test_deleted_messages_leave_gaps_and_a_removed_start_is_refused(url: str, make_published: MakePublished) -> None:
    asyncio.run(publish(url, "gaps", [encode_record(make_published(row)) for row in range(12)]))
    asyncio.run(remove(url, "gaps", sequences=[3, 4, 11, 12]))
    reader = JetStreamReader(options(url, "gaps", rowsPerPartition="2"), log_schema())
    assert offsets(reader, reader.partitions()) == [1, 2, *range(5, 11)]
    asyncio.run(remove(url, "gaps", below=7))
    assert offsets(reader, reader.partitions()) == [7, 8, 9, 10]
    stream = JetStreamStreamReader(options(url, "gaps"), log_schema())
    with pytest.raises(
        StorageError, match=r"/gaps no longer has message 5: the oldest kept is 7; begin with a new che"
    ):
        stream.partitions({"offset": 5}, {"offset": 9})
    deleted = {"offset": 13, "checksum": 1}
    assert stream.latestOffset(deleted, ReadAllAvailable()) == deleted, "there is nothing to compare"
    with pytest.raises(LogReplaced, match=r"/gaps is not the log that the checkpoint has read: it ends before"):
        stream.latestOffset({"offset": 50}, ReadAllAvailable())
    with pytest.raises(OptionError, match="startingOffset 40 is beyond the end of"):
        JetStreamStreamReader(options(url, "gaps", startingOffset="40"), log_schema()).initialOffset()


@pytest.mark.integration
@needs_server
def test_a_message_that_is_no_record_is_a_row_with_an_error(url: str, make_published: MakePublished) -> None:
    asyncio.run(publish(url, "odd", [b"no record", encode_record(make_published(1))]))
    reader = JetStreamReader(options(url, "odd"), log_schema("offset", "record", "error"))
    rows = [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]
    assert rows[0]["record"] == b"no record"
    assert rows[0]["error"]["reason"].startswith("not a record: ")
    assert (rows[0]["error"]["path"], rows[0]["error"]["byte"]) == (f"{url}/odd", None)
    assert rows[1]["error"] is None
    strict = JetStreamReader(options(url, "odd", mode="failfast"), log_schema())
    with pytest.raises(LogCorrupt, match=f"message 1 of {url}/odd is no record"):
        offsets(strict, strict.partitions())


@pytest.mark.integration
@needs_server
def test_an_unreachable_stream_is_reported_in_one_line(url: str) -> None:
    with pytest.raises(StorageError, match=f"^{url}/missing cannot be read: .*; check the server, and the options"):
        JetStreamReader(options(url, "missing"), log_schema()).partitions()
    with pytest.raises(StorageError, match=r"^nats://127.0.0.1:1/s cannot be read: .*; check the server") as caught:
        JetStreamReader(options("nats://user:secret@127.0.0.1:1", "s"), log_schema()).partitions()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"stream": "s"}, "the source 'wanderbus-jetstream' needs the option url: the address of the NATS server"),
        ({"url": "nats://h"}, "the source 'wanderbus-jetstream' needs the option stream: its name"),
        ({"url": "nats://h", "stream": "s", "path": "/"}, "unknown option 'path'"),
        ({"url": "nats://h", "stream": "s", "mode": "x"}, "mode must be permissive or failfast, not 'x'"),
    ],
)
def test_each_option_is_checked_and_named(given: dict[str, str], line: str) -> None:
    with pytest.raises(OptionError, match=line):
        StreamOptions.parse(given, JETSTREAM_FORMAT)


@pytest.mark.spark
@pytest.mark.integration
@needs_server
def test_restarts_mid_stream_read_every_message_once(
    spark: SparkSession, url: str, make_published: MakePublished, tmp_path: Path
) -> None:
    sizes = []
    for first, end in ((0, 25), (25, 40), (40, 40)):
        asyncio.run(publish(url, "restarts", [encode_record(make_published(row)) for row in range(first, end)]))
        query = (
            spark.readStream.format(JETSTREAM_FORMAT)
            .options(url=url, stream="restarts", maxRowsPerTrigger=10)
            .load()
            .select("offset", "subject")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        with plain_errors():
            query.awaitTermination()
        sizes.append([int(each["numInputRows"]) for each in query.recentProgress if each["numInputRows"]])
    assert sizes == [[10, 10, 5], [10, 5], []]
    rows = spark.read.schema("offset bigint, subject string").parquet(str(tmp_path / "out")).collect()
    assert sorted(tuple(row) for row in rows) == [(sequence, "Departure") for sequence in range(1, 41)]
    table = spark.read.format(JETSTREAM_FORMAT).options(url=url, stream="restarts").load()
    assert sorted(row["offset"] for row in table.where("offset > 35").collect()) == [36, 37, 38, 39, 40]
