"""T-05: a lake that the job has made of a log gives the pieces that the log gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetWanted
from wanderbus.pipeline.lake import compact, ingest
from wanderbus.pipeline.replay import LakeHistory
from wanderbus.pipeline.tables import RECORDS
from wanderbus.records import Published, Record, Started
from wanderbus.runtime.log.history_source import LogHistory
from wanderbus.runtime.services.history import OffsetAsked
from wanderbus.segments import HEADER, frames
from wanderbus.subscription import Since, Subscription

pytestmark = pytest.mark.spark

USER = "sip:alice@localhost"
COUNT = 60
DAMAGED = 33


def wanted(first: int, end: int, expression: str = "Row > 7") -> HistoryWanted:
    return HistoryWanted(
        1, Subscription("s", USER, "default", "Departure", expression), "wb", 1, first, end, 9, 2**20, 10**6
    )


def pieces(source: LogHistory | LakeHistory, first: int, end: int) -> list[HistoryRead]:
    """Read from ``first`` up to ``end``, piece by piece."""
    found = []
    while first < end:
        found.append(source.read(wanted(first, end)))
        first = found[-1].end
    return found


def test_t05_a_lake_made_by_spark_gives_the_pieces_of_the_log(
    spark: SparkSession, write_log: Callable[..., Path], make_published: Callable[..., Published], tmp_path: Path
) -> None:
    events = [make_published(row, [USER], "Arrival" if row % 5 == 0 else "Departure") for row in range(1, COUNT)]
    records: list[Record] = [Started(at_us=events[0].at_us, server="wb", incarnation=1), *events]
    directory = write_log(records, per_segment=20)
    from_log = LogHistory(directory, lambda: ("wb", 1))
    expected = pieces(from_log, 0, COUNT)
    lake = tmp_path / "lake"
    ingest(spark, directory, lake, tmp_path / "checkpoint", rows_per_batch=25, has_silver=False)
    from_lake = LakeHistory(lake)
    assert pieces(from_lake, 0, COUNT) == expected
    for since in (Since(), Since(at_us=events[30].at_us)):
        lookup = OffsetWanted(1, since, USER, "default")
        assert from_lake.offset(OffsetAsked(lookup, "wb", 1, 20)) == from_log.offset(lookup)
    compact(spark, lake, RECORDS)
    assert pieces(from_lake, 0, COUNT) == expected
    assert pieces(LakeHistory(lake), 0, COUNT) == expected


def test_t05_a_record_that_was_damaged_in_the_log_is_passed_over(
    spark: SparkSession, write_log: Callable[..., Path], make_published: Callable[..., Published], tmp_path: Path
) -> None:
    records: list[Record] = [
        Started(at_us=1, server="wb", incarnation=1),
        *(make_published(n) for n in range(1, COUNT)),
    ]
    directory = write_log(records, per_segment=20)
    path = directory / f"{20:020d}.seg"
    data = bytearray(path.read_bytes())
    found = next(frame for frame in frames(bytes(data), len(HEADER)) if frame.offset == DAMAGED)
    data[found.end - 1] ^= 1
    path.write_bytes(data)
    ingest(spark, directory, tmp_path / "lake", tmp_path / "checkpoint", has_silver=False)
    read = pieces(LakeHistory(tmp_path / "lake"), 0, COUNT)
    assert [event.offset for piece in read for event in piece.events] == [n for n in range(8, COUNT) if n != DAMAGED]
