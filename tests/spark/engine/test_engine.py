"""T-06: a real server whose events Spark matches, with agents that publish, subscribe and come back."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from faults.process_tree import descendants, kill
from tests.api.world import SUBJECT, World, nothing_more, numbers, publish, run, service, take, until
from tests.spark.engine.records import INCARNATION, SERVER, started, write_log
from tests.spark.engine.running import running_engine
from wanderbus.errors import ConfigurationError
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.pipeline.engine import EngineProgress, MatchingEngine, batches, query
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.engine import Begin
from wanderbus.subscription import EVERY_SUBJECT

pytestmark = pytest.mark.integration

SPARK = BrokerConfig(spark_subjects=("*",))


def test_t06_events_wait_for_the_engine_and_are_delivered_by_it(world: World, spark: SparkSession) -> None:
    async def story() -> None:
        async with (
            world.server(broker=SPARK) as server,
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT, "n > 2") as departures,
            alice.subscribe(EVERY_SUBJECT, "text LIKE '%x%'", language="cesql") as every,
        ):
            await publish(bob, 1, 2, 3, 4)
            await nothing_more(departures)
            progress: list[EngineProgress] = []
            with running_engine(spark, world.directory / "data", progress):
                assert await numbers(departures, 2) == [3, 4]
                await publish(bob, *range(5, 400))
                assert await numbers(departures, 395) == list(range(5, 400))
                await bob.publish("Other", {"text": "axb"})
                assert [each.event["text"] for each in await take(every, 1)] == ["axb"]
                async with alice.subscribe(SUBJECT, "n > 500") as late:
                    await publish(bob, 600)
                    assert await numbers(late, 1) == [600]
                assert await numbers(departures, 1) == [600]
                await nothing_more(departures)
                end = durable_end(world.directory / "data" / "log")
                await until(lambda: progress[-1].offset >= end)
            assert progress[-1].subscriptions >= 2
            assert sum(each.lag < 5 for each in progress) > 0
            assert service(server).broker.engine.away_since_us is None

    run(story())


def test_t06_an_engine_that_is_started_again_misses_and_repeats_nothing(world: World, spark: SparkSession) -> None:
    async def story() -> None:
        async with (
            world.server(broker=SPARK),
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT) as departures,
        ):
            for n in range(0, 60, 20):
                with running_engine(spark, world.directory / "data"):
                    await publish(bob, *range(n, n + 10))
                await publish(bob, *range(n + 10, n + 20))
            with running_engine(spark, world.directory / "data"):
                assert await numbers(departures, 60) == list(range(60))
                await nothing_more(departures)

    run(story())


def test_t06_a_server_that_is_started_again_begins_the_engine_again(world: World, spark: SparkSession) -> None:
    async def story() -> None:
        async with world.server(broker=SPARK), world.agent("bob") as bob, world.agent() as alice:
            departures = await alice.subscribe(SUBJECT, keep=True)
            await publish(bob, *range(600))
            await departures.aclose()
        with running_engine(spark, world.directory / "data"):
            for first in (600, 620):
                async with (
                    world.server(broker=SPARK),
                    world.agent("bob") as bob,
                    world.agent() as alice,
                    alice.subscribe(SUBJECT, keep=True) as departures,
                ):
                    await publish(bob, *range(first, first + 20))
                    count = first + 20 if first == 600 else 20
                    assert await numbers(departures, count) == list(range(first + 20 - count, first + 20))
                    await nothing_more(departures)

    run(story())


def test_t06_a_query_that_fails_is_begun_again(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = batches.in_order
    failures = [RuntimeError("the disk is gone"), None, RuntimeError("and again")]

    def failing(*arguments: object) -> object:
        if failures and (failure := failures.pop(0)) is not None:
            raise failure
        return match(*arguments)  # type: ignore[arg-type]

    async def story() -> None:
        async with (
            world.server(broker=SPARK) as server,
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT) as departures,
        ):
            monkeypatch.setattr(query, "in_order", failing)
            with running_engine(spark, world.directory / "data"):
                await publish(bob, 1)
                await until(lambda: "the disk is gone" in service(server).broker._engine_events.away_reason)
                await publish(bob, *range(2, 50))
                assert await numbers(departures, 49) == list(range(1, 50))
                await publish(bob, *range(50, 80))
                assert await numbers(departures, 30) == list(range(50, 80))
                await nothing_more(departures)
            assert failures == []

    run(story())


def test_a_batch_that_fails_while_the_query_is_stopped_ends_it_in_order(tmp_path: Path, spark: SparkSession) -> None:
    """Spark looks for the sign of an interruption in the text of the error, which has pages of Java's."""
    begun, stopped = threading.Event(), threading.Event()

    def fail(*_: object) -> None:
        begun.set()
        assert stopped.wait(60)
        raise RuntimeError("py4j.protocol.Py4JJavaError: An error occurred while calling o1" + "\n\tat x" * 20_000)

    asked = query.EngineQuery(spark, write_log(tmp_path, [started()]), begin_at(0), fail)
    running = asked.start()
    assert begun.wait(60)
    stopping = threading.Thread(target=asked.stop, daemon=True)
    stopping.start()
    while running.isActive:
        time.sleep(0.01)
    stopped.set()
    stopping.join(60)
    assert str(asked.error).startswith("py4j.protocol.Py4JJavaError")
    assert "a batch has failed" in str(running.exception())


def test_t06_workers_that_are_killed_change_nothing(world: World, spark: SparkSession) -> None:
    """A task is tried again in another process; a query without further attempts begins again."""

    async def story() -> None:
        async with (
            world.server(broker=SPARK),
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT) as departures,
        ):
            with running_engine(spark, world.directory / "data"):
                for n in range(0, 80, 20):
                    await publish(bob, *range(n, n + 20))
                    kill(python_workers())
                assert await numbers(departures, 80) == list(range(80))
                await publish(bob, 80)
                assert await numbers(departures, 1) == [80]
                await nothing_more(departures)

    run(story())


def test_subscriptions_come_and_go_while_the_engine_runs(world: World, spark: SparkSession) -> None:
    async def story() -> None:
        async with (
            world.server(broker=SPARK),
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT) as every,
        ):
            with running_engine(spark, world.directory / "data"):
                for first in range(0, 300, 10):
                    async with alice.subscribe(SUBJECT, f"n >= {first} and n < {first + 5}") as some:
                        await publish(bob, *range(first, first + 10))
                        assert await numbers(some, 5) == list(range(first, first + 5))
                        await nothing_more(some, 0.01)
                assert await numbers(every, 300) == list(range(300))

    run(story())


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no log of a server; give the data directory of a server"):
        MatchingEngine(tmp_path)


def begin_at(first: int) -> Begin:
    return Begin(1, SERVER, INCARNATION, first, (), 1_000, is_last=True)


def python_workers() -> list[int]:
    """Return the processes of Spark's Python workers, without the daemon that starts them and the planner."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            is_forked = b"pyspark.daemon" in Path(f"/proc/{parent}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in command and is_forked:
            found.append(pid)
    return found
