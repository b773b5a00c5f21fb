"""Matches that wait for the server: order, repetition, room, and the end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

from wanderbus.pipeline.engine.chunks import MatchChunk
from wanderbus.pipeline.engine.results import ANSWER_BYTES_MAX, CHUNK_BYTES, Ended, Results
from wanderbus.runtime.services.engine import EventMatches


def chunk(first: int, end: int, size: int = 0) -> MatchChunk:
    return MatchChunk(first, end, 0, 0, 0, b"x" * size)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_chunks_are_returned_again_until_they_are_durable() -> None:
    results = Results(5)
    results.put([chunk(5, 7), chunk(7, 9)])
    assert results.get(5, 5, 0) == results.get(5, 5, 0) == [chunk(5, 7), chunk(7, 9)]
    assert results.get(7, 7, 0) == [chunk(7, 9)]
    assert results.get(5, 7, 0) is None
    assert results.get(9, 9, 0) == []


def test_a_request_may_begin_within_a_chunk() -> None:
    results = Results(0)
    matches = [EventMatches(offset, (str(offset),)) for offset in range(20)]
    results.put([MatchChunk(0, 30, 20, 0, 20, b"".join(map(msgspec.msgpack.encode, matches))), chunk(30, 31)])
    found = results.get(18, 0, 0)
    assert found is not None
    encoded = b"".join(map(msgspec.msgpack.encode, matches[18:]))
    assert found == [MatchChunk(18, 30, 20, 0, 2, encoded), chunk(30, 31)]


def test_an_offset_before_the_first_one_is_lost() -> None:
    results = Results(5)
    results.put([chunk(5, 7), chunk(7, 9)])
    assert results.get(4, 4, 0) is None


def test_a_request_may_begin_behind_the_matches() -> None:
    results = Results(5)
    results.put([chunk(5, 7)])
    assert results.get(8, 8, 0) == []
    results.put([chunk(7, 10)])
    assert results.get(8, 8, 0) == [chunk(8, 10)]


@pytest.mark.parametrize("wrong", [chunk(6, 8), chunk(4, 8), chunk(5, 5)])
def test_chunks_have_to_follow_each_other(wrong: MatchChunk) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        Results(5).put([wrong])


def test_an_answer_is_bounded_but_has_one_chunk() -> None:
    results = Results(0)
    results.put([chunk(0, 1, ANSWER_BYTES_MAX + 1), chunk(1, 2, ANSWER_BYTES_MAX), chunk(2, 3, 1)])
    assert [len(results.get(first, 0, 0) or []) for first in range(3)] == [1, 1, 1]


def test_a_full_store_waits_until_matches_are_durable() -> None:
    results = Results(0, bytes_max=3 * CHUNK_BYTES)
    results.put([chunk(0, 1), chunk(1, 2)])
    putting = in_thread(lambda: results.put([chunk(2, 3)]))
    assert results.get(2, 0, 5) == [chunk(2, 3)]
    assert putting.is_alive()
    results.get(3, 1, 0)
    putting.join(5)
    assert not putting.is_alive()


def test_a_request_waits_for_matches() -> None:
    results = Results(0)
    found: list[list[MatchChunk] | None] = []
    getting = in_thread(lambda: found.append(results.get(0, 0, 30)))
    results.put([chunk(0, 4)])
    getting.join(5)
    assert found == [[chunk(0, 4)]]


def test_the_end_wakes_everybody() -> None:
    results = Results(0, bytes_max=1)
    outcomes: list[object] = []

    def put() -> None:
        with pytest.raises(Ended):
            results.put([chunk(0, 1)])
        outcomes.append("ended")

    threads = [in_thread(put), in_thread(lambda: outcomes.append(results.get(1, 0, 30)))]
    while results.end == 0:
        pass
    results.close()
    for each in threads:
        each.join(5)
    assert sorted(map(str, outcomes)) == ["[]", "ended"]
