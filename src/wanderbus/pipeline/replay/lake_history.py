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
from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed, log_of
from wanderbus.pipeline.tables import QUARANTINE, RECORDS
from wanderbus.runtime.services.frames import ServiceAway
from wanderbus.runtime.services.history import OffsetAsked
from wanderbus.segments import Frame
from wanderbus.subscription import instant_shown

_log = logging.getLogger("wanderbus.service")

CACHE_BYTES_MAX: Final = 256 * 2**20
"""Bytes of the row groups in memory. One row group is kept even if it is larger."""

_COLUMNS: Final = ["offset", "at_us", "record"]
_GENERATING: Final = ["published", "arrived", "matched", "detected", "replayed"]
"""Kinds of the records that generate notifications."""


class _File(NamedTuple):
    """A file of records: its path, and the bounds of its offsets and times."""

    path: Path
    first: int
    last: int
    first_us: int
    last_us: int


class _Contents(NamedTuple):
    """The records ``begin..end-1`` of the log ``identity``, in ``files`` by offset."""

    identity: str
    begin: int
    end: int
    files: list[_File]

    @property
    def shown(self) -> str:
        """Return the extent as text."""
        if not self.files:
            return "the lake has no record yet"
        return f"the lake begins at record {self.begin} of {instant_shown(self.files[0].first_us)}"


class _Rows(NamedTuple):
    """Records by offset."""

    offsets: np.ndarray[Any, np.dtype[np.int64]]
    times: np.ndarray[Any, np.dtype[np.int64]]
    records: pa.ChunkedArray


