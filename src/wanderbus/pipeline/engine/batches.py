"""Batches of records: the parts of the log that one has, and the version of the index that its events need.

SPEC T-06. The driver reads the changes of subscriptions, and the tasks read the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.pipeline.engine.chunks import MatchChunk
from wanderbus.pipeline.engine.index_versions import IndexVersion, IndexVersions, Shared
from wanderbus.pipeline.engine.interest import CHANGING_KINDS, EngineInterest
from wanderbus.pipeline.source.log_files import LogFiles, Slice, corrupt, divided, read_slice
from wanderbus.records import decode_record
from wanderbus.runtime.services.engine import Begin

RECORDS_A_PART: Final = 1_000
"""Records for which a second task is worth its cost."""

_TEXTS: Final = tuple(b"\xa4kind" + bytes([0xA0 + len(kind)]) + kind.encode() for kind in CHANGING_KINDS)
"""Begins of the records that change subscriptions, as msgpack."""


class EngineBatch(NamedTuple):
    """Consecutive parts of the log for each task, and the version of the index."""

    tasks: list[list[Slice]]
    version: IndexVersion


class Batches:
    """The batches of one beginning, which follow each other; ``share`` makes bytes available to the workers."""

    def __init__(self, log: Path, begin: Begin, share: Callable[[bytes], Shared]) -> None:
        self._files = LogFiles(log)
        self._interest = EngineInterest(begin.subscriptions)
        self._versions = IndexVersions(f"{log}/{begin.number}", self._interest.wanted(), share)
        self._place = self._files.place(begin.first)

    @property
    def next(self) -> int:
        """Return the offset at which the next batch begins."""
        return self._place.offset

    @property
    def version(self) -> IndexVersion:
        """Return the version of the last batch."""
        return self._versions.last

    @property
    def subscriptions(self) -> int:
        """Return the number of subscriptions."""
        return len(self._interest)

    def take(self, end: int, cores: int) -> EngineBatch:
        """Return the next batch, up to ``end``, for at most ``cores`` tasks.

        :raises LogReplaced: the log has other records before them than those of the last batch
        :raises StorageError: the log does not have these records any more
        :raises LogCorrupt: a record cannot be read
        """
        self._files.checked(self._place, reader="the matching engine", remedy="the server begins the engine again")
        parts = self._files.slices(self.next, end, RECORDS_A_PART)
        for part in parts:
            self._follow(part)
        self._place = self._files.place(end)
        version = self._versions.add(self._interest.take_changes(), self._interest.wanted)
        return EngineBatch(divided(parts, min(cores, len(parts))), version)

    def _follow(self, part: Slice) -> None:
        """Follow the changes of subscriptions in a part of the log; most parts have none."""
        for group in read_slice(part, _TEXTS):
            for offset, (payload, place) in enumerate(zip(group.payloads, group.places, strict=True), group.first):
                if payload is None:
                    raise corrupt(part.path, part.first_byte + place, offset)
                try:
                    if any(text in payload for text in _TEXTS):
                        self._interest.read(decode_record(payload))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise LogCorrupt(f"{part.path}: record {offset} is unknown to this version ({error})") from None


def in_order(chunks: Sequence[MatchChunk], first: int, end: int) -> list[MatchChunk]:
    """Return the chunks of one batch in order; ``StorageError`` unless they have each of its records once."""
    ordered = sorted(chunks, key=lambda chunk: chunk.first)
    at = first
    for chunk in ordered:
        if chunk.first != at:
            raise StorageError(f"the workers returned no matches of record {at}, or returned them twice")
        at = chunk.end
    if at != end:
        raise StorageError(f"the workers returned no matches of the records from {at} to {end - 1}")
    return ordered
