"""T-05: the lake as a source of history: the same pieces as those of the log, points in time, damage, and growth."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.published import published
from tests.spark.replay.bronze import quarantine, write_bronze
from wanderbus.broker.history.piece import read_piece
from wanderbus.broker.messages import HistoryWanted, OffsetWanted
from wanderbus.errors import FilterError, StorageError
from wanderbus.event import Event, EventId, Position
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.table_files import durable_file
from wanderbus.pipeline.replay.lake_history import LakeHistory
from wanderbus.pipeline.tables import RECORDS
from wanderbus.records import Notified, Started, encode_record
from wanderbus.runtime.log_place import LogReplaced
from wanderbus.runtime.services.frames import ServiceAway
from wanderbus.runtime.services.history import OffsetAsked
from wanderbus.segments import HEADER, HIGH_WATER, Frame, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Since, Subscription

SECOND_US = 1_000_000
USER = "sip:alice@example.org"


def frame(offset: int) -> Frame:
    """Return record ``offset``: every third one is no event; two records have the time of each even second."""
    at_us = offset // 2 * 2 * SECOND_US
    if offset % 3 == 0:
        return Frame(offset, at_us, encode_record(Started(at_us=at_us, server="wb", incarnation=1)), 0)
    record = published(
        Event("Trade" if offset % 2 else "News", {"N": offset}),
        number=offset,
        at_us=at_us,
        notified=(Notified(USER, "default", offset, ("s",)),),
    )
    return Frame(offset, at_us, encode_record(record), 0)


FRAMES = [frame(offset) for offset in range(200)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with the records 40 to 159 in four files, the third of which is not in order."""
    lake = tmp_path / "lake"
    mixed = FRAMES[90:120]
    Random(1).shuffle(mixed)
    for part in (FRAMES[40:60], FRAMES[60:90], mixed, FRAMES[120:160]):
        write_bronze(lake, part, group_rows=8, end=max(each.offset for each in part) + 1)
    return lake


def wanted(first: int, end: int = 200, expression: str = "", events_max: int = 1_000) -> HistoryWanted:
    subscription = Subscription("s", USER, "default", "Trade", expression)
    return HistoryWanted(1, subscription, "wb", 1, first, end, events_max, 2**20, 10**6)


def asked(since: Since, *, log_begins: int = 150, incarnation: int = 1) -> OffsetAsked:
    return OffsetAsked(OffsetWanted(1, since, USER, "default"), "wb", incarnation, log_begins)


@pytest.mark.parametrize("first", [40, 41, 59, 60, 95, 119, 120, 159])
@pytest.mark.parametrize(("end", "events_max"), [(100, 1_000), (160, 7), (160, 1_000), (170, 1_000)])
@pytest.mark.parametrize("expression", ["", "N > 100"])
def test_t05_pieces_are_those_of_the_log(lake: Path, first: int, end: int, events_max: int, expression: str) -> None:
    piece = wanted(first, end, expression, events_max)
    if first >= end:
        return
    from_log = read_piece(wanted(first, min(end, 160), expression, events_max), FRAMES[first:])
    assert LakeHistory(lake).read(piece) == from_log


def test_t05_pieces_follow_each_other_through_the_lake(lake: Path) -> None:
    history, found, cursor = LakeHistory(lake, cache_bytes_max=1), [], 40
    while cursor < 160:
        piece = history.read(wanted(cursor, min(200, cursor + 17), events_max=3))
        assert piece.end > cursor
        found += [event.offset for event in piece.events]
        cursor = piece.end
    assert found == [offset for offset in range(40, 160) if offset % 2 and offset % 3]


def test_t05_a_piece_outside_of_the_lake_is_refused(lake: Path) -> None:
    for first in (39, 160):
        with pytest.raises(StorageError, match=f"record {first} is not in the lake") as refused:
            LakeHistory(lake).read(wanted(first))
        assert not isinstance(refused.value, ServiceAway)


@pytest.mark.parametrize("second", [42, 58, 59, 60, 91, 118, 119, 120, 150, 158])
def test_t05_a_time_is_found(lake: Path, second: int) -> None:
    found = LakeHistory(lake).offset(asked(Since(at_us=second * SECOND_US)))
    assert found == next(each.offset for each in FRAMES if each.at_us >= second * SECOND_US)


def test_t05_other_points_are_found(lake: Path) -> None:
    history = LakeHistory(lake)
    assert history.offset(asked(Since())) == 40
    assert history.offset(asked(Since(event=EventId("wb", 1, 77)))) == 78
    for number in (41, 94, 110, 157):
        assert history.offset(asked(Since(position=Position(1, number)))) == number + 1


@pytest.mark.parametrize(
    ("since", "reason"),
    [
        (Since(at_us=40 * SECOND_US), "begins at record 40 of 1970-01-01 00:00:40Z"),
        (Since(at_us=159 * SECOND_US), "ends before, at record 160"),
        (Since(event=EventId("wb", 1, 38)), "begins at record 40"),
        (Since(event=EventId("wb", 1, 160)), "begins at record 40"),
        (Since(position=Position(1, 5)), "begins at record 40"),
    ],
)
def test_t05_a_point_outside_of_the_lake_is_refused(lake: Path, since: Since, reason: str) -> None:
    with pytest.raises(StorageError, match=reason) as refused:
        LakeHistory(lake).offset(asked(since))
    assert "\n" not in str(refused.value)


