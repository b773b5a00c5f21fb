"""Detections of a pattern in past events, by the same automaton as live (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from wanderbus.patterns import NEVER_US, Counts, Detection, Pattern, Seen
from wanderbus.pipeline.history.spark_batches import Events
from wanderbus.pipeline.patterns.taking_part import compiled, taking_part, text_of
from wanderbus.pipeline.workers import settle

DETECTIONS: Final = (
    "id string, pattern string, key string, at_us bigint, "
    "events array<struct<step: string, offset: bigint, id: string>>, detection binary"
)
"""Columns of detections; ``detection`` is :class:`wanderbus.patterns.Detection` in msgpack."""

OUTCOMES: Final = f"{DETECTIONS}, waiting_full bigint, partial_full bigint, long bigint, left_out bigint"

REFUSED: Final = ("waiting_full", "partial_full", "long", "left_out")
"""Counts of :class:`wanderbus.patterns.Counts` that say that detections may be missing."""

_TAKEN: Final = pa.struct([("step", pa.string()), ("offset", pa.int64()), ("id", pa.string())])
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "pattern", "key")),
        ("at_us", pa.int64()),
        ("events", pa.list_(_TAKEN)),
        ("detection", pa.binary()),
        *((name, pa.int64()) for name in REFUSED),
    ]
)

_encode = msgspec.msgpack.Encoder().encode
_seen = msgspec.msgpack.Decoder(Seen)
_detections = msgspec.msgpack.Decoder(Detection)


def detect(events: Events, pattern: Pattern) -> DataFrame:
    """Return the detections of a pattern in past events, with the columns :data:`DETECTIONS`, in no order.

    They are those of ``pattern.advance`` with all events and the end of the stream: no event is late, in whatever order
    they come. The time of receipt is that of the record, ``at_us``. ``events`` is as for :func:`taking_part`.
    """
    return outcomes(events, pattern).where("id is not null").drop(*REFUSED)


def outcomes(events: Events, pattern: Pattern) -> DataFrame:
    """Return the same with the columns :data:`OUTCOMES`, and rows without an id that count what a bound refused."""
    wanted = text_of(pattern)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = compiled(wanted)
        settle()
        return found_in(own, batches)

    ordered = taking_part(events, pattern).repartition("key").sortWithinPartitions("time_us", "offset")
    return ordered.select("time_us", "seen").mapInArrow(work, OUTCOMES)


def found_in(pattern: Pattern, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the detections in all events of some keys, which are in order of time and offset."""
    state = pattern.start()
    for batch in batches:
        if not len(batch):
            continue
        seen = map(_seen.decode, batch.column("seen").to_pylist())
        state, detections = pattern.advance(state, seen, batch.column("time_us")[-1].as_py())
        yield batch_of(detections)
    state, detections = pattern.advance(state, (), NEVER_US)
    yield batch_of(detections, state.counts)


def batch_of(detections: Sequence[Detection], counts: Counts | None = None) -> pa.RecordBatch:
    """Return detections as a batch, with a row more if ``counts`` has refusals."""
    rows: list[dict[str, Any]] = [
        {
            "id": each.id,
            "pattern": each.pattern,
            "key": each.key,
            "at_us": each.at_us,
            "events": [msgspec.structs.asdict(taken) for taken in each.events],
            "detection": _encode(each),
        }
        for each in detections
    ]
    refused = {} if counts is None else {name: getattr(counts, name) for name in REFUSED}
    if any(refused.values()):
        rows.append(refused)
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def detection_of(data: bytes) -> Detection:
    """Return the detection of the column ``detection``."""
    return _detections.decode(data)
