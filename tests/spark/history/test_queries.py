"""Batches of events match the subscriptions that evaluation finds, in every form and every language."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from tests.filters import cesql_trees, trees
from tests.spark.history.batches import FORMS, Form, batch_of
from wanderbus.errors import FilterError, StorageError
from wanderbus.event import Event
from wanderbus.filters import LANGUAGES, eci, parse, xml
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.matching import ScanIndex
from wanderbus.pipeline.history.event_columns import columns_needed, table_of
from wanderbus.pipeline.history.matches import matched_batch
from wanderbus.pipeline.history.queries import Matcher, matcher_of, queries_of
from wanderbus.pipeline.source import ColumnError
from wanderbus.protocol import encode_event
from wanderbus.subscription import EVERY_SUBJECT, Subscription


def subscription(identity: str, subject: str, expression: str, language: str = "eci", **more: Any) -> Subscription:
    return Subscription(identity, "sip:u@d", "s", subject, expression, language=language, **more)


def expected(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> list[list[str]]:
    """Matches of the reference, by event."""
    index, every = ScanIndex(), ScanIndex()
    for each in subscriptions:
        chosen = every if each.subject == EVERY_SUBJECT else index
        chosen.add(each.id, each.subject, parse(each.expression, each.language))
    of_every = every.match([Event(EVERY_SUBJECT, each.attributes) for each in events])
    return [sorted(some + others) for some, others in zip(index.match(events), of_every, strict=True)]


def found(subscriptions: Sequence[Subscription], batch: pa.RecordBatch) -> list[list[str]]:
    """Matches of the batch, by event."""
    matched = matched_batch(Matcher(queries_of(subscriptions)), batch).to_pydict()
    by_offset = dict(zip(matched["offset"], matched["subscriptions"], strict=True))
    assert all(by_offset.values())
    return [sorted(by_offset.get(offset, [])) for offset in batch.column("offset").to_pylist()]


def is_encodable(event: Event) -> bool:
    """Return whether an event can be published: all its dates are of the calendar in UTC."""
    try:
        encode_event(event)
    except OverflowError:
        return False
    return True


def expressions(language: str) -> st.SearchStrategy[str]:
    if language == "cesql":
        seeds = st.integers(0, 2**32)
        return seeds.map(lambda seed: write_cesql(cesql_trees.random_expression(random.Random(seed))))
    write = {"eci": eci.write, "xml": xml.write}[language]
    return trees.nodes().map(write)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=25)
@given(data=st.data())
def test_batches_match_as_evaluation_does(language: str, form: Form, data: st.DataObject) -> None:
    texts = data.draw(st.lists(expressions(language), min_size=1, max_size=6))
    subjects = [data.draw(st.sampled_from(["S", "T", EVERY_SUBJECT])) for _ in texts]
    subscriptions = [
        subscription(str(number), subject, text, language)
        for number, (subject, text) in enumerate(zip(subjects, texts, strict=True))
    ]
    if language == "cesql":
        names = st.sampled_from(cesql_trees.NAMES)
        attributes = st.dictionaries(names, st.sampled_from(cesql_trees.VALUES), max_size=6)
        possible = attributes.map(lambda each: Event("S", each))
    else:
        possible = trees.events().filter(is_encodable)
    events = data.draw(st.lists(possible, min_size=1, max_size=6))
    several = [Event("TS"[number % 2], each.attributes) for number, each in enumerate(events)]
    assert found(subscriptions, batch_of(several, form, first=7)) == expected(subscriptions, several)


def test_an_attribute_with_the_name_of_a_column_has_its_own() -> None:
    named = {"user": "ann", "user_": "bob", "Date": "today", "offset": 3, "attributes": "x", "kind": "k", "record": "r"}
    event = Event("S", {**named, "plain": True})
    batch = batch_of([event], "typed")
    assert {"user_", "user__", "Date_", "offset_", "attributes_"} <= set(batch.schema.names)
    wanted = [
        subscription("a", "S", "user == ann and user_ == bob and Date == today and offset == 3"),
        subscription("b", "S", "attributes == x and kind == k and record == r and plain == true"),
    ]
    assert found(wanted, batch) == [["a", "b"]]
    assert table_of(batch).attributes(0) == event.attributes


def test_the_attributes_of_a_row_are_those_of_its_event() -> None:
    instant = datetime(2026, 11, 21, 10, tzinfo=UTC)
    events = [
        Event("S", {"t": "x", "n": 2**63 - 1, "d": 0.5, "b": False, "when": instant, "list": ["a", 1]}),
        Event("S", {"t": 1, "n": "text"}),
        Event("S", {}),
    ]
    for form in FORMS:
        table = table_of(batch_of(events, form))
        assert [table.attributes(row) for row in range(3)] == [dict(each.attributes) for each in events]
        part = table.part(1, 3)
        assert [part.attributes(row) for row in range(2)] == [dict(each.attributes) for each in events[1:]]


def test_only_the_columns_that_filters_name_are_needed() -> None:
    schema = StructType(
        [
            StructField("offset", LongType()),
            *(StructField(name, StringType()) for name in ("subject", "a", "b", "date")),
        ]
    )
    plain = queries_of([subscription("1", "S", "a == x or a prefix 'y'")])
    assert columns_needed(schema, plain.asked) == ["offset", "subject", "a"]
    any_of_them = queries_of([subscription("1", "S", "LENGTH(a) > 1", "cesql")])
    assert columns_needed(schema, any_of_them.asked) == ["offset", "subject", "a", "b"]


def test_columns_that_no_event_has_are_refused() -> None:
    offset, subject = StructField("offset", LongType()), StructField("subject", StringType())
    for fields, said in (
        ([subject], "need a column 'offset'"),
        ([offset, subject, StructField("price", DecimalType())], r"the column 'price' is decimal\(10,0\)"),
        ([offset, subject, StructField("attributes", StringType())], "'attributes' must be a variant"),
    ):
        with pytest.raises(ColumnError, match=said):
            columns_needed(StructType(fields), None)


def test_errors_name_the_subscription_and_the_event() -> None:
    with pytest.raises(FilterError, match="subscription 7: "):
        queries_of([subscription("7", "S", "a ==")])
    batch = batch_of([Event("S", {"a": 1})], "record", first=5)
    damaged = batch.set_column(2, "record", pa.array([b"?"], pa.binary()))
    with pytest.raises(StorageError, match="record 5 is not that of an event"):
        table_of(damaged)
    batch = batch_of([Event("S", {"a": 1})], "variant", first=6)
    cut = pa.StructArray.from_arrays([pa.array([b"\x02\x05"]), pa.array([b"\x01\x00"])], ["value", "metadata"])
    with pytest.raises(StorageError, match="the attributes of event 6 cannot be read: it ends too early"):
        table_of(batch.set_column(2, "attributes", cut))


def test_a_process_makes_an_index_once() -> None:
    one, other = (queries_of([subscription("1", "S", "")]) for _ in range(2))
    matcher = matcher_of(one)
    assert matcher_of(one) is matcher
    assert matcher_of(other) is not matcher


def test_no_subscriptions_match_nothing() -> None:
    assert found([], batch_of([Event("S", {})], "typed")) == [[]]
