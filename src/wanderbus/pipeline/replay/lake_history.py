"""The bronze records of a lake as history for subscriptions that begin in the past (SPEC T-05).

Pieces are made by the code that makes them of the log, so both match alike. Files and row groups are chosen by the
bounds of their offsets and times; the row groups that were read last stay in memory.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from wanderbus.broker.history.piece import find_position, read_piece
from wanderbus.broker.messages import HistoryRead, HistoryWanted
from wanderbus.errors import StorageError, WanderbusError
from wanderbus.pipeline.lake.delta import LakeTable, application_of, place_of
from wanderbus.pipeline.lake.log_places import checked_lake_place
from wanderbus.pipeline.lake.logs import logs_of
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG
from wanderbus.pipeline.source.log_files import LogFiles
from wanderbus.pipeline.tables import QUARANTINE, RECORDS
from wanderbus.runtime.services.frames import ServiceAway
from wanderbus.runtime.services.history import OffsetAsked
from wanderbus.segments import HIGH_WATER, Frame, LogPlace
from wanderbus.subscription import instant_shown

_log = logging.getLogger("wanderbus.service")

CACHE_BYTES_MAX: Final = 256 * 2**20
"""Bytes of the row groups in memory. One row group is kept even if it is larger."""

_COLUMNS: Final = ["offset", "at_us", "record"]
_GENERATING: Final = ["published", "arrived", "matched", "detected", "replayed"]
"""Kinds of the records that generate notifications."""


class _File(NamedTuple):
    """A file of records: its path, and the bounds of lake offsets and times of the records that a log has in it."""

    path: Path
    first: int
    last: int
    first_us: int
    last_us: int


class _Contents(NamedTuple):
    """The records ``begin..end-1`` of the log ``identity`` with the base ``base``, in ``files`` by lake offset."""

    identity: str
    base: int
    begin: int
    end: int
    files: list[_File]
    place: LogPlace

    @property
    def shown(self) -> str:
        """Return the extent as text."""
        if not self.files:
            return "the lake has no record yet"
        return f"the lake begins at record {self.begin} of {instant_shown(self.files[0].first_us)}"

    def own(self, rows: _Rows) -> _Rows:
        """Return those of the rows that are of this log."""
        return rows.between(self.base, self.base + OFFSETS_A_LOG)


class _Rows(NamedTuple):
    """Records by lake offset."""

    offsets: np.ndarray[Any, np.dtype[np.int64]]
    times: np.ndarray[Any, np.dtype[np.int64]]
    records: pa.ChunkedArray

    def between(self, first: int, end: int) -> _Rows:
        """Return the records from the lake offset ``first`` up to ``end``."""
        low, high = np.searchsorted(self.offsets, [first, end])
        return _Rows(self.offsets[low:high], self.times[low:high], self.records[low:high])


class LakeHistory:
    """The archive in the directory ``lake``; several threads may ask it.

    It has to have read ``log``, if there is one: it answers nothing from the past of another log.
    """

    def __init__(self, lake: Path, log: Path | None = None, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._lake = lake
        self._log_files = None if log is None else LogFiles(log)
        self._cache_bytes_max = cache_bytes_max
        self._contents: dict[str, _Contents] = {}
        """Contents of each log that was asked for, by its identity."""
        self._groups: OrderedDict[tuple[Path, int], _Rows] = OrderedDict()
        self._extents: dict[Path, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def offset(self, asked: OffsetAsked) -> int:
        """Return the first offset of a subscription."""
        contents, since = self._newest(asked.server, asked.incarnation), asked.wanted.since
        if contents.end < asked.log_begins:
            raise StorageError(
                f"the lake has the records before {contents.end} only: those up to the log are kept nowhere"
            )
        try:
            if since.at_us is not None:
                return self._at(contents, since.at_us)
            if since.position is not None:
                return self._behind(contents, asked, since.position.number)
        except (OSError, pa.ArrowException) as error:
            raise _away(error) from None
        if since.event is None:
            return contents.begin
        if not contents.begin <= since.event.number + 1 <= contents.end:
            raise StorageError(f"since {since.event}: {contents.shown}")
        return since.event.number + 1

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        """Return a piece, which ends where the lake ends."""
        known = self._contents.get(f"{wanted.server}-{wanted.incarnation}")
        try:
            if known is not None:
                self._require_same_log(known)
                return self._read(known, wanted)
        except (WanderbusError, OSError, pa.ArrowException):
            pass  # the lake may have more by now, or have its records in other files
        try:
            return self._read(self._newest(wanted.server, wanted.incarnation), wanted)
        except (OSError, pa.ArrowException) as error:
            raise _away(error) from None

    def _read(self, contents: _Contents, wanted: HistoryWanted) -> HistoryRead:
        if not contents.begin <= wanted.first < contents.end:
            raise StorageError(f"record {wanted.first} is not in the lake, which ends at record {contents.end}")
        try:
            return read_piece(wanted, self._frames(contents, wanted.first, min(wanted.end, contents.end)))
        except msgspec.DecodeError as error:
            raise StorageError(f"a record from {wanted.first} on was written by another version: {error}") from None

    def _newest(self, server: str, incarnation: int) -> _Contents:
        """Return what the lake has of a log now."""
        target, identity = LakeTable(self._lake, RECORDS), f"{server}-{incarnation}"
        try:
            delta = target.load()
            logs = logs_of(self._lake, delta)
            every = list(_files(target, delta))
            place = place_of(delta, application_of(identity, RECORDS)) or LogPlace(0)
        except (StorageError, DeltaError) as error:
            raise ServiceAway(" ".join(str(error).split())) from None
        if (base := logs.bases.get(identity)) is None:
            raise StorageError(f"the lake has the log {', '.join(logs.identities)}, not {identity}")
        found = [own for file in every if (own := _own(file, base)) is not None]
        files = sorted(found, key=lambda each: each.first)
        begin = files[0].first - base if files else place.offset
        contents = _Contents(identity, base, begin, place.offset, files, place)
        self._require_same_log(contents)
        self._contents[identity] = contents
        with self._lock:
            paths = {file.path for file in every}
            self._extents = {path: kept for path, kept in self._extents.items() if path in paths}
        return contents

    def _require_same_log(self, contents: _Contents) -> None:
        """Return if the server's log has the records that the lake has read; ``LogReplaced`` otherwise."""
        if self._log_files is not None and (self._log_files.directory / HIGH_WATER).exists():
            with self._lock:
                checked_lake_place(self._lake, self._log_files, contents.place)

    # Records
    # -----------------------------------------------------------------------------------------------------------------

    def _frames(self, contents: _Contents, first: int, end: int) -> Iterator[Frame]:
        """Yield the records from ``first`` up to ``end``; one in the quarantine is empty.

        :raises StorageError: a record is missing, or there twice
        """
        base = contents.base
        parts = [
            rows
            for file in contents.files
            if file.first < base + end and file.last >= base + first
            for rows in self._between(file, base + first, base + end)
        ]
        offset = first
        frames = (frame for rows in parts for frame in _as_frames(rows, base))
        for frame in frames if len(parts) < 2 else sorted(frames):
            if frame.offset > offset:
                yield from self._quarantined(base, offset, frame.offset)
            elif frame.offset < offset:
                raise StorageError(f"the lake has record {frame.offset} twice; see 'reconcile'")
            yield frame
            offset = frame.offset + 1
        if offset < end:
            yield from self._quarantined(base, offset, end)

    def _between(self, file: _File, first: int, end: int) -> Iterator[_Rows]:
        for group, (least, most) in enumerate(self._extent(file)):
            if least < end and most >= first:
                rows = self._group(file, group).between(first, end)
                if len(rows.offsets):
                    yield rows

    def _extent(self, file: _File) -> list[tuple[int, int]]:
        """Return the bounds of the offsets of each row group."""
        with self._lock:
            if (known := self._extents.get(file.path)) is not None:
                return known
        metadata = pq.read_metadata(file.path)
        column = metadata.schema.names.index("offset")
        found: list[tuple[int, int]] = []
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(column).statistics
            known_bounds = statistics is not None and statistics.has_min_max
            found.append((statistics.min, statistics.max) if known_bounds else (file.first, file.last))
        with self._lock:
            self._extents[file.path] = found
        return found

    def _group(self, file: _File, group: int) -> _Rows:
        """Return the records of a row group."""
        key = file.path, group
        # The lock is held while a group is read, so that a repeated request waits for it instead of reading it again.
        with self._lock:
            if (rows := self._groups.get(key)) is None:
                rows = self._groups[key] = _rows(_table(file, group, _COLUMNS))
            self._groups.move_to_end(key)
            size = sum(each.records.nbytes for each in self._groups.values())
            while size > self._cache_bytes_max and len(self._groups) > 1:
                size -= self._groups.popitem(last=False)[1].records.nbytes
            return rows

    def _quarantined(self, base: int, first: int, end: int) -> Iterator[Frame]:
        """Yield empty records for offsets that are in the quarantine: nobody can read these."""
        quarantine = LakeTable(self._lake, QUARANTINE)
        known: set[int] = set()
        if quarantine.exists:
            conditions = [("table", "=", RECORDS.name), ("offset", ">=", base + first), ("offset", "<", base + end)]
            rows = quarantine.load().to_pyarrow_table(columns=["offset"], filters=conditions)
            known = {offset - base for offset in rows["offset"].to_pylist()}
        missing = [offset for offset in range(first, end) if offset not in known]
        if missing:
            raise StorageError(f"the lake lacks record {missing[0]}; compare it with the log by 'reconcile'")
        _log.warning(
            "records %s to %s are in the quarantine of %s: a subscription misses them", first, end - 1, self._lake
        )
        for offset in range(first, end):
            yield Frame(offset, 0, b"", 0)

    # Points in the past
    # -----------------------------------------------------------------------------------------------------------------

    def _at(self, contents: _Contents, at_us: int) -> int:
        """Return the offset of the first record at ``at_us`` or later; times of records never decrease."""
        files = contents.files
        if not files or (contents.begin and files[0].first_us >= at_us):
            raise StorageError(f"since {instant_shown(at_us)}: {contents.shown}; give a later point, or 'earliest'")
        found: int | None = None
        for file in files:
            if file.last_us < at_us:
                continue
            if found is not None and file.first > found:
                break
            for group in range(len(self._extent(file))):
                rows = contents.own(self._group(file, group))
                later = rows.offsets[rows.times >= at_us]
                if len(later):
                    found = int(later[0]) if found is None else min(found, int(later[0]))
        if found is None:
            raise StorageError(f"since {instant_shown(at_us)}: the lake ends before, at record {contents.end}")
        return found - contents.base

    def _behind(self, contents: _Contents, asked: OffsetAsked, number: int) -> int:
        """Return the offset behind the event of a notification; the latest records are searched first."""
        wanted = asked.wanted
        for file in sorted(contents.files, key=lambda each: each.last, reverse=True):
            for group in reversed(range(len(self._extent(file)))):
                table = _table(file, group, [*_COLUMNS, "kind"])
                named = pc.match_substring(table["record"], wanted.user.encode())
                rows = table.filter(pc.and_(named, pc.is_in(table["kind"], pa.array(_GENERATING, pa.string()))))
                frames = _as_frames(contents.own(_rows(rows)), contents.base)
                found = find_position(frames, wanted.user, wanted.session, number)
                if found is not None and found >= contents.begin:
                    return found
        raise StorageError(f"since position {number}: {contents.shown}")


