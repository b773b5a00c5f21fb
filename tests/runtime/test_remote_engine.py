"""T-06: the service ``engine`` as its server uses it: pieces of its answers, and answers that are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.published import published
from wanderbus.broker.messages import MatchesRead, MatchesWanted
from wanderbus.event import Event, EventId
from wanderbus.protocol import encode_event
from wanderbus.records import SPARK, Arrival, Arrived, Record, encode_record
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.log_reader import RecordPlace, read_frames
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.runtime.services import remote_engine
from wanderbus.runtime.services.backoff import PAUSE_S_MIN
from wanderbus.runtime.services.engine import (
    BEGIN,
    MATCHES,
    NAME,
    PIECE_SUBSCRIPTIONS_MAX,
    Begin,
    EventMatches,
    Matches,
    MatchesAsked,
)
from wanderbus.runtime.services.remote_engine import RemoteEngine
from wanderbus.runtime.services.service import Service
from wanderbus.segments import Frame
from wanderbus.subscription import Subscription

EVENTS = 20
SUBSCRIPTION = Subscription("s", "sip:a@b", "default", "Trade", "")


class Answers:
    """A service that answers with ``answer``, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = Matches(0, 0)
        self.begun: list[Begin] = []
        self.asked: list[MatchesAsked] = []

    def begin(self, body: msgspec.Raw) -> None:
        self.begun.append(msgspec.msgpack.decode(body, type=Begin))

    def matches(self, body: msgspec.Raw) -> Matches:
        self.asked.append(msgspec.msgpack.decode(body, type=MatchesAsked))
        return self.answer


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RemoteEngine]:
    """The caller, beside a log whose events are for the engine, except each fifth."""
    log = EventLog.open(tmp_path / "log", segment_bytes_max=2_000)
    for number in range(EVENTS):
        record = published(Event("Trade", {"N": number, "text": "x" * 100}), number=number, at_us=number)
        marked = msgspec.structs.replace(record, engine="" if number % 5 == 4 else SPARK)
        log.append([(number, number, encode_record(marked))])
    log.sync()
    engine = RemoteEngine(tmp_path, lambda: ("wb", 7))
    yield engine
    engine.close()
    log.close()


@pytest.fixture
def service(tmp_path: Path, engine: RemoteEngine) -> Iterator[Answers]:
    """The service, which runs."""
    answers = Answers()
    with Service(tmp_path, NAME, {BEGIN: answers.begin, MATCHES: answers.matches}):
        yield answers


def wanted(first: int, subscriptions: tuple[Subscription, ...] | None = None) -> MatchesWanted:
    return MatchesWanted(3, first, 0, subscriptions, 10)


def offsets(read: MatchesRead) -> list[int]:
    return [each.event.offset for each in read.events]


def all_of(first: int, end: int) -> Matches:
    return Matches(first, end, tuple(EventMatches(offset, ("s",)) for offset in range(first, end)))


def test_t06_a_beginning_is_sent_in_pieces_for_the_log_of_the_server(engine: RemoteEngine, service: Answers) -> None:
    several = (SUBSCRIPTION,) * (PIECE_SUBSCRIPTIONS_MAX + 1)
    engine.read(wanted(0, several))
    engine.read(wanted(0, ()))
    assert [(len(each.subscriptions), each.is_last) for each in service.begun] == [
        (PIECE_SUBSCRIPTIONS_MAX, False),
        (1, True),
        (0, True),
    ]
    assert {(each.number, each.server, each.incarnation) for each in service.begun} == {(3, "wb", 7)}


@pytest.mark.parametrize(("events_max", "bytes_max"), [(3, 2**20), (256, 500), (1, 1)])
def test_t06_an_answer_is_read_in_pieces_and_asked_for_once(
    engine: RemoteEngine, service: Answers, monkeypatch: pytest.MonkeyPatch, events_max: int, bytes_max: int
) -> None:
    monkeypatch.setattr(remote_engine, "PIECE_EVENTS_MAX", events_max)
    monkeypatch.setattr(remote_engine, "PIECE_BYTES_MAX", bytes_max)
    service.answer = all_of(0, EVENTS)
    first, found, pieces = 0, list[int](), 0
    while first < EVENTS:
        piece = engine.read(wanted(first))
        assert first < piece.next <= EVENTS
        assert all(first <= offset < piece.next for offset in offsets(piece))
        found += offsets(piece)
        first, pieces = piece.next, pieces + 1
    assert found == [offset for offset in range(EVENTS) if offset % 5 != 4]
    assert pieces > 4
    assert len(service.asked) == 1


