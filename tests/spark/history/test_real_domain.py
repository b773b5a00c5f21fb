"""The lake of a real domain of two servers, with a channel of either model (SPEC T-03, T-04, K-03)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.api.event_domain import Domain
from tests.api.world import numbers, run
from tests.spark.domain_logs import fill
from wanderbus.pipeline.history import absences_of, arrivals, changes_in, lake_events, replay, versions_of
from wanderbus.pipeline.lake import reconcile, table

pytestmark = pytest.mark.spark
ALICE = "sip:alice@localhost"


def test_events_of_both_servers_are_in_the_lake_once(spark: SparkSession, tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain", size=2, tables='[channels.Free]\nmodel = "decentralised"\n')
    subjects = ("Free", domain.subject_of("s1"), domain.subject_of("s2"))

    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            alices = [await stack.enter_async_context(domain.agent(server)) for server in ("s1", "s2")]
            bobs = [await stack.enter_async_context(domain.agent(server, "bob")) for server in ("s1", "s2")]
            readers = [
                await stack.enter_async_context(alice.subscribe(subject, "n >= 1"))
                for alice in alices
                for subject in subjects
            ]
            for number in range(3):
                for bob in bobs:
                    for subject in subjects:
                        await bob.publish(subject, {"n": number})
            for reader in readers:
                assert sorted(map(str, await numbers(reader, 4))) == ["1", "1", "2", "2"]

    run(story())
    logs = [domain.data_dir(server) / "log" for server in ("s1", "s2")]
    lake = tmp_path / "lake"
    fill(spark, logs, lake)
    assert not any(each.differs for log in logs for each in reconcile(spark, log, lake))
    events = table(spark, lake, "events")
    found = [(each.server, each.subject) for each in events.select("server", "subject").collect()]
    of_ordered = [("s1", subjects[1]), ("s2", subjects[2])] * 6
    assert sorted(found) == sorted([*of_ordered, *[("s1", "Free"), ("s2", "Free")] * 3])
    records = table(spark, lake, "records")
    changes = changes_in(records)
    versions = [each for each in versions_of(changes) if each.subscription.owner == ALICE]
    decided = replay(lake_events(spark, lake), versions, absences_of(changes), arrived=arrivals(records)).collect()
    notified = table(spark, lake, "notifications").where(f"user = '{ALICE}'").collect()
    assert len(notified) == 24
    assert sum(each.event_offset is not None for each in notified) == 12  # half of them arrived from the other server
    assert sorted((each.subscription, each.offset) for each in decided) == sorted(
        (identity, each.offset) for each in notified for identity in each.subscriptions
    )
