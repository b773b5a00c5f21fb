"""Arrow batches of events, in the forms that the pipeline has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from tests.published import published
from wanderbus.event import Event
from wanderbus.filters.evaluate import kind_of
from wanderbus.matching.rows import microseconds
from wanderbus.pipeline.source.variants import variant_of
from wanderbus.pipeline.tables.declared import column_of
from wanderbus.records import encode_record

Form = Literal["typed", "variant", "record"]
FORMS: tuple[Form, ...] = ("typed", "variant", "record")

_TYPES = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    datetime: pa.timestamp("us", "UTC"),
}


def batch_of(events: Sequence[Event], form: Form, first: int = 0) -> pa.RecordBatch:
    """Return events as a batch; typed columns have the values of the type that an attribute has first."""
    columns: dict[str, pa.Array] = {
        "offset": pa.array(range(first, first + len(events)), pa.int64()),
        "subject": pa.array([each.subject for each in events], pa.string()),
    }
    if form == "record":
        records = [encode_record(published(each, number=number)) for number, each in enumerate(events)]
        return pa.RecordBatch.from_pydict({**columns, "record": pa.array(records, pa.binary())})
    left: list[dict[str, Any]] = [dict(each.attributes) for each in events]
    if form == "typed":
        for name, kind in _first_types(events).items():
            if column := column_of(name):
                columns[column] = _array([_taken(attributes, name, kind) for attributes in left], kind)
    return pa.RecordBatch.from_pydict({**columns, "attributes": _variants(left)})


def _first_types(events: Sequence[Event]) -> dict[str, type]:
    types: dict[str, type] = {}
    for each in events:
        for name, value in each.attributes.items():
            if kind_of(value) is not None or isinstance(value, float):
                types.setdefault(name, type(value))
    return types


def _taken(attributes: dict[str, Any], name: str, kind: type) -> Any:
    return attributes.pop(name) if type(attributes.get(name)) is kind else None


def _array(values: Sequence[Any], kind: type) -> pa.Array:
    if kind is datetime:
        numbers = [None if value is None else microseconds(value) for value in values]
        return pa.array(numbers, pa.int64()).cast(_TYPES[datetime])
    return pa.array(values, _TYPES[kind])


def _variants(several: Sequence[dict[str, Any]]) -> pa.Array:
    pairs = [variant_of(each) if each else (b"", b"") for each in several]
    arrays = [pa.array([pair[place] for pair in pairs], pa.binary()) for place in range(2)]
    is_null = pa.array([not each for each in several], pa.bool_())
    return pa.StructArray.from_arrays(arrays, names=["value", "metadata"], mask=is_null)
