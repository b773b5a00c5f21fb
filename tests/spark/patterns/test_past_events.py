"""Patterns over past events on Spark find what the automaton alone finds (SPEC T-07)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.patterns.cases import occurrence, patterns, streams, text_of
from tests.patterns.enumerator import E, P
from tests.published import published
from tests.spark.history.batches import FORMS, Form
from tests.spark.patterns.streams import START_US, batch, expected, random_stream
from wanderbus.errors import StorageError
from wanderbus.event import EventId
from wanderbus.patterns import Detection, Pattern, PatternError, compile_pattern
from wanderbus.pipeline.history import EventFiles, Selection
from wanderbus.pipeline.patterns import detect, outcomes
from wanderbus.pipeline.patterns.detections import REFUSED, detection_of, found_in
from wanderbus.pipeline.patterns.taking_part import rows_of
from wanderbus.pipeline.source import FORMAT, ColumnError, log_schema
from wanderbus.records import Record, Started

LATE = """pattern late by k
match A: event (kind == a) then not C: event (kind == c) then B{1,2}: * (kind == b) where (B.v >= A.v)
within 3 seconds emit late with k = A.k, added = B.v - A.v"""
ABSENT = "pattern absent by k match A: event (kind == a) then not B: event (kind == b) within 2 seconds select every"
ALONE = "pattern alone match A: other (kind == a) then next B: other cesql[[kind LIKE 'b%']] within 1 minute"
PUBLISHED = (
    "pattern sent by k match A: event (kind == a) then B: event (kind == b) within 2 seconds on publication time"
)


def found(pattern: Pattern, batches: list[pa.RecordBatch], rows: int) -> list[Detection]:
    """Return the detections in batches, without Spark: classified, ordered, and matched some rows at a time."""
    each = pa.Table.from_batches([rows_of(pattern, one) for one in batches])
    ordered = each.sort_by([("time_us", "ascending"), ("offset", "ascending")])
    several = found_in(pattern, iter(ordered.to_batches(max_chunksize=rows)))
    return [detection_of(data) for one in several for data in one.column("detection").to_pylist() if data]


@settings(max_examples=150, deadline=None)
@given(patterns(), streams(), st.sampled_from(FORMS), st.integers(1, 5), st.integers(0, 9))
def test_rows_in_order_are_matched_as_events_are(pattern: P, events: list[E], form: Form, rows: int, cut: int) -> None:
    try:
        compiled = compile_pattern(text_of(pattern))
    except PatternError:
        assume(False)
    several = [occurrence(each) for each in events]
    batches = [batch(part, form) for part in (several[cut:], several[:cut]) if part]
    assume(batches)
    assert found(compiled, batches, rows) == expected(compiled, several)


@pytest.fixture
def log(write_log: Callable[..., Path]) -> Path:
    records: list[Record] = [Started(at_us=START_US, server="s", incarnation=1)]
    for each in random_stream(1_500, 7)[1:]:
        id = EventId("s", 1, each.offset)
        records.append(published(each.event, number=each.offset, id=id, at_us=each.received_us))
    return write_log(records, per_segment=400)


@pytest.mark.spark
@pytest.mark.parametrize("text", [LATE, ABSENT, ALONE, PUBLISHED])
def test_log_columns_and_files_have_the_detections_of_the_automaton(
    spark: SparkSession, log: Path, tmp_path: Path, text: str
) -> None:
    several, pattern = random_stream(1_500, 7)[1:], compile_pattern(text)
    schema = log_schema("offset", "at_us", "kind", "subject", "record")
    reading = spark.read.format(FORMAT).option("rowsPerPartition", "130")
    records = reading.schema(schema).load(str(log)).where("kind = 'published'")
    path = str(tmp_path / "events.parquet")
    pq.write_table(pa.Table.from_batches([batch(several, "typed")]), path, row_group_size=100)
    wanted = expected(pattern, several)
    assert len(wanted) > 20
    for events in (records, EventFiles(spark, [path])):
        rows = detect(events, pattern).collect()
        assert sorted(row.id for row in rows) == sorted(each.id for each in wanted)
        assert {row.id: detection_of(row.detection) for row in rows} == {each.id: each for each in wanted}
    row, one = rows[0], detection_of(rows[0].detection)
    assert (row.pattern, row.key, row.at_us) == (one.pattern, one.key, one.at_us)
    assert [tuple(each) for each in row.events] == [(each.step, each.offset, each.id) for each in one.events]


@pytest.mark.spark
def test_only_selected_events_take_part_and_decoded_columns_have_no_ids(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    several, pattern = random_stream(1_500, 7)[1:], compile_pattern(LATE)
    path = str(tmp_path / "events.parquet")
    pq.write_table(pa.Table.from_batches([batch(several, "variant")]), path)
    chosen = expected(pattern, several[299:800])
    part = EventFiles(spark, [path], Selection(from_offset=300, to_offset=801))
    assert sorted(row.id for row in detect(part, pattern).collect()) == sorted(each.id for each in chosen)
    schema = log_schema("offset", "at_us", "kind", "subject", "attributes")
    decoded = spark.read.format(FORMAT).schema(schema).load(str(log)).where("kind = 'published'")
    rows = detect(decoded, pattern).collect()
    places = sorted([each.offset for each in row.events] for row in rows)
    assert places == sorted([taken.offset for taken in each.events] for each in expected(pattern, several))
    assert {each.id for row in rows for each in row.events} == {""}


@pytest.mark.spark
def test_refusals_of_a_bound_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    several, pattern = random_stream(300, 3), compile_pattern(LATE, partial_matches_max=1)
    state, _ = pattern.advance(pattern.start(), pattern.classify(several), 2**62)
    path = str(tmp_path / "events.parquet")
    pq.write_table(pa.Table.from_batches([batch(several, "typed")]), path)
    rows = outcomes(EventFiles(spark, [path]), pattern).where("id is null").collect()
    assert sum(row.partial_full for row in rows) == state.counts.partial_full > 0
    assert not any(row[name] for row in rows for name in REFUSED if name != "partial_full")
    assert detect(EventFiles(spark, [path]), pattern).where("id is null").count() == 0


@pytest.mark.spark
def test_events_without_a_time_are_refused(spark: SparkSession) -> None:
    events = spark.createDataFrame([(1, "event")], "offset bigint, subject string")
    with pytest.raises(ColumnError, match="the column 'at_us'"):
        detect(events, compile_pattern(LATE))


def test_a_record_that_is_no_event_is_named() -> None:
    rows = batch(random_stream(30, 1), "record")
    rows = rows.set_column(2, "record", pa.array([b"\x80"] * 30, pa.binary()))
    with pytest.raises(StorageError, match="record 0 is not that of an event"):
        rows_of(compile_pattern(ALONE), rows)
