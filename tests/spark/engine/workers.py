"""Workers of the engine without Spark: each is a process in the role, with an index of its own."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import msgspec

from wanderbus.pipeline.engine.batches import Batches, in_order
from wanderbus.pipeline.engine.chunks import MatchChunk, chunks_of
from wanderbus.pipeline.engine.index_versions import IndexVersion
from wanderbus.pipeline.engine.requests import joined_matches
from wanderbus.pipeline.engine.worker_index import WorkerIndex
from wanderbus.runtime.services.engine import Begin, EventMatches

_matches: Final = msgspec.msgpack.Decoder(list[EventMatches])


class Bytes:
    """Bytes that every worker has."""

    def __init__(self, value: bytes) -> None:
        self.value = value


class Workers:
    """Some workers, of which any may do a task, and any may be killed before one."""

    def __init__(self, count: int, random: Random, killed_share: float = 0.1) -> None:
        self._indexes: list[WorkerIndex | None] = [None] * count
        self._random = random
        self._killed_share = killed_share

    def index(self, version: IndexVersion, begin: Begin) -> WorkerIndex:
        """Return the index of some worker, brought up to a version."""
        place = self._random.randrange(len(self._indexes))
        index = self._indexes[place]
        if index is None or self._random.random() < self._killed_share or not index.may_reach(version):
            index = self._indexes[place] = WorkerIndex(version, begin.filter_work_max, begin.parents)
        index.reach(version)
        return index


def matched(log: Path, begin: Begin, end: int, workers: Workers, random: Random, batch_max: int) -> list[MatchChunk]:
    """Match the log up to ``end`` in batches of random sizes."""
    batches = Batches(log, begin, Bytes)
    found: list[MatchChunk] = []
    while (first := batches.next) < end:
        stop = min(end, first + random.randint(1, batch_max))
        batch = batches.take(stop, random.randint(1, 3))
        chunks: list[MatchChunk] = []
        for task in batch.tasks:
            chunks += chunks_of(workers.index(batch.version, begin), task)
        random.shuffle(chunks)
        found += in_order(chunks, first, stop)
    return found


def decoded(chunks: list[MatchChunk]) -> dict[int, EventMatches]:
    """Return the matches by offset, as the server decodes them."""
    several = _matches.decode(joined_matches(chunks))
    assert sum(chunk.count for chunk in chunks) == len(several)
    by_offset = {each.offset: each for each in several}
    assert list(by_offset) == sorted(by_offset)
    assert len(by_offset) == len(several)
    return by_offset
