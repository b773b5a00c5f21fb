"""Events of a channel by number, from the log of the server that leads it and from sources of what it has removed.

SPEC K-03. The number of an event is its offset in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.broker.messages import EventsRead, EventsWanted, HistoryRead, HistoryWanted, OffsetWanted, PastEvent
from wanderbus.errors import StorageError
from wanderbus.runtime.log.history_source import (
    EARLIEST,
    HistorySource,
    SourceAway,
    find_offset,
    read_history,
)
from wanderbus.runtime.log.log_reader import oldest_record
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.subscription import Since

RECORDS_MAX: Final = 262_144
"""Records of one answer; a channel with few events is read in several."""

_BLOCK_RECORDS: Final = 4_096
_BLOCK_GROWTH: Final = 4
"""Records of the first block in which the newest events are searched, and growth from each block to the one before it.

No block crosses the beginning of a segment. A block is found from there, so equal blocks would take quadratic time.
"""

_SEARCHED_EVENTS_MAX: Final = 4_096
_SEARCHED_BYTES_MAX: Final = 4 * 2**20
"""Events of one piece of such a block, and their bytes."""


class ChannelEvents:
    """The events in the log in ``directory``; ``sources`` have its records, the first of them the log itself."""

    def __init__(self, directory: Path, sources: Sequence[HistorySource]) -> None:
        self._directory = directory
        self._sources = sources

    def read(self, wanted: EventsWanted) -> EventsRead:
        """Return the answer; it takes time."""
        piece = wanted.piece
        try:
            return self._read(piece, wanted.newest) if wanted.since is None else self._find(piece, wanted.since)
        except SourceAway as error:
            return EventsRead(piece.piece, piece.first, failed=str(error))
        except (StorageError, OSError) as error:
            return EventsRead(piece.piece, piece.first, failed=str(error), is_lost=True)

    def _find(self, wanted: HistoryWanted, since: Since) -> EventsRead:
        """Return the number at which to begin."""
        found = find_offset(self._sources, OffsetWanted(0, since, "", ""))
        if found.offset is None:
            raise StorageError(found.reason)
        return EventsRead(wanted.piece, found.offset)

    def _read(self, wanted: HistoryWanted, newest: int | None) -> EventsRead:
        first, kept_from = wanted.first, 0
        if newest is not None:
            first, is_whole = self._newest(wanted, newest)
            kept_from = 0 if is_whole else first
        elif first < oldest_record(self._directory):
            kept_from = self._oldest()
            first, kept_from = max(first, kept_from), kept_from if first < kept_from else 0
        events: list[PastEvent] = []
        size, at, end = 0, first, min(wanted.end, first + RECORDS_MAX)
        while at < end and len(events) < wanted.events_max and size < wanted.bytes_max:
            piece = self._piece(wanted, at, end, wanted.events_max - len(events), wanted.bytes_max - size)
            if piece.failed and not events:
                raise SourceAway(piece.failed, piece.retry_s) if piece.retry_s else StorageError(piece.failed)
            if piece.failed:
                break  # the next answer has the reason
            events += self._own(wanted, piece)
            size += sum(len(each.event) for each in piece.events)
            at = piece.end
            if wanted.subscription.expression:
                break  # the work of one piece is bounded
        return EventsRead(wanted.piece, at, kept_from, tuple(events))

    def _newest(self, wanted: HistoryWanted, count: int) -> tuple[int, bool]:
        """Return the number of the ``count``-th newest event, and True.

        If there are fewer, return the first number that is kept, and whether that is the first one that is wanted.
        """
        oldest = oldest_record(self._directory)
        begins = [int(path.stem) for path in segment_paths(self._directory)]
        end, records, found = wanted.end, _BLOCK_RECORDS, 0
        while end > wanted.first:
            if end <= oldest:
                oldest, begins = self._oldest(), []
                if end <= oldest:
                    return end, False
            begin = max(wanted.first, oldest, end - records, *(each for each in begins if each < end))
            numbers = self._numbers(wanted, begin, end)
            if found + len(numbers) >= count:
                return numbers[found - count], True
            found += len(numbers)
            end, records = begin, min(_BLOCK_GROWTH * records, RECORDS_MAX)
        return wanted.first, True

    def _numbers(self, wanted: HistoryWanted, begin: int, end: int) -> list[int]:
        """Return the numbers of the events in a block."""
        numbers: list[int] = []
        while begin < end:
            piece = self._piece(wanted, begin, end, _SEARCHED_EVENTS_MAX, _SEARCHED_BYTES_MAX)
            if piece.failed:
                raise StorageError(piece.failed)
            numbers += [each.offset for each in self._own(wanted, piece)]
            begin = piece.end
        return numbers

    def _oldest(self) -> int:
        """Return the first number that any source has."""
        found = find_offset(self._sources, OffsetWanted(0, EARLIEST, "", ""))
        if found.offset is None:
            raise SourceAway(found.reason, 0.0)
        return found.offset

    def _piece(self, wanted: HistoryWanted, begin: int, end: int, events_max: int, bytes_max: int) -> HistoryRead:
        asked = msgspec.structs.replace(wanted, first=begin, end=end, events_max=events_max, bytes_max=bytes_max)
        return read_history(self._sources, asked)

    def _own(self, wanted: HistoryWanted, piece: HistoryRead) -> list[PastEvent]:
        """Return the events that this server has accepted: others have numbers of another log."""
        return [each for each in piece.events if each.id.origin == wanted.server]
