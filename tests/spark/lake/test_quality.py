"""Bad records stop nothing: checks count, quarantine or stop, and the quarantine has each row's place (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.conftest import departure
from wanderbus.pipeline.lake import Ingestion, reconcile, table
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.quality import CheckFailed, TableCounts, judged, require
from wanderbus.pipeline.tables import RECORDS, Check, Column, TableSpecification
from wanderbus.pipeline.tables.conditions import column
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
    job.store(0, 7)

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


def test_a_check_warns_drops_or_fails() -> None:
    checks = (
        Check("positive", column("n") > 0, "warn", "a number is positive"),
        Check("small", column("n") < 3, "drop", "a number is small"),
        Check("known", column("n") != -9, "fail", "a number is not minus nine"),
    )
    spec = TableSpecification(
        name="numbers",
        layer="silver",
        meaning="Numbers.",
        columns=(Column("n", "bigint", "a number"),),
        partitioned_by=("n",),
        checks=checks,
    )
    found = judged(pa.RecordBatch.from_pydict({"n": [1, -2, 3, None, -9]}), spec)
    assert found.rows.to_pydict() == {"n": [1, -2, -9]}
    assert found.rejected == {2: "check small: a number is small", 3: "check n_present: the row has a value of `n`"}
    assert found.counts == TableCounts(3, 2, 0, {"positive": 3, "known": 2})
    with pytest.raises(CheckFailed, match="log: 2 rows of the table 'numbers' do not meet the check 'known': a number"):
        require(found.counts, spec, "log")
    require(TableCounts(1, 0, 0, {"positive": 3}), spec, "log")


def test_warnings_and_misfits_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    at_us = 1_700_000_000_000_000
    late = encode_record(departure(0, at_us + 3_600_000_000))  # the frame is an hour earlier than the publication
    log = tmp_path / "log"
    write(log, [late, encode_record(departure(1, at_us, Delay="late"))])
    job = Ingestion(spark, log, tmp_path / "lake", declared={"Departure": {"Delay": "Double", "Row": "Integer"}})
    job.store(0, 2)
    assert job.counts["events"] == TableCounts(rows=2, misfits=1, unmet={"publisher_clock": 1})
    assert job.counts["events"] + job.counts["records"] == TableCounts(4, 0, 1, {"publisher_clock": 1})


def test_a_value_that_no_column_can_have_costs_its_record_alone(spark: SparkSession, tmp_path: Path) -> None:
    at_us = 1_700_000_000_000_000
    records = [departure(number, at_us + number, Row=1 << 63 if number in (3, 8) else number) for number in range(10)]
    log, lake = tmp_path / "log", tmp_path / "lake"
    write(log, [encode_record(record) for record in records])
    Ingestion(spark, log, lake, declared={"Departure": {"Row": "Integer"}}).store(0, 10)
    assert sorted(row[0] for row in table(spark, lake, "events").select("Row").collect()) == [0, 1, 2, 4, 5, 6, 7, 9]
    rejected = table(spark, lake, "quarantine").select("table", "offset", "reason").orderBy("offset").collect()
    assert [(row[0], row[1], row[2].partition(":")[0]) for row in rejected] == [
        ("events", 3, "cannot be decoded"),
        ("events", 8, "cannot be decoded"),
    ]


def test_rejected_rows_are_in_the_quarantine_once_although_jobs_are_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_us = 1_700_000_000_000_000
    payloads = [
        encode_record(departure(number, at_us + number, subject="" if number % 3 else "A")) for number in range(9)
    ]
    payloads[4] = b"\xc1"
    log, lake = tmp_path / "log", tmp_path / "lake"
    write(log, payloads)
    Ingestion(spark, log, lake, has_silver=False).store(0, 6)  # so tables begin at different offsets
    commit, kills = LakeTable.commit, 0

    def killed(self: LakeTable, *arguments: object, **named: object) -> None:
        nonlocal kills
        kills += 1
        if kills % 2:
            commit(self, *arguments, **named)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "commit", killed)
        for _ in range(6):
            with pytest.raises(KeyboardInterrupt):
                Ingestion(spark, log, lake).store(0, 9)
    Ingestion(spark, log, lake).store(0, 9)
    found = table(spark, lake, "quarantine").select("table", "offset").orderBy("table", "offset").collect()
    unnamed = [1, 2, 5, 7, 8]
    assert [tuple(row) for row in found] == [
        *(("events", offset) for offset in unnamed),
        *(("notifications", offset) for offset in unnamed),
        ("records", 4),
    ]
    for name in ("events", "notifications"):
        assert sorted(row[0] for row in table(spark, lake, name).select("offset").collect()) == [0, 3, 6]
    assert sorted(row[0] for row in table(spark, lake, "records").select("offset").collect()) == [
        0,
        1,
        2,
        3,
        5,
        6,
        7,
        8,
    ]


def test_a_failed_check_leaves_no_files(
    spark: SparkSession, tmp_path: Path, every_record: MakeRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wanderbus.pipeline.lake import jobs

    strict = msgspec.structs.replace(
        RECORDS, checks=(Check("no_drops", column("kind") != "dropped", "fail", "nothing is dropped"),)
    )
    monkeypatch.setattr(jobs, "RECORDS", strict)
    log = tmp_path / "log"
    write(log, [encode_record(record) for record in every_record(12)])
    with pytest.raises(CheckFailed, match=r"log: records 0 to 11: 1 rows of the table 'records' .* nothing is dropped"):
        Ingestion(spark, log, tmp_path / "lake").store(0, 12)
    assert list((tmp_path / "lake").rglob("*.parquet")) == []
