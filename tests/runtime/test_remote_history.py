"""T-05: the service ``history`` as a source: unknown, away, refusing, and answering with another piece."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetWanted
from wanderbus.errors import StorageError
from wanderbus.runtime.log.history_source import NoSource, SourceAway
from wanderbus.runtime.services.history import NAME, OffsetAsked, RemoteHistory, handlers_of
from wanderbus.runtime.services.service import Service
from wanderbus.subscription import Since, Subscription

WANTED = HistoryWanted(7, Subscription("s", "sip:a@b", "default", "Trade", ""), "wb", 1, 3, 9, 10, 10, 10)
PIECE = HistoryRead(7, 5)
LOOKUP = OffsetWanted(1, Since(), "sip:a@b", "default")


class Records:
    """An archive that answers each piece with ``piece``."""

    def __init__(self, piece: HistoryRead = PIECE) -> None:
        self.piece = piece
        self.asked: list[OffsetAsked] = []

    def offset(self, asked: OffsetAsked) -> int:
        self.asked.append(asked)
        return 2

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        if wanted.first == 4:
            raise StorageError("record 4 is not in the lake")
        return self.piece


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteHistory]:
    remote = RemoteHistory(tmp_path, lambda: ("wb", 1))
    yield remote
    remote.close()


def serving(tmp_path: Path, records: Records) -> Service:
    return Service(tmp_path, NAME, handlers_of(records))


def test_t05_a_service_that_never_was_is_no_source(remote: RemoteHistory) -> None:
    with pytest.raises(NoSource):
        remote.read(WANTED)
    with pytest.raises(NoSource):
        remote.offset(LOOKUP)


def test_t05_the_service_is_asked_for_the_log_of_the_server(tmp_path: Path, remote: RemoteHistory) -> None:
    records = Records()
    with serving(tmp_path, records):
        assert remote.offset(LOOKUP) == 2
        assert remote.read(WANTED) == PIECE
    assert records.asked == [OffsetAsked(LOOKUP, "wb", 1, 0)]


@pytest.mark.parametrize("piece", [HistoryRead(8, 5), HistoryRead(7, 3), HistoryRead(7, 10)])
def test_t05_another_piece_than_was_wanted_is_no_answer(
    tmp_path: Path, remote: RemoteHistory, piece: HistoryRead
) -> None:
    with serving(tmp_path, Records(piece)), pytest.raises(SourceAway, match="answers with another piece"):
        remote.read(WANTED)


def test_t05_pauses_between_attempts_grow_and_end_with_an_answer(
    tmp_path: Path, remote: RemoteHistory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wanderbus.server")
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with serving(tmp_path, Records()):
        pass
    pauses = []
    for _ in range(8):
        with pytest.raises(SourceAway) as away:
            remote.read(WANTED)
        pauses.append(away.value.retry_s)
        now += away.value.retry_s / 2
        with pytest.raises(SourceAway) as early:
            remote.read(WANTED)
        assert early.value.retry_s == away.value.retry_s / 2
        now += early.value.retry_s
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 8, 8]
    with serving(tmp_path, Records()):
        with pytest.raises(StorageError, match="record 4 is not in the lake") as refused:
            remote.read(msgspec.structs.replace(WANTED, first=4))
        assert not isinstance(refused.value, SourceAway)
        assert remote.read(WANTED) == PIECE
    with pytest.raises(SourceAway) as away:
        remote.read(WANTED)
    assert away.value.retry_s == 0.25
    assert ["answers again" in each for each in caplog.messages] == [False, True, False]


def test_t05_a_lookup_is_refused_at_once_while_the_service_is_away(tmp_path: Path, remote: RemoteHistory) -> None:
    with serving(tmp_path, Records()):
        pass
    with pytest.raises(SourceAway, match="older records are in the lake, but the service history does not run"):
        remote.offset(LOOKUP)
