"""Rows that are decoded from records: in columns, and as batches of a table (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wanderbus.pipeline.source.rows import variant_array

MISFITS: Final = "_misfits"
"""Column of decoded events with the number of declared attributes whose value has another type."""

_DATE: Final = "date"
_DAY_US: Final = 86_400_000_000

Columns = dict[str, Sequence[Any]]
Rows = Mapping[str, Columns]
"""Rows of tables, by the table's name."""

Decode = Callable[["Payloads"], Rows]


class Payloads(NamedTuple):
    """Readable records in columns."""

    offsets: Sequence[int]
    times: Sequence[int]
    kinds: Sequence[str]
    records: Sequence[bytes]

    def part(self, begin: int, end: int) -> Payloads:
        """Return some of the records, by their places."""
        own = slice(begin, end)
        return Payloads(self.offsets[own], self.times[own], self.kinds[own], self.records[own])


class Decoding(NamedTuple):
    """The maker of a decoder, and the kinds of record that it decodes.

    Each kind has the name of the table that a record is missing in when it cannot be decoded.
    """

    kinds: Mapping[str, str]
    make: Callable[[], Decode]


def batch_of(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of a table; those that are not given have no values.

    Raises ``OverflowError`` or ``pyarrow.ArrowException`` for a value that its column cannot have.
    """
    size = len(columns["offset"])
    arrays = [_array(columns, field, size) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(columns: Columns, field: pa.Field, size: int) -> pa.Array:
    values = columns.get(field.name)
    if values is None and field.name == _DATE:
        return _dates(columns["at_us"])
    if values is None:
        return pa.nulls(size, field.type)
    if pa.types.is_struct(field.type):
        return variant_array(values, field.type)
    return pa.array(values, field.type)


def _dates(times: Sequence[int]) -> pa.Array:
    return pa.array(np.asarray(times, np.int64) // _DAY_US, pa.int32()).cast(pa.date32())
