"""Agents that hold back the events that nobody wants, at a real server (SPEC N-01, N-02, N-03)."""

from __future__ import annotations

import asyncio

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, numbers, run, until
from wanderbus.errors import ConfigurationError
from wanderbus.parameters.broker import BrokerConfig


async def hold_back(agent: wanderbus.Agent, n: int) -> None:
    """Publish an event that nobody wants, until it is held back."""
    while await agent.publish(SUBJECT, {"n": n}) != wanderbus.HELD_BACK:
        await asyncio.sleep(0.01)


def test_events_that_nobody_wants_are_held_back_and_others_arrive(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent(publisher_filtering=True) as alice,
            world.agent("bob") as bob,
            bob.subscribe(SUBJECT, "n < 3") as low,
        ):
            await hold_back(alice, 7)
            held_back = alice.held_back
            for n in (1, 7, 2):
                await alice.publish(SUBJECT, {"n": n})
            assert await numbers(low, 2) == [1, 2]
            assert alice.held_back == held_back + 1
            async with bob.subscribe(SUBJECT, "n == 7") as seven:
                assert await alice.publish(SUBJECT, {"n": 7}) != wanderbus.HELD_BACK
                assert await numbers(seven, 1) == [7]

    run(story())


def test_events_of_an_outbox_are_held_back_too(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent(publisher_filtering=True) as alice,
            world.agent("bob") as bob,
            bob.subscribe(SUBJECT, "n < 3") as low,
        ):
            await hold_back(alice, 7)
            held_back = alice.held_back
            for n in (7, 1, 7, 2):
                await alice.publish(SUBJECT, {"n": n}, outbox=True)
            assert await numbers(low, 2) == [1, 2]
            await until(lambda: alice.outbox.events == 0)
            assert alice.held_back == held_back + 2

    run(story())


def test_a_subscription_gets_what_is_published_after_it_while_the_publisher_moves(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(publisher_filtering=True) as alice, world.agent("bob") as bob:
            await hold_back(alice, -1)
            for n in range(20):
                if n % 5 == 4:
                    await alice.rebind(f"127.0.0.{n}")
                async with bob.subscribe(SUBJECT, f"n == {n}") as notifications:
                    await alice.publish(SUBJECT, {"n": n})
                    assert await numbers(notifications, 1) == [n]
            assert alice.held_back > 0

    run(story())


def test_an_event_after_a_restart_of_the_server_reaches_a_new_subscription(world: World) -> None:
    async def story() -> None:
        config = BrokerConfig(publisher_filter_lease_s=1.0)
        async with world.server(broker=config):
            alice = await world.agent(publisher_filtering=True)
            await hold_back(alice, 7)
        async with world.server(broker=config), world.agent("bob") as bob:
            async with bob.subscribe(SUBJECT, "n == 7") as seven:
                await alice.publish(SUBJECT, {"n": 7})
                assert await numbers(seven, 1) == [7]
            await alice.close()

    run(story())


def test_an_operator_sees_the_counts_of_each_phase(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(broker=BrokerConfig(roles={"sip:bob@localhost": "operator"})),
            world.agent("bob") as bob,
        ):
            async with world.agent(publisher_filtering=True) as alice:
                await hold_back(alice, 7)
                held_back = alice.held_back
            rows = {row.phase: row async for row in bob.operator.filtering()}
            assert rows["publisher"].held_back == held_back
            assert rows["publisher"].examined > held_back
            assert rows["channel"].held_back == rows["channel"].examined > 0
            assert rows["destination"].examined == 0

    run(story())


def test_the_original_eci_has_no_filtering_at_the_publisher() -> None:
    with pytest.raises(ConfigurationError, match="publisher_filtering"):
        wanderbus.connect("eci://127.0.0.1:7000", publisher_filtering=True)
