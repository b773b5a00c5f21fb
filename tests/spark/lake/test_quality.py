"""Bad records stop nothing: checks count, quarantine or stop, and the quarantine has each row's place (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import departure
from wanderbus.pipeline.lake import Ingestion, reconcile, table
from wanderbus.pipeline.lake.quality import REJECTED, CheckFailed, TableCounts, judged, require
from wanderbus.pipeline.tables import RECORDS, Check, Column, Table
from wanderbus.records import Record, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

MakeRecords = Callable[[int], list[Record]]
pytestmark = pytest.mark.spark


def write(log: Path, payloads: list[bytes], damaged: int | None = None) -> list[int]:
    """Write payloads as a log, with one frame damaged; return the bytes at which the frames begin."""
    log.mkdir()
    frames = [pack_frame(offset, 1_700_000_000_000_000 + offset, payload) for offset, payload in enumerate(payloads)]
    places = [len(HEADER) + sum(map(len, frames[:place])) for place in range(len(frames))]
    data = bytearray(HEADER + b"".join(frames))
    if damaged is not None:
        data[places[damaged] + 30] ^= 0xFF
    (log / segment_name(0)).write_bytes(data)
    (log / HIGH_WATER).write_bytes(pack_mark(len(frames)))
    return places


def test_every_bad_record_is_in_the_quarantine_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    good = [encode_record(departure(number, 1_700_000_000_000_000 + number)) for number in range(7)]
    unknown = msgspec.msgpack.encode({"kind": "invented", "at_us": 2})
    without_event = msgspec.msgpack.encode(
        {"kind": "published", "at_us": 3, "acceptance": {"user": "u", "device": "d", "event": {"subject": "Departure"}}}
    )
    unnamed = encode_record(departure(4, 1_700_000_000_000_004, subject=""))
    payloads = [good[0], good[1], unknown, without_event, unnamed, b"\xc1", good[6]]
    log, lake = tmp_path / "log", tmp_path / "lake"
    places = write(log, payloads, damaged=1)
    job = Ingestion(spark, log, lake)
    job.store(spark.read.format("wanderbus").load(str(log)))

    rows = table(spark, lake, "quarantine").orderBy("offset", "table").collect()
    path = str(log / segment_name(0))
    assert [(row["table"], row["offset"], row["path"], row["byte"]) for row in rows] == [
        (name, offset, path, places[offset])
        for name, offset in (
            *(("records", 1), ("records", 2), ("events", 3), ("events", 4), ("notifications", 4), ("records", 5)),
        )
    ]
    assert [row["record"] and bytes(row["record"]) for row in rows] == [
        *(None, unknown, without_event, unnamed, unnamed, b"\xc1"),
    ]
    reasons = [row["reason"] for row in rows]
    assert reasons[0] == "the frame is damaged"
    assert reasons[1] == "a record of the unknown kind 'invented'"
    assert reasons[2].startswith("cannot be decoded: Object missing required field")
    assert reasons[3] == reasons[4] == "check subject_named: a subject has at least one character"
    assert reasons[5].startswith("not a record")

    assert [row[0] for row in table(spark, lake, "records").select("offset").orderBy("offset").collect()] == [
        0,
        3,
        4,
        6,
    ]
    assert [row[0] for row in table(spark, lake, "events").select("offset").orderBy("offset").collect()] == [0, 6]
    assert {name: (counts.rows, counts.rejected) for name, counts in job.counts.items() if counts.rejected} == {
        "records": (4, 3),
        "events": (2, 2),
        "notifications": (2, 1),
    }
    (segment,) = reconcile(spark, log, lake)
    assert (segment.differs, segment.log.records) == (False, 7)


def test_a_check_warns_drops_or_fails(spark: SparkSession) -> None:
    checks = (
        Check("even", "n % 2 = 0", "warn", "a number is even"),
        Check("small", "n < 3", "drop", "a number is small"),
        Check("known", "n <> 9", "fail", "a number is not nine"),
    )
    spec = Table(
        name="numbers",
        layer="silver",
        meaning="Numbers.",
        columns=(Column("n", "bigint", "a number"),),
        partitioned_by=("n",),
        checks=checks,
    )
    rows = spark.createDataFrame([(1,), (2,), (3,), (None,)], "n bigint")
    found = {row["n"]: row[REJECTED] for row in judged(rows, spec).collect()}
    assert found == {
        1: None,
        2: None,
        3: "check small: a number is small",
        None: "check n_present: the row has a value of `n`",
    }
    require(TableCounts(1, 0, 0, {"even": 3}), spec, "log")
    with pytest.raises(CheckFailed, match="log: 2 rows of the table 'numbers' do not meet the check 'known': a number"):
        require(TableCounts(1, 0, 0, {"known": 2}), spec, "log")


def test_warnings_and_misfits_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    at_us = 1_700_000_000_000_000
    late = encode_record(departure(0, at_us + 3_600_000_000))  # the frame is an hour earlier than the publication
    log = tmp_path / "log"
    write(log, [late, encode_record(departure(1, at_us, Delay="late"))])
    job = Ingestion(spark, log, tmp_path / "lake", declared={"Departure": {"Delay": "Double", "Row": "Integer"}})
    job.store(spark.read.format("wanderbus").load(str(log)))
    assert job.counts["events"] == TableCounts(rows=2, misfits=1, unmet={"publisher_clock": 1})
    assert job.counts["events"] + job.counts["records"] == TableCounts(4, 0, 1, {"publisher_clock": 1})


def test_a_failed_check_leaves_no_files(
    spark: SparkSession, tmp_path: Path, every_record: MakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wanderbus.pipeline.lake import jobs

    strict = msgspec.structs.replace(
        RECORDS, checks=(Check("no_drops", "kind <> 'dropped'", "fail", "nothing is dropped"),)
    )
    monkeypatch.setattr(jobs, "RECORDS", strict)
    log = tmp_path / "log"
    write(log, [encode_record(record) for record in every_record(12)])
    with pytest.raises(CheckFailed, match=r"log: records 0 to 11: 1 rows of the table 'records' .* nothing is dropped"):
        Ingestion(spark, log, tmp_path / "lake").store(spark.read.format("wanderbus").load(str(log)))
    assert list((tmp_path / "lake").rglob("*.parquet")) == []
