"""Events of an Arrow batch as a table for the index: from typed columns and a variant, or from records (SPEC T-04).

``offset`` and ``subject`` are columns of both forms. With a binary column ``record``, the attributes are read from
the bytes of records. Otherwise every column that is none of the table of events is an attribute, null in a row
without it, and the column ``attributes`` is a variant with all others. :mod:`wanderbus.pipeline.tables.declared`
names the columns of attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.matching.columns import ABSENT
from wanderbus.matching.rows import BOOLEAN, DATE, NUMBER
from wanderbus.matching.table import EventTable
from wanderbus.matching.table_columns import EXACT_MAX, Column, Doubles, Texts
from wanderbus.pipeline.source.record_columns import content_of
from wanderbus.pipeline.source.variant_values import attributes_of, instant_of
from wanderbus.pipeline.tables.declared import attribute_of

_encoder: Final = msgspec.msgpack.Encoder()

Attributes = Mapping[str, Any]


def columns_in_file(names: Sequence[str], asked: Set[str] | None, further: Sequence[str]) -> list[str]:
    """Return the columns to read of a file with these; a file may lack those of attributes that came later."""
    return [
        name
        for name in names
        if name in ("offset", "subject", "attributes", *further)
        or ((attribute := attribute_of(name)) is not None and (asked is None or attribute in asked))
    ]


def table_of(batch: pa.RecordBatch) -> EventTable:
    """Return the events of a batch."""
    subjects = _texts(batch.column("subject"))
    if "record" in batch.schema.names and pa.types.is_binary(batch.schema.field("record").type):
        several = _of_records(batch)
        names = {name for each in several for name in each}
        return EventTable(
            subjects, {name: [each.get(name, ABSENT) for each in several] for name in names}, several.__getitem__
        )
    arrays = {name: batch.column(place) for place, name in enumerate(batch.schema.names) if attribute_of(name)}
    columns = {str(attribute_of(name)): _column(array) for name, array in arrays.items()}
    more = _variants(batch) if "attributes" in batch.schema.names else None
    return EventTable(subjects, columns, _reader(arrays, more), more)


def encoded_events(table: EventTable, subjects: Sequence[str], rows: Sequence[int]) -> pa.Array:
    """Return some rows of a table as bytes of :class:`Event`, without times; ``subjects`` are those of the rows."""
    events = (Event(subject, table.attributes(row)) for subject, row in zip(subjects, rows, strict=True))
    return pa.array(map(_encoder.encode, events), pa.binary())


def _reader(arrays: Mapping[str, pa.Array], more: Sequence[Attributes | None] | None) -> Callable[[int], Attributes]:
    """Return a function that makes the attributes of a row."""
    by_attribute = [(str(attribute_of(name)), array) for name, array in arrays.items()]

    def attributes(row: int) -> Attributes:
        found = {name: _scalar(array[row]) for name, array in by_attribute if array[row].is_valid}
        return found if more is None else {**found, **(more[row] or {})}

    return attributes


def _of_records(batch: pa.RecordBatch) -> list[Attributes]:
    offsets = batch.column("offset")
    found: list[Attributes] = []
    for row, payload in enumerate(batch.column("record").to_pylist()):
        try:
            found.append(content_of(payload).attributes)
        except (msgspec.DecodeError, TypeError) as error:
            raise StorageError(f"record {offsets[row]} is not that of an event: {error}") from None
    return found


def _variants(batch: pa.RecordBatch) -> list[Attributes | None] | None:
    """Return the attributes of each row in the variant; None if no row has any."""
    column, offsets = batch.column("attributes"), batch.column("offset")
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if column.null_count == len(column):
        return None
    there = pc.indices_nonzero(column.is_valid())
    values, metadata = (column.field(name).take(there).to_pylist() for name in ("value", "metadata"))
    found: list[Attributes | None] = [None] * len(column)
    for row, value, names in zip(there.to_pylist(), values, metadata, strict=True):
        try:
            found[row] = attributes_of(value, names)
        except ValueError as error:
            raise StorageError(f"the attributes of event {offsets[row]} cannot be read: {error}") from None
    return found


def _column(array: pa.Array) -> Column:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(array)
    if pa.types.is_boolean(kind):
        return Doubles(BOOLEAN, array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.float64), _missing(array))
    if pa.types.is_floating(kind):
        return Doubles(NUMBER, array.to_numpy(zero_copy_only=False).astype(np.float64), _missing(array))
    if pa.types.is_integer(kind):
        return _integers(NUMBER, array) or _values(array)
    if pa.types.is_timestamp(kind):
        return _integers(DATE, array.cast(pa.int64())) or _values(array)
    return _values(array)


def _texts(array: pa.Array) -> Texts:
    encoded = array.dictionary_encode()
    return Texts(encoded.indices.fill_null(-1).to_numpy(), encoded.dictionary.to_pylist())


def _integers(kind: int, array: pa.Array) -> Doubles | None:
    """Return whole numbers as doubles, or None if they are not all exact."""
    numbers = array.fill_null(0).to_numpy()
    if len(numbers) and not -EXACT_MAX < int(numbers.min()) <= int(numbers.max()) < EXACT_MAX:
        return None
    return Doubles(kind, numbers.astype(np.float64), _missing(array))


def _missing(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _values(array: pa.Array) -> list[Any]:
    return [_scalar(each) if each.is_valid else ABSENT for each in array]


def _scalar(value: pa.Scalar) -> Any:
    """Return the value of an attribute; instants may be beyond the calendar of UTC."""
    if pa.types.is_timestamp(value.type):
        return instant_of(value.cast(pa.int64()).as_py())
    if pa.types.is_list(value.type):
        return [_scalar(each) for each in value.values]
    return value.as_py()
