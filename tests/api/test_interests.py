"""Matching in a server: events that come together, kernels, expressions of earlier versions (DESIGN 7.4)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, numbers, publish, run, service
from wanderbus import filters
from wanderbus.broker.interest import matcher, measured_filter
from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.matching import SCANNED_MAX, Index, Kernel
from wanderbus.matching.engine import Engine
from wanderbus.server import kernel

pytestmark = pytest.mark.integration
pytest.importorskip("numba")


class Loading:
    """Stands for loading a kernel, which blocks until the test lets it continue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[threading.Thread] = []
        self.wanted: list[Kernel] = []
        self.go = threading.Event()
        monkeypatch.setattr(kernel, "load_kernel", self._load)

    def _load(self, wanted: Kernel) -> Kernel:
        self.threads.append(threading.current_thread())
        self.wanted.append(wanted)
        assert self.go.wait(10)
        return wanted


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Loading:
    return Loading(monkeypatch)


def uses_engine(server: wanderbus.Server) -> bool:
    return isinstance(service(server).broker._subscriptions.matcher._index._engine, Engine)


async def subscribe(stack: AsyncExitStack, agent: wanderbus.Agent, count: int) -> None:
    for n in range(count):
        await stack.enter_async_context(agent.subscribe(SUBJECT, f"n > {1_000 + n}"))


def test_few_subscriptions_load_nothing(world: World, loading: Loading) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice, AsyncExitStack() as stack:
            await subscribe(stack, alice, SCANNED_MAX)
            await publish(alice, 1)
            assert loading.threads == []
            assert not uses_engine(server)

    run(story())


def test_many_are_served_while_the_kernel_is_loaded_and_by_it_afterwards(world: World, loading: Loading) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice, AsyncExitStack() as stack:
            await subscribe(stack, alice, SCANNED_MAX + 3)
            notifications = await stack.enter_async_context(alice.subscribe(SUBJECT, "n < 5"))
            await publish(alice, 1, 9, 2)
            assert await numbers(notifications, 2) == [1, 2]
            assert len(loading.threads) == 1
            assert loading.threads[0] is not threading.current_thread()
            assert not uses_engine(server)
            loading.go.set()
            while not uses_engine(server):
                await asyncio.sleep(0.01)
            await publish(alice, 3, 9, 4)
            assert await numbers(notifications, 2) == [3, 4]

    run(story())


def test_the_compiled_kernel_is_loaded_once_many_events_were_matched(
    world: World, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher, "COMPILED_FROM_EVENTS", 10)
    loading.go.set()

    async def story() -> None:
        async with world.server() as server, world.agent() as alice, AsyncExitStack() as stack:
            await subscribe(stack, alice, SCANNED_MAX + 3)
            while not uses_engine(server):
                await asyncio.sleep(0.01)
            assert loading.wanted == ["numpy"]
            notifications = await stack.enter_async_context(alice.subscribe(SUBJECT, "n < 50"))
            await publish(alice, *range(11))
            while service(server).broker._subscriptions.matcher._kernel != "numba":
                await asyncio.sleep(0.01)
            assert loading.wanted == ["numpy", "numba"]
            await publish(alice, *range(11, 20))
            assert await numbers(notifications, 20) == list(range(20))

    run(story())


def test_a_server_with_many_has_its_kernel_before_it_is_ready(world: World, loading: Loading) -> None:
    async def story() -> None:
        loading.go.set()
        async with world.server(), world.agent() as alice, AsyncExitStack() as stack:
            await subscribe(stack, alice, SCANNED_MAX + 1)
            stack.pop_all()  # the subscriptions stay
            loading.threads.clear()
        loading.go.clear()
        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(stack.enter_async_context(world.server()))
            while not loading.threads:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert not starting.done()
            loading.go.set()
            server = await starting
            assert len(loading.threads) == 1
            assert uses_engine(server)

    run(story())


def test_a_server_may_close_while_it_loads(world: World, loading: Loading) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, AsyncExitStack() as stack:
            await subscribe(stack, alice, SCANNED_MAX + 1)
            while not loading.threads:
                await asyncio.sleep(0.01)
        loading.go.set()

    run(story())


def test_slower_restrictions_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel, "load_kernel", lambda wanted: "scan")

    async def story() -> None:
        async with world.server(), world.agent() as alice, AsyncExitStack() as stack:
            await subscribe(stack, alice, SCANNED_MAX + 1)
            while not caplog.records:
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, "wanderbus.server"):
        run(story())
    assert "cannot load the matching kernel numpy" in caplog.text


def test_events_that_are_under_way_together_are_matched_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    match = Index.match

    def counted(index: Index, events: Sequence[Event]) -> list[list[str]]:
        looks.append(len(events))
        return match(index, events)

    monkeypatch.setattr(Index, "match", counted)

    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            for n in range(5):
                await publish(alice, n)
            assert looks == [1] * 5
            looks.clear()
            await asyncio.gather(*[publish(alice, n) for n in range(5, 105)])
            assert sum(looks) == 100
            assert len(looks) < 50
            assert await numbers(notifications, 105) == list(range(105))

    run(story())


def test_an_unreadable_expression_is_reported_at_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parse = filters.parse

    def read(text: str, language: str = "eci") -> Filter:
        if text == "n > 7":
            raise FilterError("nobody says so any more", text, 0)
        return parse(text, language)

    async def story() -> None:
        async with world.server(), world.agent() as alice, AsyncExitStack() as stack:
            lost = (await stack.enter_async_context(alice.subscribe(SUBJECT, "n > 7"))).subscription.id
            other = await stack.enter_async_context(alice.subscribe(SUBJECT, "n > 8"))
            kept = other.subscription.id
            stack.pop_all()
        monkeypatch.setattr(filters, "parse", read)
        monkeypatch.setattr(measured_filter, "_remembered", measured_filter._read)  # a new process knows none
        async with world.server(), world.agent() as alice:
            assert f"cannot parse the stored subscription {lost}" in caplog.text
            assert "nobody says so any more" in caplog.text
            assert [each.id for each in await alice.subscriptions()] == [lost, kept]
            await publish(alice, 9)

    run(story())
