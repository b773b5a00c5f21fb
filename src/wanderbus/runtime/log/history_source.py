"""Sources of history for subscriptions that begin in the past (SPEC T-05): the log of this server, and others after it.

A source is asked in a thread of its own. One that does not have a record raises :class:`StorageError`, and the next
source is asked. One that cannot answer now raises :class:`SourceAway`: it may have what the others lack.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from wanderbus.broker.history.piece import find_position, read_piece
from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetFound, OffsetWanted
from wanderbus.errors import StorageError, WanderbusError
from wanderbus.runtime.files.disk import mapped
from wanderbus.runtime.log.log_reader import NotKept, RecordPlace, oldest_record, read_frames, read_log
from wanderbus.runtime.segment_files import durable_end, segment_paths, unreadable
from wanderbus.segments import HEADER, Frame, frames
from wanderbus.subscription import Since, instant_shown

EARLIEST: Final = Since()
"""The oldest record that any source has."""

_PLACES_MAX: Final = 1_024
"""Ends of pieces whose places in a segment are remembered, so that the next piece begins there."""


class SourceAway(StorageError):
    """The source cannot answer now; ask it again after ``retry_s`` seconds."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class NoSource(StorageError):
    """There is no such source; the reason is of no interest to a subscriber."""


class HistorySource(Protocol):
    """A source of the records of a log."""

    def offset(self, wanted: OffsetWanted) -> int:
        """Return the first offset to read; :class:`StorageError` if the source does not go back so far."""
        ...

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        """Return a piece; :class:`StorageError` if the source does not have its first record."""
        ...


class LogHistory:
    """The log in ``directory`` as a source; ``identity`` returns its server and incarnation."""

    def __init__(self, directory: Path, identity: Callable[[], tuple[str, int]]) -> None:
        self._directory = directory
        self._identity = identity
        self._places: OrderedDict[int, RecordPlace] = OrderedDict()

    def offset(self, wanted: OffsetWanted) -> int:
        """Return the first offset of a subscription that begins at ``wanted.since``."""
        since, oldest = wanted.since, oldest_record(self._directory)
        if since.at_us is not None:
            return self._at(since.at_us, oldest)
        if since.position is not None:
            return self._behind(wanted, since.position.number, oldest)
        if since.event is None:
            return oldest
        if since.event.number + 1 < oldest:
            raise StorageError(f"since {since.event}: {self._beginning(oldest)}")
        return since.event.number + 1

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        """Return a piece; the next one continues without a search."""
        if (wanted.server, wanted.incarnation) != self._identity():
            raise StorageError(f"record {wanted.first} of the server {wanted.server} is not in the log of this server")
        known = self._places.get(wanted.first)
        coming = _Noted(read_frames(self._directory, wanted.first, wanted.end, known))
        try:
            piece = read_piece(wanted, coming)
        except NotKept as error:
            beginning = self._beginning(oldest_record(self._directory))
            raise StorageError(f"record {error.offset} is not kept: {beginning}") from None
        if (place := coming.places.get(piece.end)) is not None:
            self._places[piece.end] = place
            if len(self._places) > _PLACES_MAX:
                self._places.popitem(last=False)
        return piece

    def _at(self, at_us: int, oldest: int) -> int:
        """Return the offset of the first record at ``at_us`` or later; times of records never decrease."""
        paths = segment_paths(self._directory)
        low, high = 0, len(paths)
        while low < high:  # the first segment that begins at that time or later
            middle = (low + high) // 2
            first = self._first(paths[middle])
            if first is None or first.at_us >= at_us:
                high = middle
            else:
                low = middle + 1
        if low == 0:
            if oldest:
                raise StorageError(f"since {instant_shown(at_us)}: {self._beginning(oldest)}")
            return 0
        end = durable_end(self._directory)
        begin = int(paths[low - 1].stem)
        until = int(paths[low].stem) if low < len(paths) else end
        found = (frame.offset for frame in read_log(self._directory, begin, min(until, end)) if frame.at_us >= at_us)
        return next(found, until)

    def _behind(self, wanted: OffsetWanted, number: int, oldest: int) -> int:
        """Return the offset behind the event of a notification; the latest segments are searched first."""
        end = durable_end(self._directory)
        for path in reversed(segment_paths(self._directory)):
            begin = int(path.stem)
            found = find_position(read_log(self._directory, begin, end), wanted.user, wanted.session, number)
            if found is not None:
                if found < oldest:
                    break
                return found
            end = begin
        raise StorageError(f"since position {number}: {self._beginning(oldest)}")

    def _beginning(self, oldest: int) -> str:
        first = next((each for path in segment_paths(self._directory) if (each := self._first(path))), None)
        when = "" if first is None else f" of {instant_shown(first.at_us)}"
        return f"the log begins at record {oldest}{when}; give a later point, or 'earliest'"

    def _first(self, path: Path) -> Frame | None:
        try:
            with mapped(path) as data:
                return next(frames(data, len(HEADER)), None)
        except OSError as error:
            raise unreadable(path, error) from None


class _Noted:
    """Records as :func:`read_piece` takes them; notes the place behind each."""

    def __init__(self, coming: Iterator[tuple[Frame, Path]]) -> None:
        self.places: dict[int, RecordPlace] = {}
        self._coming = coming

    def __iter__(self) -> Iterator[Frame]:
        for frame, path in self._coming:
            self.places[frame.offset + 1] = RecordPlace(path, frame.end)
            yield frame


def find_offset(sources: Sequence[HistorySource], wanted: OffsetWanted) -> OffsetFound:
    """Return the offset of the first source that goes back far enough, or the reasons.

    The oldest record is the oldest one of all sources. It is unknown while one of them cannot answer.
    """
    reasons: list[str] = []
    found: list[int] = []
    is_away = False
    for source in sources:
        try:
            found.append(source.offset(wanted))
        except NoSource:
            continue
        except SourceAway as error:
            is_away = True
            reasons.append(str(error))
        except (WanderbusError, OSError) as error:
            reasons.append(str(error))
        if found and (wanted.since != EARLIEST or not found[-1]):
            break
    if found and not (is_away and min(found)):
        return OffsetFound(wanted.lookup, min(found))
    return OffsetFound(wanted.lookup, None, "; ".join(reasons))


def read_history(sources: Sequence[HistorySource], wanted: HistoryWanted) -> HistoryRead:
    """Return the piece of the first source that has it, or the reasons; if one may have it later, when to ask again."""
    reasons: list[str] = []
    retry_s = 0.0
    for source in sources:
        try:
            return source.read(wanted)
        except NoSource:
            continue
        except SourceAway as error:
            retry_s = error.retry_s
            reasons.append(str(error))
        except (WanderbusError, OSError, msgspec.DecodeError) as error:
            reasons.append(str(error))
    kept_from = None if retry_s else find_offset(sources, OffsetWanted(0, EARLIEST, "", "")).offset
    return HistoryRead(wanted.piece, wanted.first, failed="; ".join(reasons), retry_s=retry_s, kept_from=kept_from or 0)
