"""T-06: a server whose subjects are matched by a service beside it, over real sockets; either is killed or away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from tests.api.world import SUBJECT, World, files, nothing_more, numbers, publish, run, service
from tests.engine_service import EngineService
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.services import remote_engine
from wanderbus.runtime.services.service import Service

SPARK = BrokerConfig(spark_subjects=("*",))


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server look for the engine often."""
    monkeypatch.setattr(remote_engine, "PAUSE_S_MIN", 0.02)
    monkeypatch.setattr(remote_engine, "PAUSE_S_MAX", 0.02)


@pytest.fixture
def engine(world: World) -> EngineService:
    """The engine of the server in this world."""
    return EngineService(world.directory / "data")


@pytest.fixture
def running(world: World, engine: EngineService) -> Iterator[Service]:
    """Its service, which the test starts."""
    beside = engine.service(world.directory / "data")
    yield beside
    beside.close()


def test_t06_events_are_acknowledged_without_the_engine_and_delivered_with_it(
    world: World, running: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with (
            world.server(broker=SPARK) as server,
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT, "n > 2") as departures,
        ):
            await publish(bob, 1, 2, 3, 4)
            await nothing_more(departures)
            assert service(server).broker.engine.away_since_us is not None
            running.start()
            assert await numbers(departures, 2) == [3, 4]
            await publish(bob, *range(5, 400))
            assert await numbers(departures, 395) == list(range(5, 400))
            await nothing_more(departures)

    with caplog.at_level(logging.WARNING, "wanderbus.server"):
        run(story())
    said = [each.getMessage() for each in caplog.records if "engine" in each.getMessage()]
    assert [each.partition(":")[0] for each in said] == [
        "events wait for the matching engine",
        "the matching engine answers again",
    ]


def test_t06_an_engine_that_is_started_again_misses_and_repeats_nothing(world: World, running: Service) -> None:
    async def story() -> None:
        async with world.server(broker=SPARK), world.agent("bob") as bob, world.agent() as alice:
            running.start()
            async with alice.subscribe(SUBJECT) as departures:
                for n in range(0, 60, 20):
                    await publish(bob, *range(n, n + 10))
                    running.close()
                    other = EngineService(world.directory / "data").service(world.directory / "data")
                    await publish(bob, *range(n + 10, n + 20))
                    other.start()
                    assert await numbers(departures, 20) == list(range(n, n + 20))
                    other.close()
                    running.start()
                await nothing_more(departures)

    run(story())


def test_t06_a_server_that_is_started_again_continues_at_the_watermark(world: World, running: Service) -> None:
    async def story() -> None:
        async with world.server(broker=SPARK), world.agent("bob") as bob, world.agent() as alice:
            departures = await alice.subscribe(SUBJECT, keep=True)
            await publish(bob, *range(600))
            await departures.aclose()
        running_too = asyncio.to_thread(running.start)
        async with world.server(broker=SPARK) as server, world.agent("bob") as bob, world.agent() as alice:
            await running_too
            async with alice.subscribe(SUBJECT, keep=True) as departures:
                assert await numbers(departures, 600) == list(range(600))
                await publish(bob, 600)
                assert await numbers(departures, 1) == [600]
                await nothing_more(departures)
            assert files(server).log.durable_offset > 0

    run(story())
