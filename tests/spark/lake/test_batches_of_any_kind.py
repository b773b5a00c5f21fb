"""Any schemas and any batches: late, repeated, overlapping. The lake has each event once, as it was.

A plain model says what each event's row must be. Columns and variant together have exactly the published attributes.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.published import published
from wanderbus.errors import StorageError
from wanderbus.event import DeclaredAttribute, Event, EventId, Scalar, TypeName
from wanderbus.pipeline.lake import Ingestion, reconcile, table
from wanderbus.records import Published, Record, SchemaDeclared, Started, decode_record, encode_record
from wanderbus.runtime.log.event_log import EventLog

pytestmark = pytest.mark.spark

START_US = 1_700_000_000_000_000
EXAMPLES = 3
SUBJECTS = ("Departure", "Arrival / É", "Price")
NAMES = ("Row", "Delay", "Note")
PYTHON: Mapping[TypeName, type] = {"String": str, "Integer": int, "Double": float, "Boolean": bool}
WIDER: Mapping[tuple[TypeName, TypeName], TypeName] = {("Integer", "Double"): "Double", ("Double", "Integer"): "Double"}

values: st.SearchStrategy[Scalar] = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(), st.text(max_size=3)
)
events = st.builds(
    lambda subject, attributes: (subject, attributes),
    st.sampled_from(SUBJECTS),
    st.dictionaries(st.sampled_from((*NAMES, "Other")), values, max_size=4),
)
declarations = st.builds(
    lambda subject, attributes: (subject, attributes, None),
    st.sampled_from(SUBJECTS),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(tuple(PYTHON)), min_size=1, max_size=3),
)
spans = st.tuples(st.floats(0, 1), st.floats(0, 1))
Types = dict[str, dict[str, TypeName]]


class Model:
    """The lake as plain Python: how far it is, the columns' types, and the declarations that each event was read by."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records
        self.end = 0
        self._declared: Types = {}
        self.columns: dict[str, TypeName] = {}
        self._read_by: dict[int, Types] = {}

    def store(self, end: int) -> None:
        """Take the records up to ``end``; a column that becomes wider has every event read again."""
        for record in self._records[self.end : end]:
            if isinstance(record, SchemaDeclared):
                self._declared = {**self._declared, record.subject: {a.name: a.type for a in record.attributes}}
        before = dict(self.columns)
        for name, declared in ((n, t) for types in self._declared.values() for n, t in types.items()):
            old = self.columns.setdefault(name, declared)
            self.columns[name] = WIDER.get((old, declared), old)
        is_widened = any(self.columns[name] != old for name, old in before.items())
        read = range(0 if is_widened else self.end, max(end, self.end))
        self._read_by |= dict.fromkeys(read, self._declared)
        self.end = max(end, self.end)

    def has_column(self, offset: int, subject: str, name: str, value: Scalar) -> bool:
        """Return whether an attribute's value must be in its column."""
        declared = self._read_by[offset].get(subject, {}).get(name)
        column = self.columns.get(name)
        if declared is None or column is None or column not in (declared, WIDER.get((column, declared))):
            return False
        return type(value) is PYTHON[column] or (column == "Double" and type(value) is int)


def written(directory: Path, items: list[Any]) -> list[Record]:
    """Write a log of events and declarations, in short segments; return its records."""
    records: list[Record] = [Started(at_us=0, server="wb", incarnation=7)]
    for number, item in enumerate(items, 1):
        if len(item) == 3:
            attributes = tuple(DeclaredAttribute(name, kind) for name, kind in item[1].items())
            records.append(SchemaDeclared(at_us=0, subject=item[0], version=number, attributes=attributes, by="a@b"))
        else:
            records.append(published(Event(*item), id=EventId("wb", 7, number), number=number))
    log = EventLog.open(directory, segment_bytes_max=600)
    for offset, record in enumerate(records):
        log.append([(offset, START_US + offset, encode_record(record))])
    log.sync()
    log.close()
    return [decode_record(encode_record(record)) for record in records]


def store(spark: SparkSession, log: Path, lake: Path, first: int, end: int) -> None:
    Ingestion(spark, log, lake, small_files_max=2).store(first, end)


def compare(spark: SparkSession, lake: Path, records: list[Record], model: Model) -> None:
    """Compare every row of the events with the model."""
    found = {row["offset"]: row.asDict() for row in table(spark, lake, "events").collect()}
    wanted = {offset: each for offset, each in enumerate(records[: model.end]) if isinstance(each, Published)}
    assert sorted(found) == list(wanted)
    for offset, record in wanted.items():
        event, row = record.event, found[offset]
        variant = row["attributes"].toPython() if row["attributes"] is not None else {}
        for name, value in event.attributes.items():
            note(f"{offset} {event.subject} {name} {value!r}: {row.get(name)!r} {variant.get(name)!r}")
            if model.has_column(offset, event.subject, name, value):
                assert row[name] == (float(value) if type(row[name]) is float else value)
                is_widened = type(value) is int and model.columns[name] == "Double"
                assert (variant[name] == value and type(variant[name]) is int) if is_widened else name not in variant
            else:
                assert row.get(name) is None
                assert variant[name] == value
        assert all(row.get(name) is None for name in set(NAMES) - set(event.attributes))
        assert set(variant) <= set(event.attributes)


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    items=st.lists(st.one_of(events, events, declarations), min_size=6, max_size=20),
    batches=st.lists(spans, min_size=2, max_size=3),
)
def test_the_lake_is_that_of_a_plain_model(spark: SparkSession, items: list[Any], batches: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log, lake = Path(directory, "log"), Path(directory, "lake")
        records = written(log, items)
        model = Model(records)
        size = len(records)
        spans = [(int(a * size * 0.7), size - int(b * size * 0.5)) for a, b in batches]
        for first, end in itertools.chain(spans, [(0, size), (0, size)]):
            if first >= end:
                continue
            note(f"records {first} to {end}, the lake has {model.end}")
            if first > model.end:
                with pytest.raises(StorageError, match=f"the checkpoint is at {first}"):
                    store(spark, log, lake, first, end)
            else:
                store(spark, log, lake, first, end)
                model.store(end)
        compare(spark, lake, records, model)
        assert not any(segment.differs for segment in reconcile(spark, log, lake))