def _files(target: LakeTable, delta: DeltaTable) -> Iterable[_File]:
    """Return the files with records."""
    for each in pa.table(delta.get_add_actions(flatten=True)).to_pylist():
        if each["num_records"]:
            bounds = [each[f"{bound}.{column}"] for column in ("offset", "at_us") for bound in ("min", "max")]
            yield _File(target.directory / each["path"], *bounds)


def _own(file: _File, base: int) -> _File | None:
    """Return a file with the bounds of the records of one log, None if it has none of them."""
    end = base + OFFSETS_A_LOG
    if base <= file.first and file.last < end:
        return file
    if file.last < base or file.first >= end:
        return None
    conditions = [("offset", ">=", base), ("offset", "<", end)]  # a compaction has merged records of several logs
    rows = pq.read_table(file.path, columns=["offset", "at_us"], filters=conditions, partitioning=None)
    if not len(rows):
        return None
    bounds = [pc.min_max(rows[column]).as_py() for column in ("offset", "at_us")]
    return _File(file.path, *(each[side] for each in bounds for side in ("min", "max")))


def _table(file: _File, group: int, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(file.path) as opened:
        return opened.read_row_group(group, columns=columns)


def _rows(table: pa.Table) -> _Rows:
    """Return the rows of a table in order of offset; a compacted file need not have them so."""
    offsets = table["offset"].to_numpy()
    if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
        table = table.take(pa.array(np.argsort(offsets, kind="stable"), pa.int64()))
        offsets = table["offset"].to_numpy()
    return _Rows(offsets, table["at_us"].to_numpy(), table["record"])


def _as_frames(rows: _Rows, base: int) -> Iterator[Frame]:
    """Yield the records with their offsets in the log with this base."""
    records = (record.as_py() for record in rows.records)
    for offset, at_us, record in zip(rows.offsets.tolist(), rows.times.tolist(), records, strict=True):
        yield Frame(offset - base, at_us, record, 0)


def _away(error: Exception) -> ServiceAway:
    return ServiceAway(f"the lake cannot be read: {' '.join(str(error).split())}")
