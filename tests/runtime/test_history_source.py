"""T-05: the log as a source of history: pieces, points in time, positions, and removed records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from wanderbus import protocol, records
from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetFound, OffsetWanted
from wanderbus.errors import StorageError
from wanderbus.event import Event, EventId, Position
from wanderbus.records import encode_record
from wanderbus.runtime.log import log_reader
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.history_source import LogHistory, NoSource, SourceAway, find_offset, read_history
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import Frame, frames
from wanderbus.subscription import Since, Subscription

USER = "sip:alice@example.org"
SECOND_US = 1_000_000
RECORDS = 200


def published(offset: int) -> records.Published:
    """Event ``offset`` of the log, published at second ``offset``, notified under number ``offset``."""
    subject = "Trade" if offset % 2 == 0 else "News"
    event = msgspec.Raw(protocol.encode_event(Event(subject, {"N": offset, "Text": "x" * 100})))
    acceptance = records.Acceptance(EventId("wb", 1, offset), event, USER, "phone", 1, offset)
    delivery = records.Delivery((records.Notified(USER, "default", offset, ("s",)),))
    return records.Published(at_us=offset * SECOND_US, acceptance=acceptance, delivery=delivery)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    """A log of several segments."""
    log = EventLog.open(tmp_path / "log", segment_bytes_max=8_000)
    for offset in range(RECORDS):
        log.append([(offset, offset * SECOND_US, encode_record(published(offset)))])
    log.sync()
    assert len(segment_paths(log.directory)) > 3
    yield log
    log.close()


@pytest.fixture
def source(log: EventLog) -> LogHistory:
    return LogHistory(log.directory, lambda: ("wb", 1))


def wanted(first: int, end: int = RECORDS, expression: str = "", events_max: int = 1_000) -> HistoryWanted:
    subscription = Subscription("s", USER, "default", "Trade", expression)
    return HistoryWanted(1, subscription, "wb", 1, first, end, events_max, 2**20, 10**6)


def offset_of(source: LogHistory, since: Since) -> int:
    return source.offset(OffsetWanted(1, since, USER, "default"))


def remove_oldest(log: EventLog, count: int = 2) -> int:
    """Remove the oldest segments; return the offset of the oldest record that is left."""
    for path in segment_paths(log.directory)[:count]:
        path.unlink()
    return log.oldest_offset


def test_t05_pieces_continue_over_segments_without_gap_or_repeat(source: LogHistory) -> None:
    found, cursor = [], 3
    while cursor < 150:
        piece = source.read(wanted(cursor, 150, events_max=7))
        found += [event.offset for event in piece.events]
        assert cursor < piece.end <= 150
        cursor = piece.end
    assert found == list(range(4, 150, 2))


def test_t05_a_piece_that_continues_another_is_not_searched(
    source: LogHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = source.read(wanted(0, events_max=3))
    found: list[int] = []
    monkeypatch.setattr(log_reader, "frames", lambda data, start: noted(frames(data, start), found))
    source.read(wanted(first.end, events_max=3))
    assert found[0] == first.end > 0


def noted(coming: Iterator[Frame], found: list[int]) -> Iterator[Frame]:
    for frame in coming:
        found.append(frame.offset)
        yield frame


def test_t05_a_piece_has_the_matching_events_and_their_times(source: LogHistory) -> None:
    piece = source.read(wanted(0, expression="(N > 10) and (N < 16)"))
    assert [(each.offset, each.at_us, each.received_us) for each in piece.events] == [
        (n, n * SECOND_US, n * SECOND_US) for n in (12, 14)
    ]
    assert piece.end == RECORDS


@pytest.mark.parametrize("second", [0, 1, 57, 58, 120, RECORDS - 1])
def test_t05_a_time_is_found_in_its_segment(source: LogHistory, second: int) -> None:
    assert offset_of(source, Since(at_us=second * SECOND_US)) == second
    assert offset_of(source, Since(at_us=second * SECOND_US - 1)) == second
    assert offset_of(source, Since(at_us=second * SECOND_US + 1)) == second + 1


def test_t05_other_points_are_found(source: LogHistory) -> None:
    assert offset_of(source, Since()) == 0
    assert offset_of(source, Since(event=EventId("wb", 1, 77))) == 78
    assert offset_of(source, Since(position=Position(1, 77))) == 78


def test_t05_a_point_before_the_log_is_refused_in_one_line(log: EventLog, source: LogHistory) -> None:
    oldest = remove_oldest(log)
    assert offset_of(source, Since()) == oldest
    for since in (Since(at_us=1), Since(event=EventId("wb", 1, 3)), Since(position=Position(1, 3))):
        answer = find_offset([source], OffsetWanted(1, since, USER, "default"))
        assert answer.offset is None
        assert f"the log begins at record {oldest} of 1970-01-01 00:0" in answer.reason
        assert "\n" not in answer.reason


def test_t05_another_source_answers_for_removed_records(log: EventLog, source: LogHistory) -> None:
    remove_oldest(log)
    assert "is not kept" in read_history([source], wanted(3)).failed
    assert read_history([source, Other()], wanted(3)) == HistoryRead(1, 9)
    since = OffsetWanted(1, Since(at_us=4 * SECOND_US), USER, "default")
    assert find_offset([source, Other()], since) == OffsetFound(1, 4)


class Other:
    """A source that has the records from 4 on, or fails with ``error``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def offset(self, wanted: OffsetWanted) -> int:
        if self.error:
            raise self.error
        return 4

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        if self.error:
            raise self.error
        return HistoryRead(wanted.piece, 9)


