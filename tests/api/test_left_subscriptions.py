"""Subscriptions that an agent leaves while the broker cannot be reached: the next agent of the device ends them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.api.world import SUBJECT, World, numbers, publish, run, service
from wanderbus.client.agent_sockets import LEFT_FILE


async def leave_without_network(world: World, *, blocked: bool) -> None:
    """Subscribe, and close the agent after the server is gone."""
    async with world.server():
        alice = await world.agent().__aenter__()
        notifications = alice.subscribe(SUBJECT)
        if blocked:
            await notifications.__aenter__()
        else:
            await notifications
    while alice.status == "CONNECTED":
        await asyncio.sleep(0.01)
    if blocked:
        await notifications.aclose()
    await alice.close()


@pytest.mark.parametrize("blocked", [True, False])
def test_a_subscription_left_without_a_network_is_ended_by_the_next_agent(world: World, blocked: bool) -> None:
    async def story() -> None:
        await leave_without_network(world, blocked=blocked)
        async with world.server() as server, world.agent("bob") as bob:
            (left,) = service(server).broker.state.subscriptions
            await publish(bob, 1, 2)
            async with world.agent() as alice:
                assert await alice.subscriptions() == ()
                async with alice.subscribe(SUBJECT) as notifications:
                    assert notifications.subscription.id != left
                    await publish(bob, 3)
                    assert await numbers(notifications, 1) == [3]
            assert (world.directory / "alice" / LEFT_FILE).read_bytes() == b"[]"

    run(story())


def test_a_subscription_that_is_kept_is_not_ended(world: World) -> None:
    async def story() -> None:
        async with world.server():
            alice = await world.agent().__aenter__()
            notifications = await alice.subscribe(SUBJECT, keep=True).__aenter__()
        await notifications.aclose()
        await alice.close()
        async with world.server(), world.agent("bob") as bob, world.agent() as alice:
            await publish(bob, 1)
            async with alice.subscribe(SUBJECT, keep=True) as again:
                assert await numbers(again, 1) == [1]

    run(story())


def test_a_device_that_moves_to_another_session_leaves_no_subscription_behind(world: World) -> None:
    async def story() -> None:
        await leave_without_network(world, blocked=True)
        async with world.server() as server:
            async with world.agent(session="other") as alice:
                assert await alice.subscriptions() == ()
            assert len(service(server).broker.state.subscriptions) == 0, "its device is no member any more"
            assert (world.directory / "alice" / LEFT_FILE).read_bytes() != b"[]"
            async with world.agent():
                pass
            assert (world.directory / "alice" / LEFT_FILE).read_bytes() == b"[]"

    run(story())


def test_a_damaged_file_is_ignored_with_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def story(path: Path) -> None:
        async with world.server():
            async with world.agent():
                pass
            path.write_bytes(b"\xff{")
            with caplog.at_level(logging.WARNING):
                async with world.agent() as alice, alice.subscribe(SUBJECT):
                    pass
        assert "cannot be read" in caplog.text

    run(story(world.directory / "alice" / LEFT_FILE))
