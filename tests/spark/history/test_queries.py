"""Batches of events match the subscriptions that evaluation finds, in every form and every language."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from tests.filters import cesql_trees, trees
from tests.spark.history.batches import FORMS, Form, batch_of
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.interest.matcher import Matcher as BrokerMatcher
from wanderbus.errors import FilterError, StorageError
from wanderbus.event import Event
from wanderbus.filters import LANGUAGES, eci, parse, xml
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.filters.work import Sizes, most_units, work_of
from wanderbus.limits import EVENT_BYTES_MAX, EVENT_LIST_ITEMS_MAX
from wanderbus.matching import ScanIndex
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.pipeline.history import event_lookup
from wanderbus.pipeline.history.event_columns import table_of
from wanderbus.pipeline.history.matched_rows import matched_batch
from wanderbus.pipeline.history.queries import QueryMatcher, matcher_of, queries_of
from wanderbus.pipeline.history.spark_batches import columns_needed
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
    matched = matched_batch(QueryMatcher(queries_of(subscriptions)), batch).to_pydict()
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


def left_undecided(subscriptions: Sequence[Subscription], batch: pa.RecordBatch, work_max: int) -> list[set[str]]:
    """Subscriptions that the batch leaves undecided, by event."""
    matcher = QueryMatcher(queries_of(subscriptions, work_max))
    found: list[set[str]] = [set() for _ in range(len(batch))]
    decided, undecided = matcher.judged_in(table_of(batch))
    for row, query in zip(undecided.rows.tolist(), undecided.queries.tolist(), strict=True):
        found[row].add(subscriptions[query].id)
    assert not {*zip(*map(np.ndarray.tolist, decided), strict=True)} & {
        *zip(*map(np.ndarray.tolist, undecided), strict=True)
    }
    return found


def undecided_by_broker(
    subscriptions: Sequence[Subscription], events: Sequence[Event], work_max: int
) -> list[set[str]]:
    """Subscriptions that a broker with this bound leaves undecided, by event."""
    config = BrokerConfig("s", filter_work_max=work_max, user_event_filter_work_max=2**62, user_filter_work_per_s=1e18)
    work = FilterWork(config, lambda: 0)
    matcher = BrokerMatcher("numpy", work)
    for each in subscriptions:
        matcher.add(each, entries_of(each))
    found = []
    for event in events:
        matcher.matching(event)
        found.append(set(work.take_undecided(event)))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_history_leaves_undecided_what_the_broker_does(form: Form) -> None:
    wanted = [
        subscription("cesql", "S", "UPPER(CONCAT(Text, Text)) = 'X' OR N > 3", "cesql"),
        subscription("every", EVERY_SUBJECT, "LENGTH(Text) > 3", "cesql"),
        subscription("eci", "S", "any Text (contains 'xyz' or contains 'xxy') or Text == q"),
        subscription("cheap", "S", "N > 3"),
    ]
    texts = [10, 400, 1_000, 3_000, 9_000]
    events = [Event("ST"[number % 2], {"Text": "x" * size, "N": number}) for number, size in enumerate(texts * 2)]
    several = batch_of(events, form)
    seen: set[str] = set()
    for work_max in (300, 600, 1_000, 5_000, 500_000):
        left_out = left_undecided(wanted, several, work_max)
        assert left_out == undecided_by_broker(wanted, events, work_max)
        seen.update(*left_out)
    assert seen == {"cesql", "every", "eci"}
    assert not any(left_out)


def test_filters_that_stay_below_the_bound_for_every_event_are_not_counted() -> None:
    cheap = [subscription("1", "S", "any a (contains 'x' or > 3)"), subscription("2", "S", "b == x", "eci")]
    assert queries_of(cheap).works == {}
    dear = subscription("3", "S", " or ".join(f"any a contains '{number}'" for number in range(300)))
    assert set(queries_of([*cheap, dear]).works) == {2}


@settings(max_examples=50)
@given(trees.nodes(), trees.events())
def test_no_event_takes_more_work_than_the_most(root: Any, event: Event) -> None:
    work = work_of(root)
    assert work.units(Sizes(event.attributes)) <= most_units(work)


@pytest.mark.parametrize(
    "value",
    ["é" * (EVENT_BYTES_MAX // 2), "x" * EVENT_BYTES_MAX, ["x"] * EVENT_LIST_ITEMS_MAX, [1] * EVENT_LIST_ITEMS_MAX],
)
def test_the_largest_events_take_no_more_work_than_the_most(value: Any) -> None:
    for text, language in (("any a (contains 'x' or > 3)", "eci"), ("UPPER(UPPER(UPPER(a))) = 'X'", "cesql")):
        work = work_of(parse(text, language).root)
        assert work.units(Sizes({"a": value})) <= most_units(work)


def test_an_explanation_beyond_the_bound_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event("S", {"Text": "x" * 9_000})
    monkeypatch.setattr(event_lookup, "event_at", lambda events, offset: event)
    events: Any = None
    wanted = subscription("1", "S", "UPPER(Text) = 'X'", "cesql")
    found = event_lookup.explain(events, wanted, 7, 1_000)
    assert (found.matches, found.predicates) == (None, ())
    assert found.undecided == work_of(parse(wanted.expression, "cesql").root).units(Sizes(event.attributes)) > 1_000
    assert event_lookup.explain(events, wanted, 7).matches is False
