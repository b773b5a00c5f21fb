"""T-06: a server whose subjects are matched by a service beside it, over real sockets; either is killed or away."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, files, nothing_more, numbers, publish, run, service, until
from tests.engine_service import EngineService
from wanderbus.errors import ConfigurationError
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.services import backoff, supervised
from wanderbus.runtime.services.service import Service
from wanderbus.runtime.services.supervised import SupervisedService
from wanderbus.server import broker_role, validation

SPARK = BrokerConfig(spark_subjects=("*",))


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server look for the engine often."""
    monkeypatch.setattr(backoff, "PAUSE_S_MIN", 0.02)
    monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.02)


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


def test_t06_an_engine_that_the_server_starts_is_killed_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(data_dir: Path) -> list[str]:
        return [sys.executable, "-m", "tests.engine_service", str(data_dir)]

    monkeypatch.setattr(broker_role, "engine_command", command)
    monkeypatch.setattr(supervised, "PAUSE_S_MIN", 0.01)
    killed = set[int]()

    async def story() -> SupervisedService:
        async with (
            world.server(engine="spark") as server,
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT) as departures,
        ):
            beside = service(server)._supervised
            assert beside is not None
            for n in range(0, 60, 20):
                await publish(bob, *range(n, n + 10))
                await until(lambda: beside.pid)
                assert beside.pid is not None
                killed.add(beside.pid)
                os.kill(beside.pid, signal.SIGKILL)
                await publish(bob, *range(n + 10, n + 20))
                assert await numbers(departures, 20) == list(range(n, n + 20))
            await nothing_more(departures)
            return beside

    run(story()).join()
    assert len(killed) == 3


def test_t06_an_engine_that_is_not_installed_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install"):
        wanderbus.Server(domain="localhost", data_dir=tmp_path, users={}, engine="spark")


def test_t06_all_subjects_go_to_spark_unless_some_are_named(tmp_path: Path) -> None:
    for given, subjects in ((None, ("*",)), (BrokerConfig(spark_subjects=("a",)), ("a",))):
        server = wanderbus.Server(domain="localhost", data_dir=tmp_path, users={}, engine="spark", broker=given)
        assert server._broker_config.spark_subjects == subjects
    full = BrokerConfig(refuse_when_full=("a",))
    with pytest.raises(ConfigurationError, match="refuse_when_full"):
        wanderbus.Server(domain="localhost", data_dir=tmp_path, users={}, engine="spark", broker=full)
