"""Events that arrived at a server from the others of its domain, as events of that server's log (SPEC T-04, K-02)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from wanderbus.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS: Final = "offset bigint, at_us bigint, received_us bigint, subject string, record binary"
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("offset", "at_us", "received_us")),
        ("subject", pa.string()),
        ("record", pa.binary()),
    ]
)
_encoder: Final = msgspec.msgpack.Encoder()


class _Arrival(msgspec.Struct, gc=False):
    event: msgspec.Raw
    received_us: int | None = None


class _Arrived(msgspec.Struct, gc=False):
    arrival: _Arrival


class _Event(msgspec.Struct, gc=False):
    subject: str


_arrivals: Final = msgspec.msgpack.Decoder(_Arrived)
_events: Final = msgspec.msgpack.Decoder(_Event)


def arrivals(records: DataFrame) -> DataFrame:
    """Return the events that arrived, by offset and time of their arrival, with the columns that matching needs.

    ``records`` has the columns ``offset``, ``at_us``, ``kind`` and ``record``, as the source and the table of records
    have them. For the domain as a whole these are no further events: the server that accepted one has its record.
    """
    chosen = records.where("kind = 'arrived'").select("offset", "at_us", "record")
    return chosen.mapInArrow(arrived_events, _COLUMNS)


def arrived_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events in batches of records of arrivals; :class:`StorageError` for a record that is none."""
    for batch in batches:
        offsets, times = batch.column("offset"), batch.column("at_us")
        found = []
        for row, payload in enumerate(batch.column("record").to_pylist()):
            try:
                found.append(_arrivals.decode(payload).arrival)
            except (msgspec.DecodeError, TypeError) as error:
                raise StorageError(f"record {offsets[row]} is not that of an arrived event: {error}") from None
        received = [
            at_us if each.received_us is None else each.received_us
            for at_us, each in zip(times.to_pylist(), found, strict=True)
        ]
        columns = [
            offsets,
            times,
            pa.array(received, pa.int64()),
            pa.array([_events.decode(each.event).subject for each in found], pa.string()),
            pa.array([_encoder.encode({"acceptance": {"event": each.event}}) for each in found], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
