"""One pass over records, which makes the files of all tables (decision 0066).

The workers read the records, decode each once, check the rows and write the files, so that no row passes through Java.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from wanderbus.pipeline.lake.quality import TableCounts, judged
from wanderbus.pipeline.lake.records import MISFITS, Columns, Decode, Decoding, Payloads, batch_of
from wanderbus.pipeline.lake.table_files import TableFiles, arrow_schema
from wanderbus.pipeline.lake.writing import WrittenFiles, run
from wanderbus.pipeline.source.frames import ROWS_MAX
from wanderbus.pipeline.source.log_files import Slice, divided, read_slice
from wanderbus.pipeline.source.record_columns import heads_of, values_of
from wanderbus.pipeline.tables import QUARANTINE, RECORDS, TableSpecification

_UNDECODABLE: Final = (msgspec.DecodeError, TypeError, OverflowError, pa.ArrowException)
_HEAD_COLUMNS: Final = ("kind", "user", "session", "device", "subject")


class PassTarget(NamedTuple):
    """A table that a pass writes, from a lake offset on; the quarantine has its rejected rows up to another one."""

    table: TableSpecification
    first: int
    quarantined: int


class PassPlan(NamedTuple):
    """The tables that a pass writes, by name, into the directories named ``attempt`` of the lake."""

    lake: Path
    attempt: str
    targets: Mapping[str, PassTarget]
    decodings: Sequence[Decoding]


class RecordGroup(NamedTuple):
    """Consecutive records of a log, by lake offset; a damaged one has neither time nor bytes."""

    offsets: Sequence[int]
    times: Sequence[int | None]
    payloads: Sequence[bytes | None]
    path: str | None = None
    places: Sequence[int] = ()
    """The byte of each record in the segment at ``path``; bronze records have neither."""

    def found(self, offset: int) -> tuple[str | None, int | None, bytes | None]:
        """Return the segment of a record, its byte there, and its payload."""
        row = self.offsets.index(offset)
        return self.path, self.places[row] if self.places else None, self.payloads[row]


class _Rejected(NamedTuple):
    """A row for the quarantine."""

    table: str
    offset: int
    path: str | None
    byte: int | None
    record: bytes | None
    reason: str


class _Sink:
    """The writer of one table, and of its rows in the quarantine."""

    def __init__(self, target: PassTarget, plan: PassPlan) -> None:
        self.target = target
        self._files = TableFiles(target.table, plan.lake / target.table.directory, plan.attempt)
        self._quarantine = TableFiles(QUARANTINE, plan.lake / QUARANTINE.directory, plan.attempt)
        self._schema = arrow_schema(target.table)
        self._rejected_rows = arrow_schema(QUARANTINE)
        self._counts = TableCounts()

    def rows(self, columns: Columns) -> tuple[pa.RecordBatch, int]:
        """Return the rows that the table lacks, and the number of misfits in them."""
        if columns["offset"] and columns["offset"][0] < self.target.first:
            kept = [place for place, offset in enumerate(columns["offset"]) if offset >= self.target.first]
            columns = {name: [values[place] for place in kept] for name, values in columns.items()}
        return batch_of(columns, self._schema), sum(columns.get(MISFITS, ()))

    def write(self, rows: pa.RecordBatch, misfits: int, group: RecordGroup) -> None:
        """Write the rows that meet the checks; the others go to the quarantine."""
        found = judged(rows, self.target.table)
        self._counts += msgspec.structs.replace(found.counts, misfits=misfits)
        self._files.write(found.rows)
        if found.rejected:
            offsets = rows.column("offset")
            self._to_quarantine({(offsets[row].as_py(), reason) for row, reason in found.rejected.items()}, group)

    def reject(self, errors: Mapping[int, str], group: RecordGroup) -> None:
        """Put records into the quarantine, each with its offset and the reason."""
        found = {(offset, reason) for offset, reason in errors.items() if offset >= self.target.first}
        self._counts += TableCounts(rejected=len(found))
        self._to_quarantine(found, group)

    def close(self) -> WrittenFiles:
        return WrittenFiles(self._files.close(), self._quarantine.close(), self._counts)

    def _to_quarantine(self, errors: set[tuple[int, str]], group: RecordGroup) -> None:
        rows = [
            _Rejected(self.target.table.name, offset, *group.found(offset), reason)._asdict()
            for offset, reason in sorted(errors)
            if offset >= self.target.quarantined
        ]
        if rows:
            self._quarantine.write(pa.RecordBatch.from_pylist(rows, self._rejected_rows))


class _Pass:
    """One task's part of a pass."""

    def __init__(self, plan: PassPlan) -> None:
        self._sinks = {name: _Sink(target, plan) for name, target in plan.targets.items()}
        self._decoders = [(each.kinds, each.make()) for each in plan.decodings]

    def take(self, group: RecordGroup) -> None:
        """Add a group of records to all tables."""
        errors = {place: "the frame is damaged" for place, payload in enumerate(group.payloads) if payload is None}
        heads = heads_of(group.payloads, errors)
        kinds = [head.kind for head in heads]
        if RECORDS.name in self._sinks:
            self._store(group, {name: values_of(heads, name) for name in _HEAD_COLUMNS}, errors)
        for wanted, decode in self._decoders:
            places = [place for place, kind in enumerate(kinds) if kind in wanted]
            if places:
                self._decode(_taken(group, kinds, places), wanted, decode, group)

    def close(self) -> dict[str, WrittenFiles]:
        return {name: sink.close() for name, sink in self._sinks.items()}

    def _store(self, group: RecordGroup, heads: Columns, errors: Mapping[int, str]) -> None:
        """Write the bronze rows."""
        sink = self._sinks[RECORDS.name]
        columns: Columns = {"offset": group.offsets, "at_us": group.times, "record": group.payloads, **heads}
        if errors:
            kept = [place for place in range(len(group.offsets)) if place not in errors]
            columns = {name: [values[place] for place in kept] for name, values in columns.items()}
            sink.reject({group.offsets[place]: reason for place, reason in errors.items()}, group)
        sink.write(*sink.rows(columns), group)

    def _decode(self, payloads: Payloads, tables: Mapping[str, str], decode: Decode, group: RecordGroup) -> None:
        """Write the rows of decoded records; the search for one that cannot be decoded divides them."""
        size = len(payloads.offsets)
        try:
            rows = {
                name: self._sinks[name].rows(columns)
                for name, columns in decode(payloads).items()
                if name in self._sinks
            }
        except _UNDECODABLE as error:
            if size > 1:
                self._decode(payloads.part(0, size // 2), tables, decode, group)
                self._decode(payloads.part(size // 2, size), tables, decode, group)
            elif sink := self._sinks.get(tables[payloads.kinds[0]]):
                sink.reject({payloads.offsets[0]: f"cannot be decoded: {' '.join(str(error).split())}"}, group)
            return
        for name, found in rows.items():
            self._sinks[name].write(*found, group)


def _taken(group: RecordGroup, kinds: Sequence[str | None], places: Sequence[int]) -> Payloads:
    """Return the records at these places, which are readable."""
    return Payloads(
        [group.offsets[place] for place in places],
        [group.times[place] or 0 for place in places],
        [kinds[place] or "" for place in places],
        [group.payloads[place] or b"" for place in places],
    )


def decode_log(
    spark: SparkSession, parts: Sequence[Slice], base: int, plan: PassPlan, mentioned: Sequence[str] = ()
) -> dict[str, WrittenFiles]:
    """Write the records of parts of the log, or of those parts that have one of the texts ``mentioned``.

    ``base`` is the lake offset of the log's first record. The files are not part of their tables yet.
    """
    groups = divided(parts, spark.sparkContext.defaultParallelism)
    return run(spark, [partial(write_parts, plan, own, base, mentioned) for own in groups])


def write_parts(
    plan: PassPlan, parts: Iterable[Slice], base: int = 0, mentioned: Sequence[str] = ()
) -> dict[str, WrittenFiles]:
    """Write the records of parts of the log as :func:`decode_log` does, in this process."""
    texts = [text.encode() for text in mentioned]
    return _write(plan, partial(_groups, parts, base, texts))


def decode_bronze(
    spark: SparkSession, paths: Sequence[Path], ends: Mapping[int, int], plan: PassPlan
) -> dict[str, WrittenFiles]:
    """Write the bronze records that the plan decodes, those of each log up to its end; ``ends`` are by base."""
    return run(spark, [partial(_write, plan, partial(_stored_groups, path, ends, plan)) for path in paths])


def _write(plan: PassPlan, groups: Callable[[], Iterable[RecordGroup]]) -> dict[str, WrittenFiles]:
    with _without_garbage():
        own = _Pass(plan)
        for group in groups():
            own.take(group)
        return own.close()


def _groups(parts: Iterable[Slice], base: int, texts: Sequence[bytes]) -> Iterator[RecordGroup]:
    for part in parts:
        for frames in read_slice(part, texts):
            first = base + frames.first
            offsets = range(first, first + len(frames.times))
            places = [part.first_byte + place for place in frames.places]
            yield RecordGroup(offsets, frames.times, frames.payloads, part.path, places)


def _stored_groups(path: Path, ends: Mapping[int, int], plan: PassPlan) -> Iterator[RecordGroup]:
    """Yield the records of a file of the bronze table."""
    kinds = pa.array(sorted({kind for each in plan.decodings for kind in each.kinds}), pa.string())
    columns = ["offset", "at_us", "record", "kind"]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_MAX, columns=columns, use_threads=False):
            offsets = batch.column("offset")
            is_before = [pc.and_(pc.greater_equal(offsets, base), pc.less(offsets, end)) for base, end in ends.items()]
            own = batch.filter(pc.and_(pc.is_in(batch.column("kind"), kinds), reduce(pc.or_, is_before)))
            if len(own):
                offsets, times, records, _ = (own.column(name).to_pylist() for name in columns)
                yield RecordGroup(offsets, times, records)


@contextmanager
def _without_garbage() -> Iterator[None]:
    """Pause the collection of garbage: millions of rows make no cycles, and searching them costs more than decoding."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
