"""Figures of a run of a real server equal its own counters, to the last match (SPEC T-08, G-21)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import pytest
from pyspark.sql import SparkSession

import wanderbus
from tests.api.world import SUBJECT, World, publish, run, take
from wanderbus.operator_rows import DurationsInfo, SessionInfo
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.pipeline.analytics import GoldTables, analyse, lake_tables
from wanderbus.pipeline.lake import ingest
from wanderbus.subscription import Frequency, QueuePolicy

pytestmark = [pytest.mark.spark, pytest.mark.integration]

ROLES: Final[Mapping[str, Literal["operator"]]] = {"sip:bob@localhost": "operator"}


async def travels(world: World, bob: wanderbus.Agent) -> None:
    """Let alice read on two devices, change her address, lose something to a bound, and come back after a third."""
    async with world.agent() as alice, alice.subscribe(SUBJECT, "n >= 0", keep=True) as all_of_them:
        async with alice.subscribe(SUBJECT, "n > 1000", keep=True):
            pass
        rarely = alice.subscribe(SUBJECT, "n >= 5", keep=True, restrictions=[Frequency(3_600.0)])
        short = alice.subscribe(SUBJECT, "n >= 10", keep=True, queue=QueuePolicy(notifications_max=4))
        async with rarely, short:
            await publish(bob, *range(20))
            await take(all_of_them, 20)
            await alice.rebind("127.0.0.2")
            await publish(bob, *range(20, 25))
            await take(all_of_them, 5)
    async with world.agent(device="laptop") as laptop, laptop.subscribe(SUBJECT, "n >= 0", keep=True) as others:
        await publish(bob, *range(25, 40))
        await take(others, 15)
    async with world.agent(device="watch"):
        pass
    async with world.agent() as alice, alice.subscribe(SUBJECT, "n >= 0", keep=True) as rest:
        await take(rest, 15)


async def counters(agent: wanderbus.Agent, expected: int) -> dict[str, SessionInfo]:
    """Return the sessions with matches by user, once the broker has counted the last acknowledgement."""
    while True:
        found = {row.user: row async for row in agent.operator.sessions() if row.generated}
        if sum(row.delivered for row in found.values()) >= expected:
            return found
        await asyncio.sleep(0.01)


def durations(several_us: list[int]) -> DurationsInfo:
    return DurationsInfo(sum(several_us), dict(Counter(map(int.bit_length, several_us))))


def test_t08_figures_are_the_counters_of_the_server(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> dict[str, SessionInfo]:
        async with world.server(broker=BrokerConfig(roles=ROLES)) as server, world.agent("bob") as bob:
            await travels(world, bob)
            assert server.address
            return await counters(bob, 40)

    own = run(story())
    lake = tmp_path / "lake"
    ingest(spark, tmp_path / "data" / "log", lake, tmp_path / "checkpoint")
    with GoldTables(lake_tables(spark, lake)) as gold:
        acknowledgements = [row.taken_us - row.matched_us for row in gold.frames["acknowledgements"].collect()]
        deepest = max(row.depth_max for row in gold.frames["queue_depths"].collect())
        parts = {row.part: row.acknowledgements for row in gold.frames["latencies"].where("scope = 'user'").collect()}
        away = [row for row in gold.frames["absences"].where("user like '%alice%'").collect() if row.to_us is not None]
        rows = {row.user: row for row in gold.frames["session_counts"].collect() if row.generated}
        dropped = {(row.user, row.reason): row.dropped for row in gold.frames["drops"].collect()}
        found = analyse(gold)
    assert rows.keys() == own.keys() == {"sip:alice@localhost"}
    for user, info in own.items():
        counted = ("generated", "delivered", "queued", "restricted")
        assert {name: rows[user][name] for name in counted} == {name: getattr(info, name) for name in counted}
        assert {reason: count for (of, reason), count in dropped.items() if of == user} == info.dropped
    (info,) = own.values()
    assert info.queued_max == deepest > 4
    assert info.acknowledgements == durations(acknowledgements)
    assert info.acknowledgements.count == parts["acknowledging"]
    assert info.absences == durations([row.to_us - row.from_us for row in away])
    assert info.absences.count == 1, "the phone came back"
    assert info.restricted
    assert info.dropped, "a bound was met"
    totals = found.totals
    assert (totals.events, totals.missing, totals.repeated, totals.repeated_events) == (40, 0, 0, 0)
    assert (totals.generated, totals.delivered) == (info.generated, info.delivered)
    assert totals.dropped == sum(info.dropped.values())
    assert (totals.moves, totals.healed) == (1, 1)
    assert totals.never_matched == 1, "that for n > 1000"
    assert [row["expression"] for row in found.never.rows] == ["n > 1000"]
    assert found.server.startswith("wb")
    assert found.first_us is not None
    age = datetime.now(UTC) - datetime.fromtimestamp(found.first_us / 1e6, UTC)
    assert age < timedelta(hours=1)
    (server_total,) = [row for row in found.latencies["server"].rows if row["part"] == "total"]
    assert 0 < server_total["p50_ms"] <= server_total["max_ms"]
    assert any(row["covering_expression"] == "n >= 0" for row in found.coverings.rows)