def test_t06_events_have_the_bytes_and_times_of_the_log(engine: RemoteEngine, service: Answers) -> None:
    service.answer = Matches(5, 9, (EventMatches(6, ("s",), ("t",)),))
    (found,) = engine.read(wanted(5)).events
    assert (found.event.at_us, found.event.received_us, found.event.id.number) == (6, 6, 6)
    assert (found.matched, found.undecided) == (("s",), ("t",))
    assert b"x" * 100 in found.event.event


def test_t06_the_log_is_not_searched_again_behind_events_without_a_match(
    engine: RemoteEngine, service: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[RecordPlace | None] = []

    def reading(directory: Path, start: int, end: int, place: RecordPlace | None) -> Iterator[tuple[Frame, Path]]:
        places.append(place)
        return read_frames(directory, start, end, place)

    monkeypatch.setattr(remote_engine, "read_frames", reading)
    for first in range(0, EVENTS - 4, 5):
        service.answer = Matches(first, first + 5, (EventMatches(first + 1, ("s",)),))
        assert offsets(engine.read(wanted(first))) == [first + 1]
    assert len(places) == 4
    assert None not in places[1:]


def test_t06_a_place_in_a_segment_that_is_removed_is_forgotten(engine: RemoteEngine, service: Answers) -> None:
    service.answer = Matches(0, 2, (EventMatches(0, ("s",)),))
    assert offsets(engine.read(wanted(0))) == [0]
    oldest, *others = segment_paths(engine._directory)
    assert others
    oldest.unlink()
    first = int(others[0].stem)
    service.answer = all_of(first, first + 1)
    assert offsets(engine.read(wanted(first))) == [first]


def test_t06_a_request_from_an_earlier_offset_discards_the_rest(engine: RemoteEngine, service: Answers) -> None:
    service.answer = all_of(0, EVENTS)
    engine.read(wanted(0))
    service.answer = all_of(2, 4)
    assert offsets(engine.read(wanted(2))) == [2, 3]


@pytest.mark.parametrize(
    "answer",
    [
        Matches(1, 3),
        Matches(0, EVENTS + 1),
        Matches(2, 1),
        Matches(0, 5, (EventMatches(3, ()), EventMatches(3, ()))),
        Matches(0, 5, (EventMatches(5, ()),)),
        Matches(0, 5, (EventMatches(-1, ()),)),
    ],
)
def test_t06_an_answer_about_other_events_is_none(engine: RemoteEngine, service: Answers, answer: Matches) -> None:
    service.answer = answer
    read = engine.read(wanted(0))
    assert "start it again" in read.failed
    assert read.retry_s == PAUSE_S_MIN
    assert engine.read(wanted(0)).retry_s == 2 * PAUSE_S_MIN


def test_t06_an_engine_that_lost_its_memory_is_no_failure(engine: RemoteEngine, service: Answers) -> None:
    service.answer = Matches(0, 0, is_lost=True)
    assert engine.read(wanted(0)) == MatchesRead(3, 0, is_lost=True)
    service.answer = all_of(0, 3)
    assert offsets(engine.read(wanted(0, (SUBSCRIPTION,)))) == [0, 1, 2]


def test_t06_a_beginning_names_the_parents_of_subjects(engine: RemoteEngine, service: Answers) -> None:
    engine.read(msgspec.structs.replace(wanted(0, ()), parents={"Down": "Up"}))
    assert [each.parents for each in service.begun] == [{"Down": "Up"}]


def test_t06_events_that_arrived_are_those_of_users_alone(tmp_path: Path) -> None:
    arrival = Arrival("north", 5, 1, 0, EventId("north", 3, 900), 7, msgspec.Raw(encode_event(Event("Trade", {}))))
    own = msgspec.structs.replace(published(Event("Trade", {}), number=1, at_us=1), engine=SPARK)
    direct = msgspec.structs.replace(own, causal=b"header")
    records: list[Record] = [
        own,
        Arrived(at_us=8, arrival=arrival, engine=SPARK),
        direct,
        Arrived(at_us=9, arrival=arrival),
    ]
    log = EventLog.open(tmp_path / "log")
    log.append([(offset, offset, encode_record(each)) for offset, each in enumerate(records)])
    log.sync()
    engine, answers = RemoteEngine(tmp_path, lambda: ("wb", 7)), Answers()
    answers.answer = all_of(0, 4)
    with Service(tmp_path, NAME, {BEGIN: answers.begin, MATCHES: answers.matches}):
        found = engine.read(wanted(0)).events
    engine.close()
    log.close()
    assert [(each.event.offset, each.is_for_users) for each in found] == [(0, False), (1, True), (2, True)]
    assert (found[1].event.id, found[1].event.at_us) == (EventId("north", 3, 900), 8)
