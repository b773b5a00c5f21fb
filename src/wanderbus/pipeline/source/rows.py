"""Rows of records, and the Arrow batches made of them: filtered, and decoded as far as necessary (SPEC T-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from wanderbus.pipeline.source.columns import DECODED
from wanderbus.pipeline.source.pushdown import TEXT_COLUMNS, Pushed
from wanderbus.pipeline.source.record_columns import Head, content_of, heads_of, is_published, json_of, values_of
from wanderbus.pipeline.source.variants import variant_of

Locate = Callable[[int], tuple[str, int | None]]
"""Function that returns the path and the byte of a record, if it has one, by its place in the group that was read."""


class RecordRows:
    """A group of records, from which the columns of a batch are made.

    ``times`` are those of the frames; without them the records' own are used. A damaged record has no payload.
    ``errors`` has the reason for each record that cannot be read, by its row.
    """

    def __init__(
        self,
        offsets: Sequence[int],
        times: Sequence[int | None] | None,
        payloads: Sequence[bytes | None],
        locate: Locate,
    ) -> None:
        self.offsets = offsets
        self.payloads = payloads
        self.errors: dict[int, str] = {}
        self._times = times
        self._locate = locate
        self._places: Sequence[int] = range(len(payloads))
        self._heads: list[Head] | None = None
        if None in payloads:
            lost = (row for row, payload in enumerate(payloads) if payload is None)
            self.errors = dict.fromkeys(lost, "the frame is damaged")

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def heads(self) -> list[Head]:
        """Heads of the records, decoded when first asked for."""
        if self._heads is None:
            self._heads = heads_of(self.payloads, self.errors)
        return self._heads

    def column(self, name: str) -> Sequence[Any]:
        """Return a column of numbers or texts."""
        if name == "offset":
            return self.offsets
        if name == "at_us":
            return [head.at_us for head in self.heads] if self._times is None else self._times
        return values_of(self.heads, name)

    def where(self, row: int) -> tuple[str, int | None]:
        """Return the path and the byte of a record."""
        return self._locate(self._places[row])

    def filter(self, pushed: Pushed) -> None:
        """Keep the rows that meet all conditions; those that need no decoding are checked first."""
        is_cheap = {"offset"} if self._times is None else {"offset", "at_us"}
        for condition in sorted(pushed.conditions, key=lambda each: each.column not in is_cheap):
            self._keep(condition.mask(self.column(condition.column)))

    def _keep(self, mask: Sequence[bool]) -> None:
        kept = list(compress(range(len(mask)), mask))
        if len(kept) == len(mask):
            return
        self.errors = {new: self.errors[old] for new, old in enumerate(kept) if old in self.errors}
        self.offsets, self.payloads = _taken(self.offsets, kept), _taken(self.payloads, kept)
        self._places = _taken(self._places, kept)
        self._times = None if self._times is None else _taken(self._times, kept)
        self._heads = None if self._heads is None else _taken(self._heads, kept)


class BatchBuilder:
    """Builder of Arrow batches with the columns of a schema."""

    def __init__(self, schema: StructType) -> None:
        names = set(schema.names)
        self._names = tuple(schema.names)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._needs_heads = bool(names & (TEXT_COLUMNS | {"error", *DECODED}))
        self._needs_contents = bool(names & {"published_us", "attributes"})
        self._needs_texts = "json" in names

    def batch(self, rows: RecordRows) -> pa.RecordBatch:
        """Return the batch of these rows; a record that cannot be decoded becomes an error of its row."""
        columns: dict[str, list[Any]] = {}
        if self._needs_heads:
            _ = rows.heads
        if self._needs_contents:
            columns["published_us"], columns["attributes"] = _contents(rows)
        if self._needs_texts:
            columns["json"] = _texts(rows)
        arrays = [self._array(rows, field, columns) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def numbered(self, first: int, end: int) -> pa.RecordBatch:
        """Return the batch of the offsets ``first..end-1``, if they are all that is asked for."""
        return pa.RecordBatch.from_arrays([pa.array(np.arange(first, end), pa.int64())], schema=self._schema)

    def _array(self, rows: RecordRows, field: pa.Field, decoded: dict[str, list[Any]]) -> pa.Array:
        match field.name:
            case "error" if not rows.errors:
                return pa.nulls(len(rows), field.type)
            case "error":
                return pa.array([_error(rows, row) for row in range(len(rows))], field.type)
            case "record":
                return pa.array(rows.payloads, field.type)
            case "attributes":
                return variant_array(decoded["attributes"], field.type)
            case name if name in decoded:
                return pa.array(decoded[name], field.type)
            case name:
                return pa.array(rows.column(name), field.type)


def _taken(values: Sequence[Any], kept: Sequence[int]) -> list[Any]:
    return [values[place] for place in kept]


def _error(rows: RecordRows, row: int) -> dict[str, str | int | None] | None:
    if row not in rows.errors:
        return None
    path, byte = rows.where(row)
    return {"reason": rows.errors[row], "path": path, "byte": byte}


def _contents(rows: RecordRows) -> tuple[list[int | None], list[tuple[bytes, bytes] | None]]:
    times: list[int | None] = []
    variants: list[tuple[bytes, bytes] | None] = []
    for row, (head, payload) in enumerate(zip(rows.heads, rows.payloads, strict=True)):
        at_us, variant = None, None
        if payload is not None and is_published(head):
            try:
                content = content_of(payload)
                at_us, variant = content.published_us, variant_of(content.attributes)
            except (msgspec.DecodeError, TypeError) as error:
                rows.errors[row] = f"not an event: {error}"
        times.append(at_us)
        variants.append(variant)
    return times, variants


def _texts(rows: RecordRows) -> list[str | None]:
    texts: list[str | None] = []
    for row, payload in enumerate(rows.payloads):
        text = None
        if payload is not None and row not in rows.errors:
            try:
                text = json_of(payload)
            except msgspec.DecodeError as error:
                rows.errors[row] = f"not a record: {error}"
        texts.append(text)
    return texts


def variant_array(values: Sequence[tuple[bytes, bytes] | None], kind: pa.StructType) -> pa.Array:
    """Return the Arrow form of variants, each as value and metadata; ``kind`` is the type that Spark gives them."""
    fields = [kind.field(place) for place in range(kind.num_fields)]
    parts = {"value": 0, "metadata": 1}
    arrays = [
        pa.array([b"" if value is None else value[parts[field.name]] for value in values], field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(
        arrays, fields=fields, mask=pa.array([value is None for value in values], pa.bool_())
    )
