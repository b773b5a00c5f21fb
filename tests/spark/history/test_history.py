"""History in Spark: matches, counts, samples, replays and explanations of the events of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from tests.published import published
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.pipeline.history import (
    SubscriptionVersion,
    UserAbsence,
    absences_of,
    changes_in,
    count,
    explain,
    match,
    replay,
    sample,
    versions_of,
)
from wanderbus.pipeline.source import FORMAT, log_schema
from wanderbus.records import Changed, Left, Record, Started, StatusChanged, Subscribed, Unsubscribed
from wanderbus.subscription import Frequency, Interval, Subscription

pytestmark = pytest.mark.spark

USER = "sip:ann@example.org"
EVENTS = 60


def subscription(identity: str, expression: str, subject: str = "Departure", language: str = "eci") -> Subscription:
    return Subscription(identity, USER, "default", subject, expression, language=language)


SUBSCRIPTIONS = (
    subscription("late", "Delay > 30 and Dest == IAH"),
    subscription("cesql", "Dest LIKE 'I%' AND LENGTH(Dest) = 3", language="cesql"),
    subscription("every", "Delay < 5", "*"),
    subscription("never", "Dest == XXX"),
)


def event(number: int) -> Event:
    dest = ("IAH", "MIA", "ORD")[number % 3]
    attributes = {"Dest": dest, "Delay": number if number % 2 else float(number), "Tags": ["a", dest]}
    return Event("Departure" if number % 5 else "Arrival", attributes)


def at_us(number: int) -> int:
    return 1_700_000_000_000_000 + number * 1_000_000


@pytest.fixture
def log(write_log: Callable[..., Path]) -> Path:
    """A log of a subscription's life, some devices, and events."""
    changes: list[Record] = [
        Started(at_us=at_us(0), server="wb", incarnation=1),
        Subscribed(at_us=at_us(0), subscription=SUBSCRIPTIONS[2], number=1),
        StatusChanged(at_us=at_us(0), user=USER, device="phone", status="CONNECTED", reason=""),
    ]
    later: list[Record] = [
        Changed(at_us=at_us(30), subscription=subscription("every", "Delay < 50", "*")),
        Left(at_us=at_us(30), user=USER, session="default", device="phone", reason="asked"),
    ]
    end: list[Record] = [Unsubscribed(at_us=at_us(50), user=USER, subscription="every", reason="asked")]
    events = [published(event(number), number=number, at_us=at_us(number)) for number in range(EVENTS)]
    return write_log([*changes, *events[:30], *later, *events[30:50], *end, *events[50:]], per_segment=25)


def offset_of(number: int) -> int:
    return number + 3 + 2 * (number >= 30) + (number >= 50)


@pytest.fixture
def records(spark: SparkSession, log: Path) -> DataFrame:
    schema = log_schema("offset", "at_us", "kind", "subject", "record")
    return spark.read.format(FORMAT).schema(schema).option("rowsPerPartition", "20").load(str(log))


@pytest.fixture
def events(records: DataFrame) -> DataFrame:
    return records.where("kind = 'published'")


def expected(subscriptions: Sequence[Subscription]) -> dict[str, list[int]]:
    """Offsets of the events that each subscription matches."""
    return {
        each.id: [
            offset_of(number)
            for number in range(EVENTS)
            if each.subject in ("*", event(number).subject)
            and parse(each.expression, each.language).matches(event(number))
        ]
        for each in subscriptions
    }


def test_events_match_in_one_pass(spark: SparkSession, events: DataFrame, log: Path) -> None:
    wanted = expected(SUBSCRIPTIONS)
    columns = log_schema("offset", "kind", "subject", "attributes")
    decoded = spark.read.format(FORMAT).schema(columns).load(str(log)).where("kind = 'published'").drop("kind")
    typed = decoded.withColumn("Delay", F.expr("try_variant_get(attributes, '$.Delay', 'double')"))
    for form in (events, decoded, typed):
        rows = match(form, SUBSCRIPTIONS).collect()
        found = {each.id: sorted(row.offset for row in rows if each.id in row.subscriptions) for each in SUBSCRIPTIONS}
        assert found == wanted
    assert {key for key, offsets in wanted.items() if offsets} == {"late", "cesql", "every"}


def test_counts_and_samples_are_of_the_matches(events: DataFrame) -> None:
    wanted = expected(SUBSCRIPTIONS)
    counted = {row.subscription: row.events for row in count(events, SUBSCRIPTIONS).collect()}
    assert counted == {key: len(offsets) for key, offsets in wanted.items()}
    samples = [sample(divided, SUBSCRIPTIONS, 4, seed=1).collect() for divided in (events, events.coalesce(1))]
    drawn = [{(row.subscription, row.offset) for row in rows} for rows in samples]
    assert drawn[0] == drawn[1]
    assert all(offset in wanted[identity] for identity, offset in drawn[0])
    sizes = {key: sum(identity == key for identity, _ in drawn[0]) for key in wanted}
    assert sizes == {key: min(4, len(offsets)) for key, offsets in wanted.items()}


def test_a_replay_follows_lifetimes_and_restrictions(records: DataFrame, events: DataFrame) -> None:
    changes = changes_in(records)
    live = {row.offset for row in replay(events, versions_of(changes), absences_of(changes)).collect()}
    assert live == {offset_of(each) for each in range(50) if each < 5 or each >= 30}
    period = Frequency(10.0, "away")
    until = Interval(at_us(0), at_us(45))
    one = Subscription("1", USER, "default", "*", "", restrictions=(period, until))
    rows = replay(events, [SubscriptionVersion(one)], [UserAbsence(USER, offset_of(20))]).collect()
    decided = {row.offset: row.restricted_by for row in rows}
    assert [number for number in range(EVENTS) if decided[offset_of(number)] is None] == [*range(20), 29, 39]
    assert decided[offset_of(21)] == 0
    assert decided[offset_of(59)] == 1


def test_an_explanation_names_the_part_that_decided(events: DataFrame) -> None:
    found = explain(events, SUBSCRIPTIONS[0], offset_of(33))
    assert (found.matches, [each.question for each in found.predicates]) == (True, ["Delay > 30", 'Dest == "IAH"'])
    missed = explain(events, SUBSCRIPTIONS[0], offset_of(34))
    assert (missed.matches, [each.why for each in missed.predicates]) == (False, ['Dest is "MIA"'])
    other = explain(events, SUBSCRIPTIONS[0], offset_of(0))
    assert (other.is_subject, other.subject) == (False, "Arrival")
    with pytest.raises(StorageError, match="no event at offset 1;"):
        explain(events, SUBSCRIPTIONS[0], 1)
