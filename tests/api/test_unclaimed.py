"""Notifications that nobody reads do not stay in the way (SPEC G-07)."""

from __future__ import annotations

import logging

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, numbers, publish, run, service, until
from wanderbus.api import unclaimed


async def leave_behind(world: World, bob: wanderbus.Agent, expression: str) -> str:
    """Alice subscribes and goes; two events are queued for her; then her subscription ends. Return its id."""
    async with world.agent("alice") as alice, alice.subscribe(SUBJECT, expression, keep=True) as notifications:
        identity = notifications.subscription.id
    await publish(bob, 1, 2)
    async with world.agent("alice", device="other") as other:
        await other.unsubscribe(identity)
    return identity


def test_g07_what_an_ended_subscription_left_goes_to_the_next_that_asks_for_it(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            await leave_behind(world, bob, "n < 10")
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n < 10") as notifications:
                await publish(bob, 3)
                assert await numbers(notifications, 3) == [1, 2, 3]

    run(story())


def test_g07_what_nobody_can_read_any_more_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unclaimed, "PATIENCE_S", 0.05)
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            identity = await leave_behind(world, bob, "n < 10")
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n >= 10") as notifications:
                await publish(bob, 11)
                assert await numbers(notifications, 1) == [11]
                await until(lambda: f"{identity}, which has ended, were not read" in caplog.text)
                devices = service(server).broker.state.devices
                await until(lambda: any(device.cursor == 3 for device in devices.values()))

    run(story())


def test_a_live_subscription_keeps_what_it_has_for_its_reader(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unclaimed, "PATIENCE_S", 0.05)

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n < 10", keep=True):
                pass
            await publish(bob, 1, 2)
            async with world.agent("alice") as alice:
                await until(lambda: "that nobody reads: subscribe to the same again" in caplog.text)
                async with alice.subscribe(SUBJECT, "n < 10") as notifications:
                    assert await numbers(notifications, 2) == [1, 2]

    run(story())
