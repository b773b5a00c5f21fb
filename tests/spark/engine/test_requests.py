"""Requests of the server: pieces of a beginning, matches, beginnings that replace each other, and failures."""

from __future__ import annotations

import msgspec
import pytest

from tests.spark.engine.records import subscription
from wanderbus.errors import StorageError
from wanderbus.pipeline.engine.chunks import MatchChunk
from wanderbus.pipeline.engine.requests import PAUSE_S_MIN, Beginning, QueryRequests
from wanderbus.pipeline.engine.results import Ended
from wanderbus.runtime.services.engine import BEGIN, MATCHES, Begin, EventMatches, Matches, MatchesAsked
from wanderbus.runtime.services.frames import ServiceAway


class Server:
    """A server in front of the desk; ``now_s`` is the time of the desk."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.desk = QueryRequests(self._check, lambda: self.now_s)

    def begin(self, number: int, first: int = 0, *, of: str = "wb", ids: str = "", is_last: bool = True) -> None:
        wanted = tuple(subscription(each, "S", "") for each in ids)
        self.desk.handlers[BEGIN](raw(Begin(number, of, 1, first, wanted, 100, is_last)))

    def begun(self, number: int, first: int = 0) -> Beginning:
        self.begin(number, first)
        beginning = self.desk.take(0)
        assert beginning is not None
        return beginning

    def ask(self, number: int, first: int, durable: int = 0) -> Matches:
        answer = self.desk.handlers[MATCHES](raw(MatchesAsked(number, first, durable, 0.0)))
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=Matches)

    def _check(self, begin: Begin) -> None:
        if begin.server != "wb":
            raise StorageError("another log")


def raw(value: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def chunk(first: int, end: int, *offsets: int) -> MatchChunk:
    matches = [EventMatches(offset, ("a",)) for offset in offsets]
    return MatchChunk(first, end, len(offsets), 0, len(offsets), b"".join(map(msgspec.msgpack.encode, matches)))


def test_pieces_make_one_beginning() -> None:
    server = Server()
    server.begin(7, ids="ab", is_last=False)
    assert server.desk.take(0) is None
    server.begin(7, first=3, ids="c")
    beginning = server.desk.take(0)
    assert beginning is not None
    assert [each.id for each in beginning.begin.subscriptions] == ["a", "b", "c"]
    assert server.desk.take(0) is None


def test_pieces_of_an_abandoned_beginning_are_discarded() -> None:
    server = Server()
    server.begin(7, ids="ab", is_last=False)
    server.begin(8, ids="c")
    beginning = server.desk.take(0)
    assert beginning is not None
    assert [each.id for each in beginning.begin.subscriptions] == ["c"]


def test_another_log_is_refused() -> None:
    with pytest.raises(StorageError, match="another log"):
        Server().begin(1, of="other")


@pytest.mark.parametrize("count", [0, 1, 15, 16, 300, 70_000])
def test_answers_have_the_matches_of_all_chunks(count: int) -> None:
    server = Server()
    results = server.begun(1).results
    results.put([chunk(0, 1), chunk(1, count + 1, *range(1, count + 1))] if count else [chunk(0, 1)])
    answer = server.ask(1, 0)
    assert (answer.first, answer.next, answer.is_lost) == (0, count + 1, False)
    assert [each.offset for each in answer.events] == list(range(1, count + 1))


def test_an_unknown_beginning_is_lost() -> None:
    server = Server()
    assert server.ask(1, 0).is_lost
    server.begun(2)
    assert server.ask(1, 0).is_lost
    assert not server.ask(2, 0).is_lost
    assert server.ask(2, 4).next == 4


def test_a_beginning_ends_the_one_before() -> None:
    server = Server()
    first = server.begun(1)
    second = server.begun(2)
    assert not server.desk.is_present(first)
    assert server.desk.is_present(second)
    with pytest.raises(Ended):
        first.results.put([chunk(0, 1)])


def test_a_failure_is_reported_and_then_the_server_begins_again() -> None:
    server = Server()
    beginning = server.begun(1)
    beginning.results.put([chunk(0, 2, 1)])
    server.desk.fail(beginning, "the log is damaged")
    assert server.ask(1, 0).next == 2
    with pytest.raises(ServiceAway, match="the log is damaged"):
        server.ask(1, 2)
    server.now_s += PAUSE_S_MIN
    assert server.ask(1, 2).is_lost


def test_repeated_failures_have_longer_pauses_until_there_are_matches() -> None:
    server = Server()
    pauses = []
    for number in range(1, 7):
        beginning = server.begun(number)
        if number == 5:
            beginning.results.put([chunk(0, 1)])
        server.desk.fail(beginning, "again")
        pauses.append(beginning.over_s - server.now_s)
    assert pauses == [PAUSE_S_MIN * factor for factor in (1, 2, 4, 8, 1, 2)]