def test_t05_a_hole_between_lake_and_log_is_refused(lake: Path) -> None:
    with pytest.raises(StorageError, match="kept nowhere"):
        LakeHistory(lake).offset(asked(Since(), log_begins=161))
    assert LakeHistory(lake).offset(asked(Since(), log_begins=160)) == 40


def test_t05_another_log_is_refused(lake: Path) -> None:
    with pytest.raises(StorageError, match="the lake has the log wb-1, not wb-2"):
        LakeHistory(lake).offset(asked(Since(), incarnation=2))


def write_frames(log: Path, frames: Sequence[Frame]) -> None:
    """Write records as the log of the server."""
    log.mkdir(exist_ok=True)
    packed = b"".join(pack_frame(each.offset, each.at_us, each.payload) for each in frames)
    (log / segment_name(0)).write_bytes(HEADER + packed)
    (log / HIGH_WATER).write_bytes(pack_mark(len(frames)))


def test_t05_a_lake_that_has_read_the_log_before_it_was_restored_is_refused(lake: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    history = LakeHistory(lake, log)
    assert history.read(wanted(150)).end == 160, "the server was not started yet"
    write_frames(log, FRAMES[:170])
    assert history.read(wanted(150)).end == 160
    others = [each._replace(at_us=each.at_us + 1) for each in FRAMES[100:180]]
    write_frames(log, [*FRAMES[:100], *others])
    for each in (history, LakeHistory(lake, log)):
        with pytest.raises(LogReplaced, match=r"is not the log that the lake \S+ has read: record 159 is another one"):
            each.read(wanted(50, 90))
        with pytest.raises(LogReplaced):
            each.offset(asked(Since()))


def test_t05_the_lake_grows_while_it_is_read(lake: Path) -> None:
    history = LakeHistory(lake)
    assert history.read(wanted(150)).end == 160
    write_bronze(lake, FRAMES[160:170])
    assert history.read(wanted(160)).end == 170


def test_t05_files_that_a_compaction_replaced_are_read_elsewhere(lake: Path) -> None:
    history = LakeHistory(lake, cache_bytes_max=1)
    before = history.read(wanted(45, 55))
    target = LakeTable(lake, RECORDS)
    delta = target.load()
    (old,) = [file for file in target.files(delta) if file.path.startswith("files-40")]
    shutil.copytree(target.directory / "files-40", target.directory / "files-new")
    moved = [durable_file(target.directory, "files-new/part.parquet", old.partition)]
    target.commit(delta, moved, removed=[old])
    shutil.rmtree(target.directory / "files-40")
    history._groups.clear()
    assert history.read(wanted(45, 55)) == before


def test_t05_a_lake_that_cannot_be_read_may_be_asked_again(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(ServiceAway, match="run the pipeline first"):
        LakeHistory(tmp_path / "empty").read(wanted(40))
    shutil.rmtree(LakeTable(lake, RECORDS).directory / "files-60")
    with pytest.raises(ServiceAway, match="cannot be read"):
        LakeHistory(lake).read(wanted(60))


def test_t05_records_in_the_quarantine_are_passed_over_and_missing_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = tmp_path / "lake"
    write_bronze(lake, [*FRAMES[:10], *FRAMES[12:20]], end=22)
    with pytest.raises(StorageError, match="the lake lacks record 10"):
        LakeHistory(lake).read(wanted(0))
    quarantine(lake, [10, 11, 20, 21])
    piece = LakeHistory(lake).read(wanted(0))
    assert piece.end == 22
    assert [event.offset for event in piece.events] == [1, 5, 7, 13, 17, 19]
    assert "records 10 to 11 are in the quarantine" in caplog.text


def test_t05_a_record_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_bronze(lake, [*FRAMES[:10], FRAMES[7]], end=10)
    with pytest.raises(StorageError, match="record 7 twice"):
        LakeHistory(lake).read(wanted(0))


def test_t05_a_record_that_cannot_be_decoded_is_refused_at_once(tmp_path: Path) -> None:
    payload = msgspec.msgpack.encode({"kind": "published", "at_us": 1, "acceptance": {"event": "Trade"}})
    write_bronze(tmp_path, [FRAMES[0], Frame(1, 1, payload, 0)])
    with pytest.raises(StorageError, match="was written by another version") as refused:
        LakeHistory(tmp_path).read(wanted(0))
    assert not isinstance(refused.value, ServiceAway)


def test_t05_few_row_groups_are_read(lake: Path) -> None:
    history = LakeHistory(lake)
    history.read(wanted(44, 50))
    assert len(history._groups) == 2


def test_t05_an_expression_that_is_none_is_refused_at_once(lake: Path) -> None:
    with pytest.raises(FilterError):
        LakeHistory(lake).read(wanted(40, expression="(("))