class LakeHistory:
    """The archive in the directory ``lake``; several threads may ask it."""

    def __init__(self, lake: Path, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._lake = lake
        self._cache_bytes_max = cache_bytes_max
        self._contents: _Contents | None = None
        self._groups: OrderedDict[tuple[Path, int], _Rows] = OrderedDict()
        self._extents: dict[Path, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def offset(self, asked: OffsetAsked) -> int:
        """Return the first offset of a subscription."""
        contents, since = self._of(asked.server, asked.incarnation, self._newest()), asked.wanted.since
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
        try:
            return self._read(self._contents or self._newest(), wanted)
        except (WanderbusError, OSError, pa.ArrowException):
            pass  # the lake may have more by now, or have its records in other files
        try:
            return self._read(self._newest(), wanted)
        except (OSError, pa.ArrowException) as error:
            raise _away(error) from None

    def _read(self, contents: _Contents, wanted: HistoryWanted) -> HistoryRead:
        self._of(wanted.server, wanted.incarnation, contents)
        if not contents.begin <= wanted.first < contents.end:
            raise StorageError(f"record {wanted.first} is not in the lake, which ends at record {contents.end}")
        try:
            return read_piece(wanted, self._frames(contents, wanted.first, min(wanted.end, contents.end)))
        except msgspec.DecodeError as error:
            raise StorageError(f"a record from {wanted.first} on was written by another version: {error}") from None

    def _of(self, server: str, incarnation: int, contents: _Contents) -> _Contents:
        """Return ``contents`` if they are of this log."""
        if contents.identity != f"{server}-{incarnation}":
            raise StorageError(f"the lake has the log {contents.identity}, not {server}-{incarnation}")
        return contents

    def _newest(self) -> _Contents:
        """Return what the lake has now."""
        target = LakeTable(self._lake, RECORDS)
        try:
            delta = target.load()
            identity = str(log_of(delta))
            files = sorted(_files(target, delta), key=lambda each: each.first)
            end = committed(delta, application_of(identity, RECORDS)) or 0
        except (StorageError, DeltaError) as error:
            raise ServiceAway(" ".join(str(error).split())) from None
        begin = files[0].first if files else end
        contents = self._contents = _Contents(identity, begin, end, files)
        with self._lock:
            paths = {file.path for file in files}
            self._extents = {path: kept for path, kept in self._extents.items() if path in paths}
        return contents

    # Records
    # -----------------------------------------------------------------------------------------------------------------

    def _frames(self, contents: _Contents, first: int, end: int) -> Iterator[Frame]:
        """Yield the records from ``first`` up to ``end``; one in the quarantine is empty.

        :raises StorageError: a record is missing, or there twice
        """
        parts = [
            rows
            for file in contents.files
            if file.first < end and file.last >= first
            for rows in self._between(file, first, end)
        ]
        offset = first
        frames = (frame for rows in parts for frame in _as_frames(rows))
        for frame in frames if len(parts) < 2 else sorted(frames):
            if frame.offset > offset:
                yield from self._quarantined(offset, frame.offset)
            elif frame.offset < offset:
                raise StorageError(f"the lake has record {frame.offset} twice; see 'reconcile'")
            yield frame
            offset = frame.offset + 1
        if offset < end:
            yield from self._quarantined(offset, end)

    def _between(self, file: _File, first: int, end: int) -> Iterator[_Rows]:
        for group, (least, most) in enumerate(self._extent(file)):
            if least < end and most >= first:
                rows = self._group(file, group)
                low, high = np.searchsorted(rows.offsets, [first, end])
                if low < high:
                    yield _Rows(rows.offsets[low:high], rows.times[low:high], rows.records[low:high])

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

    def _quarantined(self, first: int, end: int) -> Iterator[Frame]:
        """Yield empty records for offsets that are in the quarantine: nobody can read these."""
        quarantine = LakeTable(self._lake, QUARANTINE)
        known: set[int] = set()
        if quarantine.exists:
            conditions = [("table", "=", RECORDS.name), ("offset", ">=", first), ("offset", "<", end)]
            rows = quarantine.load().to_pyarrow_table(columns=["offset"], filters=conditions)
            known = set(rows["offset"].to_pylist())
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
                rows = self._group(file, group)
                later = rows.offsets[rows.times >= at_us]
                if len(later):
                    found = int(later[0]) if found is None else min(found, int(later[0]))
        if found is None:
            raise StorageError(f"since {instant_shown(at_us)}: the lake ends before, at record {contents.end}")
        return found

    def _behind(self, contents: _Contents, asked: OffsetAsked, number: int) -> int:
        """Return the offset behind the event of a notification; the latest records are searched first."""
        wanted = asked.wanted
        for file in sorted(contents.files, key=lambda each: each.last, reverse=True):
            for group in reversed(range(len(self._extent(file)))):
                table = _table(file, group, [*_COLUMNS, "kind"])
                named = pc.match_substring(table["record"], wanted.user.encode())
                rows = table.filter(pc.and_(named, pc.is_in(table["kind"], pa.array(_GENERATING))))
                found = find_position(_as_frames(_rows(rows)), wanted.user, wanted.session, number)
                if found is not None and found >= contents.begin:
                    return found
        raise StorageError(f"since position {number}: {contents.shown}")


def _files(target: LakeTable, delta: DeltaTable) -> Iterable[_File]:
    """Return the files with records."""
    for each in pa.table(delta.get_add_actions(flatten=True)).to_pylist():
        if each["num_records"]:
            bounds = [each[f"{bound}.{column}"] for column in ("offset", "at_us") for bound in ("min", "max")]
            yield _File(target.directory / each["path"], *bounds)


def _table(file: _File, group: int, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(file.path) as opened:
        return opened.read_row_group(group, columns=columns)


def _rows(table: pa.Table) -> _Rows:
    """Return the rows of a table in order of offset; a compacted file need not have them so."""
    offsets = table["offset"].to_numpy()
    if len(offsets) > 1 and not (offsets[1:] > offsets[:-1]).all():
        table = table.take(pa.array(np.argsort(offsets, kind="stable")))
        offsets = table["offset"].to_numpy()
    return _Rows(offsets, table["at_us"].to_numpy(), table["record"])


def _as_frames(rows: _Rows) -> Iterator[Frame]:
    records = (record.as_py() for record in rows.records)
    for offset, at_us, record in zip(rows.offsets.tolist(), rows.times.tolist(), records, strict=True):
        yield Frame(offset, at_us, record, 0)


def _away(error: Exception) -> ServiceAway:
    return ServiceAway(f"the lake cannot be read: {' '.join(str(error).split())}")
