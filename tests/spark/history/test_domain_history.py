"""Queries and figures over the lake of a domain: an event that several servers recorded counts once (T-04, T-08)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.domain_logs import BOB, CAROL, START_US, fill, subscription, write_logs
from wanderbus.pipeline.analytics.gold import GoldTables
from wanderbus.pipeline.analytics.gold_lake import store_gold
from wanderbus.pipeline.analytics.lake_tables import lake_tables
from wanderbus.pipeline.history import (
    Selection,
    absences_of,
    arrivals,
    changes_in,
    count,
    explain,
    lake_events,
    match,
    sample,
    versions_of,
)
from wanderbus.pipeline.history import replay as replayed
from wanderbus.pipeline.history.lifetimes import Absences, UserAbsence
from wanderbus.pipeline.lake import table
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG
from wanderbus.pipeline.operation.status import lake_status

pytestmark = pytest.mark.spark
S2 = OFFSETS_A_LOG


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("domain")
    fill(spark, write_logs(directory), directory / "lake")
    return directory / "lake"


def rows(frame: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return sorted(tuple(each) for each in frame.select(*columns).collect())


def test_history_has_each_event_once(spark: SparkSession, lake: Path) -> None:
    late = subscription("late", BOB)
    events = lake_events(spark, lake)
    assert [each.offset for each in match(events, [late]).orderBy("offset").collect()] == [4, 6]
    assert [each.events for each in count(events, [late]).collect()] == [2]
    assert sorted(each.offset for each in sample(events, [late], 9).collect()) == [4, 6]
    of_second = lake_events(spark, lake, Selection(from_offset=S2, to_offset=2 * S2))
    everything = msgspec.structs.replace(late, subject="*", expression="")
    assert [each.offset for each in match(of_second, [everything]).orderBy("offset").collect()] == [S2 + 7, S2 + 13]
    assert explain(events, late, S2 + 7).subject == "Price"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("s1-7-2", [(4, None), (6, None)]), ("s2-9-3", [(S2 + 6, None), (S2 + 8, 0)])],
)
def test_a_replay_has_what_the_server_of_the_subscription_had(
    spark: SparkSession, lake: Path, wanted: str, expected: list[tuple[int, int | None]]
) -> None:
    records = table(spark, lake, "records")
    changes = changes_in(records)
    versions = [each for each in versions_of(changes) if each.subscription.id == wanted]
    found = replayed(lake_events(spark, lake), versions, absences_of(changes), arrived=arrivals(records))
    assert [(each.offset, each.restricted_by) for each in found.orderBy("offset").collect()] == expected


def test_figures_count_each_event_and_match_once(spark: SparkSession, lake: Path) -> None:
    with GoldTables(lake_tables(spark, lake)) as gold:
        found = gold.frames
        assert rows(found["subject_counts"], "subject", "events", "generated", "delivered") == [
            ("Departure", 3, 3, 3),
            ("Price", 2, 1, 1),
        ]
        assert rows(found["session_counts"], "user", "notifications", "generated", "missing", "repeated") == [
            (BOB, 3, 3, 0, 0),
            (CAROL, 1, 1, 0, 0),
        ]
        assert rows(found["subscription_counts"], "id", "events_seen") == [("s1-7-2", 3), ("s2-9-12", 1), ("s2-9-3", 3)]
        taken = rows(found["acknowledgements"], "user", "offset", "published_us", "accepted_us", "matched_us")
        at = START_US + 10_000_000
        assert (CAROL, S2 + 6, START_US, at, at + 1_000) in taken
        assert rows(found["device_counts"], "user", "repeated_events") == [
            ("sip:airline@localhost", 0),
            (BOB, 0),
            (BOB, 0),
            (CAROL, 0),
        ]


def test_figures_of_one_server_are_those_of_its_log(spark: SparkSession, lake: Path) -> None:
    with GoldTables(lake_tables(spark, lake, server="s2")) as gold:
        assert rows(gold.frames["session_counts"], "user", "generated") == [(BOB, 1), (CAROL, 1)]
        assert rows(gold.frames["subject_counts"], "subject", "events") == [("Departure", 0), ("Price", 2)]


def test_gold_tables_have_the_ends_of_all_logs(spark: SparkSession, lake: Path) -> None:
    assert store_gold(spark, lake)["matches"].rows == 4
    for identity, end in (("s1-7", 9), ("s2-9", 15)):
        assert {each.offset for each in lake_status(lake, end, identity).tables if each.name == "matches"} == {end}


def test_absences_of_a_user_at_one_server_end_with_its_log() -> None:
    absences = Absences([UserAbsence(BOB, 3)])
    assert absences.is_away(BOB, 4)
    assert not absences.is_away(BOB, S2 + 4)
