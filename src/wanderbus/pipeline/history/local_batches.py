"""Batches of past events and records that this process reads itself: of the files of a lake, or of a server's log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from wanderbus.errors import StorageError
from wanderbus.pipeline.history.event_files import BATCH_ROWS, EVERY_EVENT, RowGroups, Selection, batches_of, rows_of
from wanderbus.pipeline.history.lake_events import event_paths
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.source.log_files import LogFiles, RecordBounds, read_slice
from wanderbus.pipeline.source.record_columns import heads_of
from wanderbus.pipeline.tables import RECORDS
from wanderbus.runtime.segment_files import durable_end, segment_paths

LAKE_BYTES_MAX: Final = 16 * 2**20
"""Bytes of a lake's files up to which a process reads them without Spark, unless it is asked otherwise.

They have half a million events, which take about as long as the start of Spark.
"""

LOG_BYTES_MAX: Final = 64 * 2**20
"""The same of a log, whose files are not compressed."""

_RECORD: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("offset", "at_us")),
        *((name, pa.string()) for name in ("kind", "subject")),
        ("record", pa.binary()),
    ]
)


class LocalBatches(Protocol):
    """Reader of past events and records."""

    def is_small(self, *, has_records: bool) -> bool:
        """Return whether the events are read sooner than Spark starts; the records too if it ``has_records``."""
        ...

    def events(self, selection: Selection, asked: Set[str] | None, further: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the selected events, with the columns for filters on the ``asked`` attributes and ``further`` ones."""
        ...

    def records(self, kinds: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of some kinds, with ``offset``, ``at_us``, ``kind`` and ``record``, in any order."""
        ...


class LakeBatches:
    """Reader of the tables of the lake ``lake``; of the events it needs those of the ``selection`` or fewer."""

    def __init__(self, lake: Path, selection: Selection) -> None:
        self._lake = lake
        self.paths: Sequence[str] = event_paths(lake, selection)
        """Files of the events."""

    def is_small(self, *, has_records: bool) -> bool:
        """Return whether the files have at most :data:`LAKE_BYTES_MAX`."""
        return self.size(has_records=has_records) <= LAKE_BYTES_MAX

    def size(self, *, has_records: bool) -> int:
        """Return the bytes of the files."""
        return _size(map(Path, [*self.paths, *(self._record_paths() if has_records else ())]))

    def events(self, selection: Selection, asked: Set[str] | None, further: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the selected events."""
        for path in self.paths:
            yield from batches_of(RowGroups(path, 0, 1), selection, asked, further)

    def records(self, kinds: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of some kinds."""
        columns = ["offset", "at_us", "kind", "record"]
        for path in self._record_paths():
            yield from rows_of(RowGroups(path, 0, 1), lambda _: columns, pc.field("kind").isin(list(kinds)))

    def _record_paths(self) -> list[str]:
        target = LakeTable(self._lake, RECORDS)
        return sorted(map(str, target.paths(target.load())))


class LogBatches:
    """Reader of a server's log, up to its durable end."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def is_small(self, *, has_records: bool) -> bool:
        """Return whether the segments, which have the events and the records, have at most :data:`LOG_BYTES_MAX`."""
        return _size(segment_paths(self._log)) <= LOG_BYTES_MAX

    def events(self, selection: Selection, asked: Set[str] | None, further: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the selected events, with their records."""
        return self._chosen({"published"}, selection)

    def records(self, kinds: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of some kinds."""
        return self._chosen(kinds, EVERY_EVENT)

    def _chosen(self, kinds: Collection[str], selection: Selection) -> Iterator[pa.RecordBatch]:
        files, condition = LogFiles(self._log), selection.condition()
        first, end = max(files.oldest(), selection.from_offset or 0), durable_end(self._log)
        end = end if selection.to_offset is None else min(end, selection.to_offset)
        wanted = RecordBounds(selection.from_us, None if selection.to_us is None else selection.to_us - 1)
        for part in files.slices(first, end, BATCH_ROWS, wanted):
            for group in read_slice(part):
                heads = heads_of(group.payloads, {})
                rows = [row for row, head in enumerate(heads) if head.kind in kinds]
                columns: list[list[object]] = [
                    [group.first + row for row in rows],
                    [group.times[row] for row in rows],
                    [heads[row].kind for row in rows],
                    [heads[row].subject for row in rows],
                    [group.payloads[row] for row in rows],
                ]
                arrays = [pa.array(values, field.type) for values, field in zip(columns, _RECORD, strict=True)]
                batch = pa.RecordBatch.from_arrays(arrays, schema=_RECORD)
                batch = batch if condition is None else batch.filter(condition)
                if len(batch):
                    yield batch


def _size(paths: Iterable[Path]) -> int:
    """Return the bytes of some files."""
    found = 0
    for path in paths:
        try:
            found += path.stat().st_size
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    return found
