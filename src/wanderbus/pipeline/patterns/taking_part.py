"""Events that take part in a pattern, of batches of any form of events, as rows that Spark can group (SPEC T-07).

The leaves are matched for a batch at a time, by the matching index. Only the events that match one are looked at one
by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from wanderbus.errors import StorageError
from wanderbus.event import EventId
from wanderbus.patterns import Pattern, Seen
from wanderbus.patterns.bounds import Bounds
from wanderbus.pipeline.history.event_columns import table_of
from wanderbus.pipeline.history.queries import attributes_asked
from wanderbus.pipeline.history.spark_batches import Events, map_batches
from wanderbus.pipeline.source import ColumnError
from wanderbus.pipeline.source.record_columns import name_of
from wanderbus.pipeline.workers import settle

ROWS: Final = "key string, time_us bigint, offset bigint, seen binary"
"""Columns of the events that take part; ``seen`` is :class:`wanderbus.patterns.Seen` in msgpack."""

_NAMES: Final = ("server", "incarnation", "number")
_FURTHER: Final = ("at_us", "published_us", *_NAMES)
_SCHEMA: Final = pa.schema(
    [("key", pa.string()), ("time_us", pa.int64()), ("offset", pa.int64()), ("seen", pa.binary())]
)

_encode = msgspec.msgpack.Encoder().encode


class PatternText(NamedTuple):
    """A pattern as it travels to the workers, which compile it."""

    text: str
    bounds: Bounds
    children: tuple[tuple[str, tuple[str, ...]], ...]


def text_of(pattern: Pattern) -> PatternText:
    """Return a pattern as it travels."""
    return PatternText(pattern.text, pattern.bounds, tuple(pattern.children.items()))


@lru_cache(8)
def compiled(pattern: PatternText) -> Pattern:
    """Return the pattern; a process compiles it once."""
    return Pattern(pattern.text, pattern.bounds, dict(pattern.children))


def taking_part(events: Events, pattern: Pattern) -> DataFrame:
    """Return the events that take part in a pattern, with the columns :data:`ROWS`, in no order.

    ``events`` has a column ``at_us``, the time of receipt. Optional columns are ``published_us``, and ``server``,
    ``incarnation`` and ``number`` for the ids. A column ``record`` has all of them.
    :mod:`wanderbus.pipeline.history.event_columns` describes the others. :class:`ColumnError` for missing columns.
    """
    further = list(_FURTHER)
    if isinstance(events, DataFrame):
        further = [name for name in further if name in events.columns]
        if "at_us" not in further:
            raise ColumnError("a pattern needs the column 'at_us' of the events")
    wanted = text_of(pattern)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = compiled(wanted)
        settle()
        return (rows_of(own, batch) for batch in batches)

    return map_batches(events, _attributes_of(pattern), work, ROWS, further)


def rows_of(pattern: Pattern, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of a batch that take part, with the columns :data:`ROWS`."""
    found = seen_in(pattern, batch)
    columns: list[list[Any]] = [
        [each.key for each in found],
        [each.time_us for each in found],
        [each.offset for each in found],
        [_encode(each) for each in found],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def seen_in(pattern: Pattern, batch: pa.RecordBatch) -> list[Seen]:
    """Return the events of a batch that take part."""
    table = table_of(batch)
    leaves = pattern.leaves_of_table(table)
    rows = np.flatnonzero(leaves)
    if not len(rows):
        return []
    chosen = batch.take(pa.array(rows, pa.int64()))
    offsets, times = chosen.column("offset").to_pylist(), chosen.column("at_us").to_pylist()
    found: list[Seen] = []
    for row, bits, offset, at_us, (id, published_us) in zip(
        rows.tolist(), leaves[rows].tolist(), offsets, times, _names_in(chosen), strict=True
    ):
        seen = pattern.seen(bits, table.attributes(row), offset, id, at_us, published_us)
        if seen is not None:
            found.append(seen)
    return found


def _names_in(batch: pa.RecordBatch) -> Iterator[tuple[str, int | None]]:
    """Yield the id of each event, empty if the columns have none, and the time of its publication."""
    if "record" in batch.schema.names:
        for offset, payload in zip(*(batch.column(name).to_pylist() for name in ("offset", "record")), strict=True):
            try:
                id, published_us = name_of(payload)
            except msgspec.DecodeError as error:
                raise StorageError(f"record {offset} is not that of an event: {error}") from None
            yield str(id), published_us
        return
    names = batch.schema.names
    published = batch.column("published_us").to_pylist() if "published_us" in names else [None] * len(batch)
    if not set(_NAMES) <= set(names):
        yield from (("", published_us) for published_us in published)
        return
    parts = (batch.column(name).to_pylist() for name in _NAMES)
    for server, incarnation, number, published_us in zip(*parts, published, strict=True):
        yield str(EventId(server, incarnation, number)), published_us


def _attributes_of(pattern: Pattern) -> frozenset[str] | None:
    """Return the attributes that are asked for: by leaves, key, time, conditions and detections; None is all."""
    asked = attributes_asked(leaf.filter for leaf in pattern.leaves)
    if asked is None:
        return None
    timed = pattern.declaration.time_attribute
    return asked.union(pattern.keys, pattern.attributes, () if timed is None else (timed,))
