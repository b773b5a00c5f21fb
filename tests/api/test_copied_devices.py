"""State of a device that was restored from a copy, or copied to a second device (SPEC G-20, X25)."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from tests.api.test_outbox import put
from tests.api.world import SUBJECT, World, nothing_more, numbers, run, until
from wanderbus import protocol
from wanderbus.client.machine.messages import ConnectRefused
from wanderbus.client.reports import OutboxSize
from wanderbus.errors import Refused


async def published(world: World, *values: int, device: str = "phone") -> None:
    """Publish events from the outbox of a device, and end the agent when the broker has accepted them."""
    async with world.agent(device=device) as agent:
        await put(agent, *values)
        await until(lambda: agent.outbox == OutboxSize(0, 0))


def copied(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def test_an_outbox_that_was_restored_from_a_copy_loses_no_event(world: World, caplog: pytest.LogCaptureFixture) -> None:
    phone, copy = world.directory / "phone", world.directory / "copy"

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
            await published(world, 1, 2, 3)
            copied(phone, copy)
            await published(world, 4, 5)
            copied(copy, phone)
            with caplog.at_level(logging.WARNING, "wanderbus.agent"):
                await published(world, 6, 7, 8)
            assert await numbers(notifications, 8) == list(range(1, 9))
            await nothing_more(notifications)

    run(story())
    assert any("restored from a copy" in line for line in caplog.messages)


def test_one_image_on_two_devices_loses_no_event(world: World) -> None:
    phone, twin = world.directory / "phone", world.directory / "twin"

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
            await published(world, 1, 2)
            copied(phone, twin)
            for value in (3, 5, 7):
                await published(world, value)
                await published(world, value + 1, device="twin")
            assert await numbers(notifications, 8) == list(range(1, 9))
            await nothing_more(notifications)

    run(story())


def test_events_that_waited_in_the_copy_are_published_once(world: World) -> None:
    phone, copy = world.directory / "phone", world.directory / "copy"

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True):
            agent = await world.agent(device="phone").__aenter__()
        await put(agent, 1, 2, 3)
        copied(phone, copy)
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True) as notifications:
            await until(lambda: agent.outbox == OutboxSize(0, 0))
            await put(agent, 4)
            await agent.close()
            copied(copy, phone)
            await published(world, 5)
            assert await numbers(notifications, 5) == [1, 2, 3, 4, 5]
            await nothing_more(notifications)

    run(story())


def test_an_agent_that_comes_back_after_its_twin_ends_and_says_why(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    phone, twin = world.directory / "phone", world.directory / "twin"

    async def story() -> None:
        async with world.server():
            async with world.agent("bob", device="phone"):
                pass
            copied(phone, twin)
            async with (
                world.agent("alice") as alice,
                world.agent("bob", device="phone") as first,
                first.subscribe(SUBJECT) as of_first,
                world.agent("bob", device="twin") as second,
                second.subscribe(SUBJECT) as of_second,
            ):
                with pytest.raises(Refused, match=r"same device .* state directory was copied"):
                    await anext(of_first)
                await alice.publish(SUBJECT, {"n": 1})
                assert await numbers(of_second, 1) == [1]

    run(story())
    (line,) = (each for each in caplog.messages if "device_used_twice" in each)
    assert "sip:bob@localhost" in line


def test_an_agent_that_its_twin_ends_while_it_closes_ends_once(world: World) -> None:
    async def story() -> None:
        async with world.server():
            agent = await world.agent(device="phone")
            await put(agent, 1)
            closing = asyncio.create_task(agent.close())
            await asyncio.sleep(0)
            agent._refused(ConnectRefused("session", 403, "a twin is here", limit=protocol.DEVICE_USED_TWICE))
            await closing

    run(story())
