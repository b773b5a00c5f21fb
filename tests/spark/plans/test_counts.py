"""Counts for plans, from a lake and from the log behind it (SPEC T-10)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.published import published
from wanderbus.event import Event
from wanderbus.pipeline.history.domain_lakes import DomainLake
from wanderbus.pipeline.lake.jobs import ingest
from wanderbus.pipeline.lake.logs import LakeLogs
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LAKE
from wanderbus.pipeline.plans import (
    ActivityPeriod,
    interests,
    lake_activities,
    lake_subscriptions,
    log_activities,
    log_records,
    log_subscriptions,
)
from wanderbus.planning import Activity, SubjectInterest
from wanderbus.planning.interest import interest_of
from wanderbus.records import Notified, Published, Record, Subscribed, Unsubscribed, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name
from wanderbus.subscription import Subscription

pytestmark = pytest.mark.spark

START_US = 1_700_000_000_000_000
SUBJECTS = ("Departure", "Arrival", "Gate")
EXPRESSIONS = (
    *(("Departure", f"Delay > {n % 4}") for n in range(8)),
    ("Departure", "Dest == 'IAH'"),
    ("Arrival", "Delay > 3"),
    ("*", "Delay > 100"),
    ("*", "Delay > 100"),
)


class Served(NamedTuple):
    """Records of a server, their log, and the lake of it."""

    records: list[Record]
    log: Path
    lake: Path


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Served:
    records: list[Record] = []
    for number, (subject, expression) in enumerate(EXPRESSIONS):
        its = Subscription(f"s{number}", "sip:a@b", "s", subject, expression)
        records.append(Subscribed(at_us=START_US, subscription=its, number=number))
    records.append(Unsubscribed(at_us=START_US, user="sip:a@b", subscription="s9", reason="asked"))
    for number in range(60):
        notified = tuple(Notified(f"sip:u{each}@b", "s", number, ("s1",)) for each in range(number % 4))
        event = Event(SUBJECTS[number % 3 if number % 2 else 0], {"Delay": number, "Note": "x" * number})
        at_us = START_US + number * 1_000_000
        records.append(published(event, number=number, at_us=at_us, notified=notified))
    log = tmp_path_factory.mktemp("log")
    frames = [pack_frame(offset, each.at_us, encode_record(each)) for offset, each in enumerate(records)]
    (log / segment_name(0)).write_bytes(HEADER + b"".join(frames))
    (log / HIGH_WATER).write_bytes(pack_mark(len(records)))
    lake = tmp_path_factory.mktemp("lake") / "lake"
    ingest(spark, log, lake, lake.with_name("checkpoint"))
    return Served(records, log, lake)


def counted(records: list[Record], period: ActivityPeriod = ActivityPeriod()) -> dict[str, Activity]:  # noqa: B008
    found: dict[str, Activity] = {}
    for each in records:
        if isinstance(each, Published) and (period.from_us or 0) <= each.at_us < (period.to_us or 2**62):
            so_far = found.get(each.event.subject, Activity())
            found[each.event.subject] = Activity(
                so_far.events + 1,
                so_far.notifications + len(each.delivery.notified),
                so_far.log_bytes + len(encode_record(each)),
            )
    return found


def test_the_activity_of_a_lake_and_of_its_log_is_that_of_the_records(spark: SparkSession, served: Served) -> None:
    expected = counted(served.records)
    assert expected["Departure"].notifications > expected["Departure"].events > 20
    assert lake_activities(spark, served.lake) == expected
    assert log_activities(log_records(spark, served.log)) == expected


def test_a_period_bounds_the_events(spark: SparkSession, served: Served) -> None:
    period = ActivityPeriod(START_US + 10_000_000, START_US + 20_000_000)
    expected = counted(served.records, period)
    assert sum(each.events for each in expected.values()) == 10
    assert lake_activities(spark, served.lake, period) == expected
    assert log_activities(log_records(spark, served.log), period) == expected


def test_interests_are_those_of_the_live_subscriptions_subject_by_subject(spark: SparkSession, served: Served) -> None:
    live = [each for number, each in enumerate(EXPRESSIONS) if number != 9]
    expected = {
        subject: interest_of((text, "eci", 1) for its, text in live if its == subject)
        for subject in dict.fromkeys(subject for subject, _ in live)
    }
    assert expected["Departure"] == SubjectInterest(subscriptions=9, filters=5, uncovered=2, merged=2)
    assert expected["*"].subscriptions == 2
    assert interests(lake_subscriptions(spark, served.lake)) == expected
    assert interests(log_subscriptions(log_records(spark, served.log))) == expected


def test_a_subscription_that_is_live_in_two_lakes_counts_once_and_that_of_a_domain_not_at_all(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session has moved from alpha to beta, and the lake of alpha is behind."""
    bob, dora = ("sip:bob@alpha", "s1-7-4"), ("sip:dora@beta", "s1-7-4")
    rows = {"alpha": [bob, ("sip:beta@domains.alpha", "s1-7-2")], "beta": [bob, dora]}

    def subscriptions(_: SparkSession, lake: Path, name: str) -> DataFrame:
        assert name == "subscriptions"
        made = [(*each, "Price", "", "eci", True) for each in rows[lake.name]]
        columns = "owner string, id string, subject string, expression string, language string, is_live boolean"
        return spark.createDataFrame(made, columns)

    # The package has a function of the name of the module.
    monkeypatch.setattr(import_module("wanderbus.pipeline.plans.interests"), "table", subscriptions)
    logs = LakeLogs(Path("lake"), ("s1-7",))
    lakes = [DomainLake(Path(name), name, name, place * OFFSETS_A_LAKE, logs) for place, name in enumerate(rows)]
    assert lake_subscriptions(spark, lakes).count() == 2
