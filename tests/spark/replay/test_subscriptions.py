"""T-05: subscriptions that read the lake, then the log, then new events, with a real server and a real service."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import wanderbus
from tests.api.world import SUBJECT, World, files, nothing_more, numbers, publish, run, service, take, until
from tests.spark.replay.bronze import write_bronze
from wanderbus.broker.history import catch_up
from wanderbus.errors import Refused
from wanderbus.pipeline.replay import history_service
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.runtime.segment_files import durable_end, segment_paths
from wanderbus.runtime.services import backoff, history
from wanderbus.runtime.services.service import Service
from wanderbus.server import storage

pytestmark = pytest.mark.integration


class Lake:
    """A job that brings a lake up to the log of ``world`` each time that it is asked to."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "SAVE_S", 0.02)
        monkeypatch.setattr(storage, "RETAIN_S", 0.02)
        monkeypatch.setattr(backoff, "PAUSE_S_MAX", 0.05)
        defaults = ServerFiles.open.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "segment_bytes_max", 2_000)
        self.world = world
        self.data = world.directory / "data"
        self.directory = world.directory / "lake"
        self.end = 0
        self.data.mkdir(0o700)
        self.register()

    @asynccontextmanager
    async def server(self) -> AsyncIterator[wanderbus.Server]:
        async with self.world.server(log_keep_bytes=0) as server:
            yield server

    def register(self) -> None:
        register_reader(self.data / "log", LogReader("lake", self.end, time.time_ns() // 1_000, 86_400))

    def ingest(self, server: wanderbus.Server) -> None:
        log, state = self.data / "log", service(server).broker.state
        frames = list(read_log(log, self.end, durable_end(log)))
        if frames:
            write_bronze(self.directory, frames, f"{state.server}-{state.incarnation}", group_rows=40)
            self.end = frames[-1].offset + 1
        self.register()

    async def remove(self, server: wanderbus.Server) -> int:
        """Bring the lake up to the log, and wait until its records are removed; return the log's first record."""
        self.ingest(server)
        log = files(server).log
        await until(lambda: len(segment_paths(log.directory)) == 1)
        return log.oldest_offset


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return Lake(World(tmp_path), monkeypatch)


def test_t05_the_lake_comes_first_then_the_log_then_new_events(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "PIECE_RECORDS_MAX", 30)

    async def story() -> None:
        world = lake.world
        async with lake.server() as server, world.agent("bob") as bob, world.agent() as alice:
            await publish(bob, *range(200))
            first = await lake.remove(server)
            assert first > 0
            await publish(bob, *range(200, 260))

            async def go_on() -> None:
                for value in range(260, 400):
                    await publish(bob, value)

            with history_service(lake.data, lake.directory) as served:
                async with alice.subscribe(SUBJECT, "n >= 10", since="earliest") as departures:
                    publishing = asyncio.create_task(go_on())
                    taken = [each for _ in range(39) for each in await take(departures, 10)]
                    await publishing
                    await nothing_more(departures)
                assert [each.event["n"] for each in taken] == list(range(10, 400))
                past = [each.is_history for each in taken]
                assert past == sorted(past, reverse=True)
                assert past[0]
                assert served.answered > 2

    run(story())


def test_t05_points_in_the_lake(lake: Lake) -> None:
    async def story() -> None:
        world = lake.world
        async with lake.server() as server, world.agent("bob") as bob, world.agent() as alice:
            first, *_ = await publish(bob, 1, 2)
            async with alice.subscribe(SUBJECT, since=first) as later:
                (second,) = await take(later, 1)
            await asyncio.sleep(0.02)
            now = datetime.now(UTC)
            await asyncio.sleep(0.02)
            await publish(bob, *range(3, 100))
            assert await lake.remove(server) > first.number + 20
            with history_service(lake.data, lake.directory):
                for since, begin in ((first, 2), (now, 3), (second.position, 3)):
                    async with alice.subscribe(SUBJECT, since=since) as departures:
                        assert await numbers(departures, 100 - begin) == list(range(begin, 100))

    run(story())


def test_t05_without_the_service_the_past_is_refused(lake: Lake) -> None:
    async def story() -> None:
        world = lake.world
        async with lake.server() as server, world.agent("bob") as bob, world.agent() as alice:
            first, *_ = await publish(bob, *range(200))
            oldest = await lake.remove(server)
            with pytest.raises(Refused, match=f"the log begins at record {oldest} of"):
                await alice.subscribe(SUBJECT, since=first)
            async with alice.subscribe(SUBJECT, since="earliest") as departures:
                (item,) = await take(departures, 1)
                assert item.id.number >= oldest  # nobody ever had older records
            with history_service(lake.data, lake.directory):
                async with alice.subscribe(SUBJECT, since=first) as departures:
                    assert await numbers(departures, 2) == [1, 2]
            for since in (first, "earliest"):
                with pytest.raises(Refused, match="older records are in the lake, but the service history"):
                    await alice.subscribe(SUBJECT, "n > 1", since=since)

    run(story())


def test_t05_records_that_nobody_has_are_refused_with_the_oldest_that_is_kept(lake: Lake) -> None:
    async def story() -> None:
        world = lake.world
        lake.end = 60  # the lake was made after the first records were removed
        async with lake.server() as server, world.agent("bob") as bob, world.agent() as alice:
            first, *_ = await publish(bob, *range(200))
            await lake.remove(server)
            with history_service(lake.data, lake.directory):
                for since in (first, datetime(1990, 1, 1, tzinfo=UTC)):
                    with pytest.raises(Refused, match="the lake begins at record 60 of"):
                        await alice.subscribe(SUBJECT, since=since)
                async with alice.subscribe(SUBJECT, since="earliest") as departures:
                    (item,) = await take(departures, 1)
                    assert item.id.number == 60

    run(story())


def test_t05_a_subscription_waits_for_a_service_that_is_started_again(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 5)
    caplog.set_level(logging.WARNING, "wanderbus.server")

    async def story() -> None:
        world = lake.world
        async with lake.server() as server, world.agent("bob") as bob, world.agent() as alice:
            await publish(bob, *range(200))
            assert await lake.remove(server) > 150
            with history_service(lake.data, lake.directory):
                departures = await alice.subscribe(SUBJECT, keep=True, since="earliest")
                assert await numbers(departures, 3) == [0, 1, 2]
            reading = asyncio.create_task(numbers(departures, 197))
            await until(lambda: "subscriptions wait for records" in caplog.text)
            async with alice.subscribe(SUBJECT) as live:
                await publish(bob, 200)
                assert await numbers(live, 1) == [200]
            await asyncio.sleep(0.3)
            assert not reading.done()
            with history_service(lake.data, lake.directory):
                assert await reading == list(range(3, 200))
                assert await numbers(departures, 1) == [200]
            await departures.aclose()

    run(story())
    lines = [each.message for each in caplog.records if "history" in each.message or "wait for records" in each.message]
    assert ["wait for records" in line for line in lines] == [True, False]


def test_t05_server_service_and_device_may_restart_in_the_middle(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 10)

    async def story() -> None:
        world, found = lake.world, []
        async with lake.server() as server, world.agent("bob") as bob:
            await publish(bob, *range(300))
            assert await lake.remove(server) > 250
        with history_service(lake.data, lake.directory):
            async with lake.server(), world.agent() as alice:
                departures = await alice.subscribe(SUBJECT, keep=True, since="earliest")
                found += await numbers(departures, 50)
                await departures.aclose()
        with history_service(lake.data, lake.directory):
            async with lake.server() as server, world.agent("bob") as bob:
                await publish(bob, 300)
                async with world.agent() as alice:
                    departures = await alice.subscribe(SUBJECT, keep=True, since="earliest")
                    found += await numbers(departures, 50)
                    await alice.rebind("127.0.0.2")
                    found += await numbers(departures, 100)
                    await publish(bob, 301)
                    found += await numbers(departures, 102)
                    await nothing_more(departures)
                    await departures.aclose()
        assert found == list(range(302))

    run(story())


def test_t05_a_service_that_hangs_does_not_keep_a_server_from_its_end(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PIECE_S_MAX", 60.0)
    asked, ended = threading.Event(), threading.Event()

    def hang(body: msgspec.Raw) -> None:
        asked.set()
        ended.wait()

    async def story() -> None:
        world = lake.world
        async with lake.server() as server, world.agent("bob") as bob, world.agent() as alice:
            await publish(bob, *range(100))
            await lake.remove(server)
            with Service(lake.data, history.NAME, {history.OFFSET: lambda body: 0, history.READ: hang}):
                departures = await alice.subscribe(SUBJECT, keep=True, since="earliest")
                await until(asked.is_set)
                await alice.close()
                await server.close()
                await until(
                    lambda: not any(each.name.startswith("wanderbus-history_") for each in threading.enumerate())
                )
                ended.set()
            assert departures

    run(story())
