"""Metrics of a server, as an operator reads them (SPEC U-08)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, numbers, publish, run, service
from wanderbus.errors import Refused
from wanderbus.metrics import Durations, Sample
from wanderbus.metrics.catalogue import CATALOGUE
from wanderbus.operator_rows import MetricInfo
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime import process_metrics

pytestmark = pytest.mark.integration

OPERATED = BrokerConfig(roles={"bob": "operator"})

Key = tuple[str, tuple[str, ...]]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "FRESH_S", 0.0)


async def values(operator: wanderbus.Operator) -> Mapping[Key, MetricInfo]:
    return {(row.metric, row.labels): row async for row in operator.metrics()}


def test_u08_every_sample_is_in_the_catalogue(world: World) -> None:
    async def story() -> None:
        relay = wanderbus.config.RelaySettings(ng_listen="127.0.0.1:0", ports="41000-41999")
        async with world.server(relay=relay, log_keep_s=1.0) as server:
            host = server._host
            assert host is not None
            samples: list[Sample] = [*host._metrics.samples()]
            assert {"relay_calls", "sip_users", "log_end", "build_info"} <= {each.metric for each in samples}
            for each in samples:
                metric = CATALOGUE[each.metric]
                assert len(each.labels) == len(metric.labels), each
                assert isinstance(each.value, Durations) is (metric.kind == "histogram"), each

    run(story())


def test_u08_counters_and_gauges_of_events(world: World) -> None:
    async def story() -> None:
        async with world.server(broker=OPERATED), world.agent("bob") as bob, world.agent() as alice:
            async with alice.subscribe(SUBJECT) as departures:
                await publish(bob, 1, 2, 3)
                assert await numbers(departures, 2) == [1, 2]
                async with asyncio.timeout(5):
                    while (found := await values(bob.operator))["matches_delivered_total", ()].value < 2:
                        await asyncio.sleep(0.01)
            assert found["events_accepted_total", ()].value == 3
            assert found["records_total", ("published",)].value == 3
            assert found["matches_generated_total", ()].value == 3
            assert found["matches_queued", ()].value == 1
            assert found["queue_longest", ()].value == 1
            assert found["devices", ("connected",)].value == 2
            assert found["links", ()].value == 2
            assert found["sip_users", ()].value >= 2
            durations = found["acknowledgement_seconds", ()].durations
            assert durations is not None
            assert durations.count == 2

    run(story())


def test_u08_counters_begin_with_the_server_and_gauges_do_not(world: World) -> None:
    async def story() -> None:
        async with world.server(broker=OPERATED), world.agent("bob") as bob, world.agent() as alice:
            async with alice.subscribe(SUBJECT, keep=True):
                pass
            await publish(bob, 1, 2)
        async with world.server(broker=OPERATED), world.agent("bob") as bob:
            found = await values(bob.operator)
            assert found["events_accepted_total", ()].value == 0
            assert found["matches_generated_total", ()].value == 0
            assert found["matches_queued", ()].value == 2

    run(story())


def test_u08_metrics_need_a_role(world: World) -> None:
    async def story() -> None:
        async with world.server(broker=OPERATED), world.agent() as alice:
            with pytest.raises(Refused, match="metrics need the role 'operator'"):
                await values(alice.operator)

    run(story())


def test_u08_samples_are_gathered_once_in_a_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(process_metrics, "FRESH_S", 3600.0)
        async with world.server(broker=OPERATED) as server, world.agent("bob") as bob:
            before = (await values(bob.operator))["events_accepted_total", ()].value
            await publish(bob, 1)
            assert (await values(bob.operator))["events_accepted_total", ()].value == before
            assert service(server).broker.state.offset > 0

    run(story())
