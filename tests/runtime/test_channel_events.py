"""K-03: the events of a channel by number, from a log with several segments and from what an older source has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wanderbus import protocol, records
from wanderbus.broker.messages import EventsWanted, HistoryRead, HistoryWanted, OffsetWanted
from wanderbus.errors import StorageError
from wanderbus.event import Event, EventId
from wanderbus.records import encode_record
from wanderbus.runtime.log import channel_events
from wanderbus.runtime.log.channel_events import ChannelEvents
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.history_source import HistorySource, LogHistory, SourceAway
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.subscription import Since, Subscription

RECORDS = 200


def record(offset: int) -> records.Published | records.Arrived:
    """``Trade`` at even offsets, ``News`` at odd ones; every tenth is a Trade that arrived from elsewhere."""
    subject = "Trade" if offset % 2 == 0 else "News"
    event = msgspec.Raw(protocol.encode_event(Event(subject, {"N": offset, "Text": "x" * 100})))
    if offset % 10 == 0:
        arrival = records.Arrival("north", 1, offset, offset, EventId("wbn", 1, offset), 1, event)
        return records.Arrived(at_us=offset, arrival=arrival)
    acceptance = records.Acceptance(EventId("wb", 1, offset), event, "sip:bob@b", "phone", 1, offset)
    return records.Published(at_us=offset, acceptance=acceptance)


TRADES = [offset for offset in range(RECORDS) if offset % 2 == 0 and offset % 10]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    """A log of several segments."""
    log = EventLog.open(tmp_path / "log", segment_bytes_max=8_000)
    for offset in range(RECORDS):
        log.append([(offset, offset, encode_record(record(offset)))])
    log.sync()
    assert len(segment_paths(log.directory)) > 3
    yield log
    log.close()


def channel(log: EventLog, *older: HistorySource) -> ChannelEvents:
    return ChannelEvents(log.directory, [LogHistory(log.directory, lambda: ("wb", 1)), *older])


def wanted(
    first: int = 0, end: int = RECORDS, newest: int | None = None, events_max: int = 1_000, *subjects: str
) -> EventsWanted:
    matched = Subscription("", "", "", "Trade", "", None, (), None)
    piece = HistoryWanted(7, matched, "wb", 1, first, end, events_max, 2**20, 10**6, subjects or ("Trade",))
    return EventsWanted(piece, newest)


def changed(asked: EventsWanted, **fields: Any) -> EventsWanted:
    """The same question, with another piece."""
    return EventsWanted(msgspec.structs.replace(asked.piece, **fields), asked.newest)


def numbers(events: ChannelEvents, asked: EventsWanted) -> list[int]:
    answer = events.read(asked)
    assert not answer.failed
    return [each.offset for each in answer.events]


def remove_oldest(log: EventLog) -> int:
    """Remove the two oldest segments; return the oldest record that is left."""
    for path in segment_paths(log.directory)[:2]:
        path.unlink()
    return log.oldest_offset


class Older:
    """A source of the records from ``begin`` on; it counts what is read of it."""

    def __init__(self, copy: Path, begin: int) -> None:
        self._log = LogHistory(copy, lambda: ("wb", 1))
        self._begin = begin
        self.pieces = 0

    def offset(self, wanted: OffsetWanted) -> int:
        return self._begin

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        self.pieces += 1
        if wanted.first < self._begin:
            raise StorageError(f"record {wanted.first} is not in the lake")
        return self._log.read(wanted)


class Away:
    """A source that does not answer."""

    def offset(self, wanted: OffsetWanted) -> int:
        raise SourceAway("older records are in the lake", 1.0)

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        raise SourceAway("older records are in the lake", 1.0)


def copy_of(log: EventLog, directory: Path) -> Path:
    """A copy of a log, as an older source."""
    directory.mkdir()
    for path in log.directory.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    return directory


def test_a_range_has_the_events_that_were_accepted_here_in_order(log: EventLog) -> None:
    answer = channel(log).read(wanted(4, 60))
    assert [each.offset for each in answer.events] == [number for number in TRADES if 4 <= number < 60]
    assert (answer.reading, answer.end, answer.kept_from, answer.failed) == (7, 60, 0, "")
    assert {each.user for each in answer.events} == {"sip:bob@b"}
    both = ("Trade", "News")
    assert numbers(channel(log), wanted(4, 12, None, 1_000, *both)) == [4, 5, 6, 7, 8, 9, 11]
    assert numbers(channel(log), wanted(4, 12, None, 1_000, *both, *map(str, range(9)))) == [4, 5, 6, 7, 8, 9, 11]


def test_answers_continue_without_gap_or_repeat(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_events, "RECORDS_MAX", 25)
    found, first = [], 3
    while first < RECORDS:
        answer = channel(log).read(wanted(first, events_max=12))
        assert len(answer.events) <= 12
        assert first < answer.end <= first + 25
        found += [each.offset for each in answer.events]
        first = answer.end
    assert found == [number for number in TRADES if number >= 3]


def test_an_answer_is_bounded_in_bytes(log: EventLog) -> None:
    answer = channel(log).read(changed(wanted(), bytes_max=300))
    assert 1 <= len(answer.events) <= 3


@pytest.mark.parametrize("count", [1, 7, 40, len(TRADES) - 1, len(TRADES)])
@pytest.mark.parametrize("block", [1, 9, 4_096])
def test_the_newest_are_found_from_the_end_backwards(
    log: EventLog, monkeypatch: pytest.MonkeyPatch, count: int, block: int
) -> None:
    monkeypatch.setattr(channel_events, "_BLOCK_RECORDS", block)
    assert numbers(channel(log), wanted(newest=count)) == TRADES[-count:]
    assert numbers(channel(log), wanted(30, 91, newest=3)) == [84, 86, 88]


def test_fewer_events_than_the_newest_that_are_wanted_are_all(log: EventLog) -> None:
    answer = channel(log).read(wanted(100, newest=1_000))
    assert [each.offset for each in answer.events] == [number for number in TRADES if number >= 100]
    assert answer.kept_from == 0


def test_numbers_that_the_log_has_removed_are_reported(log: EventLog) -> None:
    oldest = remove_oldest(log)
    for asked in (wanted(2), wanted(newest=1_000)):
        answer = channel(log).read(asked)
        assert [each.offset for each in answer.events] == [number for number in TRADES if number >= oldest]
        assert answer.kept_from == oldest
    assert channel(log).read(wanted(oldest)).kept_from == 0
    assert channel(log).read(wanted(newest=3)).kept_from == 0
    gone = channel(log).read(wanted(2, oldest - 1))
    assert (gone.events, gone.kept_from) == ((), oldest)


def test_removed_numbers_come_from_a_source_that_has_them(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_events, "_BLOCK_RECORDS", 9)
    older = Older(copy_of(log, tmp_path / "older"), 10)
    oldest = remove_oldest(log)
    assert numbers(channel(log, older), wanted(oldest)) == [number for number in TRADES if number >= oldest]
    assert older.pieces == 0
    for asked in (wanted(2), wanted(newest=1_000)):
        answer = channel(log, older).read(asked)
        assert [each.offset for each in answer.events] == [number for number in TRADES if number >= 10]
        assert answer.kept_from == 10
    assert numbers(channel(log, older), wanted(newest=len(TRADES) - 8)) == TRADES[8:]


def test_a_source_that_is_away_matters_only_for_what_the_log_has_removed(log: EventLog) -> None:
    oldest = remove_oldest(log)
    events = channel(log, Away())
    assert numbers(events, wanted(oldest, newest=2)) == TRADES[-2:]
    for asked in (wanted(2), wanted(newest=1_000)):
        assert events.read(asked).failed == "older records are in the lake"


def test_events_before_a_failure_are_answered_and_the_next_answer_has_the_reason(log: EventLog) -> None:
    class Failing(LogHistory):
        """It reads five records at a time, and none from record 20 on."""

        def read(self, wanted: HistoryWanted) -> HistoryRead:
            if wanted.first >= 20:
                raise StorageError("the disk is broken")
            return super().read(msgspec.structs.replace(wanted, end=min(wanted.end, wanted.first + 5)))

    events = ChannelEvents(log.directory, [Failing(log.directory, lambda: ("wb", 1))])
    answer = events.read(wanted(10))
    assert ([each.offset for each in answer.events], answer.end, answer.failed) == ([12, 14, 16, 18], 20, "")
    assert events.read(wanted(20)).failed == "the disk is broken"


def test_another_log_has_no_events(log: EventLog) -> None:
    answer = channel(log).read(changed(wanted(4), incarnation=2))
    assert "is not in the log of this server" in answer.failed


# For subscriptions of other servers ----------------------------------------------------------------------------


def matching(first: int, expression: str, **more: Any) -> EventsWanted:
    asked = wanted(first)
    matched = msgspec.structs.replace(asked.piece.subscription, expression=expression)
    return changed(asked, subscription=matched, **more)


def test_t05_matching_events_are_one_piece_with_its_end(log: EventLog) -> None:
    assert numbers(channel(log), matching(50, "N < 57")) == [52, 54, 56]
    assert numbers(channel(log), matching(50, "")) == [each for each in TRADES if each >= 50]
    assert channel(log).read(matching(50, "N < 57")).end == RECORDS
    answer = channel(log).read(matching(50, "N > 57", events_max=2))
    assert ([each.offset for each in answer.events], answer.end) == ([58], 61)  # another server has accepted 60


def test_t05_a_filter_that_is_too_costly_is_undecided(log: EventLog) -> None:
    answer = channel(log).read(matching(51, "N < 57", filter_work_max=1, events_max=1))
    assert [each.undecided for each in answer.events] == ["filter_work_max"]


def test_t05_a_point_in_the_past_is_looked_up_in_all_sources(log: EventLog, tmp_path: Path) -> None:
    def place(since: Since, *older: HistorySource) -> int:
        answer = channel(log, *older).read(msgspec.structs.replace(wanted(), since=since))
        return -1 if answer.failed else answer.end

    assert place(Since(at_us=77)) == 77
    assert place(Since(event=EventId("wb", 1, 77))) == 78
    assert place(Since()) == 0
    older = Older(copy_of(log, tmp_path / "older"), 2)
    oldest = remove_oldest(log)
    assert (place(Since()), place(Since(at_us=2)), place(Since(at_us=2), older)) == (oldest, -1, 2)


def test_t05_a_source_that_is_away_is_no_final_failure(log: EventLog) -> None:
    oldest = remove_oldest(log)
    answer = channel(log, Away()).read(matching(oldest - 1, ""))
    assert (answer.failed, answer.is_lost) == ("older records are in the lake", False)
    assert channel(log).read(matching(2, "", incarnation=2)).is_lost
