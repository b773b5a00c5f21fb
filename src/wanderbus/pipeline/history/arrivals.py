"""Events that arrived at a server from the others of its domain, as events of that server's log (SPEC T-04, K-02)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from wanderbus.errors import StorageError
from wanderbus.pipeline.source.partial_records import EventRecord, Subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS: Final = "offset bigint, at_us bigint, subject string, record binary"
_records: Final = msgspec.msgpack.Decoder(EventRecord[Subject])


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
        offsets, times, records = (batch.column(name) for name in ("offset", "at_us", "record"))
        subjects = []
        for row, payload in enumerate(records.to_pylist()):
            try:
                subjects.append(_records.decode(payload).receipt.event.subject)
            except (msgspec.DecodeError, TypeError) as error:
                raise StorageError(f"record {offsets[row]} is not that of an arrived event: {error}") from None
        columns = [offsets, times, pa.array(subjects, pa.string()), records]
        yield pa.RecordBatch.from_arrays(columns, names=["offset", "at_us", "subject", "record"])