def test_t05_the_earliest_record_is_that_of_all_sources(log: EventLog, source: LogHistory) -> None:
    earliest = OffsetWanted(1, Since(), USER, "default")
    assert find_offset([source, Other()], earliest).offset == 0
    oldest = remove_oldest(log)
    assert find_offset([source, Other()], earliest).offset == 4
    for error in (StorageError("the lake has another log"), NoSource("no lake")):
        assert find_offset([source, Other(error)], earliest).offset == oldest
    away = find_offset([source, Other(SourceAway("the lake is away", 1.0))], earliest)
    assert away == OffsetFound(1, None, "the lake is away")
    at = OffsetWanted(1, Since(at_us=SECOND_US * (oldest + 5)), USER, "default")
    assert find_offset([source, Other(SourceAway("the lake is away", 1.0))], at).offset == oldest + 5


def test_t05_a_piece_waits_for_a_source_that_is_away(log: EventLog, source: LogHistory) -> None:
    away = Other(SourceAway("the lake is away", 1.5))
    assert read_history([source, away], wanted(3)).retry_s == 0
    oldest = remove_oldest(log)
    answer = read_history([source, away], wanted(3))
    assert (answer.retry_s, answer.end) == (1.5, 3)
    assert read_history([source, away], wanted(oldest)).end == RECORDS
    lost = read_history([source, Other(StorageError("nor in the lake"))], wanted(3))
    assert lost.retry_s == 0
    assert lost.failed.startswith("record 3 is not kept: the log begins at")
    assert lost.failed.endswith("; nor in the lake")
    assert "lake" not in read_history([source, Other(NoSource("no lake"))], wanted(3)).failed


def test_t05_a_damaged_record_and_another_log_fail_with_a_reason(log: EventLog, source: LogHistory) -> None:
    other = msgspec.structs.replace(wanted(0), server="elsewhere")
    assert "is not in the log of this server" in read_history([source], other).failed
    path = segment_paths(log.directory)[1]
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    first = int(path.stem)
    assert f"record {first} cannot be read" in read_history([source], wanted(first)).failed


def test_t05_a_source_without_a_log_says_so(tmp_path: Path) -> None:
    empty = LogHistory(tmp_path, lambda: ("wb", 1))
    with pytest.raises(StorageError, match="is not kept"):
        empty.read(wanted(0))
