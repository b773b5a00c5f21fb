"""The copy of a log in crash runs, and the service that answers from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.archive import Archive
from faults.archive_service import CopiedLog
from tests.published import published
from wanderbus.broker.messages import HistoryWanted, OffsetWanted
from wanderbus.errors import StorageError
from wanderbus.event import Event, EventId
from wanderbus.records import Record, Started, encode_record
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log_readers import load_reader, reader_files
from wanderbus.runtime.services.history import OffsetAsked
from wanderbus.subscription import Since, Subscription

USER = "sip:h1@localhost"


def grow(log: EventLog, count: int) -> None:
    for offset in range(log.next_offset, log.next_offset + count):
        record: Record = published(Event("Trade", {"n": offset}), number=offset, at_us=offset)
        if offset == 0:
            record = Started(at_us=0, server="wb", incarnation=1)
        log.append([(offset, offset, encode_record(record))])
    log.sync()


def wanted(first: int, end: int) -> HistoryWanted:
    return HistoryWanted(1, Subscription("s", USER, "default", "Trade", ""), "wb", 1, first, end, 100, 2**20, 10**6)


def test_the_service_answers_from_the_copy_as_far_as_it_has_come(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path / "log")
    archive, journal = Archive(tmp_path / "log", tmp_path / "copy"), tmp_path / "journal"
    copied = CopiedLog(tmp_path / "copy", journal)
    for end in (5, 12):
        grow(log, end - log.next_offset)
        archive.read()
        (registration,) = map(load_reader, reader_files(tmp_path / "log"))
        assert registration is not None
        assert registration.offset == end
        piece = copied.read(wanted(2, 20))
        assert (piece.end, [each.offset for each in piece.events]) == (end, list(range(2, end)))
    asked = OffsetAsked(OffsetWanted(1, Since(event=EventId("wb", 1, 3)), USER, "default"), "wb", 1, 12)
    assert copied.offset(asked) == 4
    assert journal.read_text() == "2 5 3\n2 12 10\n"
    with pytest.raises(StorageError, match="which ends at record 12"):
        copied.read(wanted(12, 20))
    log.close()


def test_records_that_were_removed_before_they_were_copied_are_reported(tmp_path: Path) -> None:
    log = EventLog.open(tmp_path / "log")
    archive = Archive(tmp_path / "log", tmp_path / "copy")
    grow(log, 5)
    archive.read()
    asked = OffsetAsked(OffsetWanted(1, Since(), USER, "default"), "wb", 1, 6)
    with pytest.raises(StorageError, match="records 5 to 5 were removed"):
        CopiedLog(tmp_path / "copy", tmp_path / "journal").offset(asked)
    log.close()
