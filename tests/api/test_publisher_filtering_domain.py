"""Agents that hold back events of channels that another server leads, in a real domain (SPEC N-01, N-02, N-03)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import wanderbus
from tests.api.event_domain import Domain
from tests.api.world import SUBJECT, numbers, run
from wanderbus.parameters.broker import BrokerConfig

CONFIG = BrokerConfig(publisher_filter_lease_s=2.0, roles={"sip:dave@localhost": "operator"})


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain")


@asynccontextmanager
async def running(domain: Domain, *names: str) -> AsyncIterator[None]:
    """Run these servers."""
    async with AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(domain.server(name, broker=CONFIG))
        yield


async def hold_back(agent: wanderbus.Agent, n: int) -> None:
    """Publish an event that nobody wants, until it is held back."""
    while await agent.publish(SUBJECT, {"n": n}) != wanderbus.HELD_BACK:
        await asyncio.sleep(0.01)


async def publisher(domain: Domain, server: str) -> wanderbus.Agent:
    """An agent that filters, at a server that has a link to the leader."""
    agent = await domain.agent(server, publisher_filtering=True)
    async with agent.subscribe(SUBJECT, "n == -1"):
        pass
    return agent


async def held_back_at_publishers(domain: Domain, server: str) -> int:
    """The events that publishers have held back, as they have reported to this server."""
    async with domain.agent(server, "dave") as dave:
        return {row.phase: row.held_back async for row in dave.operator.filtering()}["publisher"]


def test_an_event_that_nobody_wants_is_not_sent_to_the_leader(domain: Domain) -> None:
    async def story() -> None:
        leader, near, far = domain.places()
        async with (
            running(domain, leader, near, far),
            domain.agent(far, "carol") as carol,
            carol.subscribe(SUBJECT, "n < 3") as low,
        ):
            alice = await publisher(domain, near)
            await hold_back(alice, 7)
            held_back = alice.held_back
            for n in (1, 7, 2):
                await alice.publish(SUBJECT, {"n": n})
            assert await numbers(low, 2) == [1, 2]
            assert alice.held_back == held_back + 1
            async with carol.subscribe(SUBJECT, "n == 7") as seven:
                assert await alice.publish(SUBJECT, {"n": 7}) != wanderbus.HELD_BACK
                assert await numbers(seven, 1) == [7]
            await alice.close()
            assert await held_back_at_publishers(domain, near) == held_back + 1
            assert await held_back_at_publishers(domain, leader) == 0

    run(story())


def test_events_reach_new_subscriptions_at_each_server(domain: Domain) -> None:
    async def story() -> None:
        leader, near, far = domain.places()
        async with running(domain, leader, near, far):
            alice = await publisher(domain, near)
            await hold_back(alice, -1)
            for n, (server, name) in enumerate([(leader, "bob"), (near, "dave"), (far, "carol")] * 3):
                async with domain.agent(server, name) as reader, reader.subscribe(SUBJECT, f"n == {n}") as one:
                    await alice.publish(SUBJECT, {"n": n})
                    assert await numbers(one, 1) == [n]
            assert alice.held_back > 0
            await alice.close()

    run(story())


@pytest.mark.parametrize("restarted", [0, 1], ids=["leader", "access server"])
def test_an_event_after_a_restart_reaches_a_new_subscription(domain: Domain, restarted: int) -> None:
    async def story() -> None:
        names = domain.places()
        others = [name for name in names if name != names[restarted]]
        async with running(domain, *others):
            async with running(domain, names[restarted]):
                alice = await publisher(domain, names[1])
                await hold_back(alice, 7)
            async with (
                running(domain, names[restarted]),
                domain.agent(names[2], "carol") as carol,
                carol.subscribe(SUBJECT, "n == 7") as seven,
            ):
                assert await alice.publish(SUBJECT, {"n": 7}) != wanderbus.HELD_BACK
                assert await numbers(seven, 1) == [7]
                await alice.close()

    run(story())
