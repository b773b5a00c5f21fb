"""Transfer of a session to another device, as programs see it (SPEC L-07, J-05)."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import wanderbus
from tests.api.event_domain import Domain
from tests.api.test_access_servers import broker_of
from tests.api.test_session_owners import contact_of
from tests.api.world import SUBJECT, World, nothing_more, publish, run, service, until

VISIT = wanderbus.Operator.SESSION


async def rest(items: Any) -> list[int]:
    """Read to the end of the iteration."""
    return [item.event["n"] async for item in items]


async def transferred(world: World, reading: AbstractAsyncContextManager[Any], again: Any) -> list[list[int]]:
    """Transfer a session while ``reading`` reads it, to a program that reads ``again`` of its agent."""
    async with (
        world.agent("bob") as bob,
        world.agent(device="watch", session=VISIT) as watch,
        world.agent(device="shell", session=VISIT) as shell,
    ):
        dormant = asyncio.create_task(watch.operator.dormant("default", "desk"))
        async with reading as items:
            await publish(bob, 1)
            first = [(await anext(items)).event["n"]]
            moving = asyncio.create_task(shell.operator.transfer(shell.uri, "default", "desk"))
            first += await rest(items)
        await dormant
        assert [row.session async for row in shell.operator.subscriptions(shell.uri)], "they live on"
        await publish(bob, 2)
        async with world.agent(device="desk") as desk:
            await moving
            async with again(desk) as next_items:
                second = [(await anext(next_items)).event["n"]]
                next_items.ack()
                await nothing_more(next_items)
    return [first, second]


def test_l07_a_subscription_that_is_not_kept_outlives_its_first_block(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent(device="phone") as phone:
            ticks = phone.subscribe(SUBJECT)
            assert await transferred(world, ticks, lambda desk: desk.subscribe(SUBJECT)) == [[1], [2]]
            assert ticks.ended == "transferred"
            await phone.close()
            await until(lambda: len(members(server)) == 1)

    run(story())


def test_l07_the_iteration_over_several_subscriptions_ends_too(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(device="phone") as phone:

            def merged(agent: wanderbus.Agent) -> Any:
                return agent.merged(*(agent.subscribe(SUBJECT, each, keep=True) for each in ("n > 0", "n > 1")))

            assert await transferred(world, merged(phone), merged) == [[1], [2]]

    run(story())


def test_l07_an_agent_that_was_stopped_reads_no_more_after_a_loss_of_its_connection(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent(device="phone") as phone, world.agent("bob") as bob:
            changes = phone.changes()
            async with (
                phone.subscribe(SUBJECT, keep=True) as ticks,
                world.agent(device="watch", session=VISIT) as watch,
                world.agent(device="shell", session=VISIT) as shell,
            ):
                dormant = asyncio.create_task(watch.operator.dormant("default", "desk"))
                moving = asyncio.create_task(shell.operator.transfer(shell.uri, "default", "desk"))
                await dormant
                async with world.agent(device="desk") as desk, desk.subscribe(SUBJECT, keep=True) as others:
                    await moving
                    await shell.operator.kick(shell.uri, members(server)[0])
                    while (await anext(changes)).status != "DISCONNECTED":
                        pass
                    while (await anext(changes)).status != "CONNECTED":
                        pass
                    await publish(bob, 1)
                    assert (await anext(others)).event["n"] == 1
                    assert await rest(ticks) == []

    run(story())


def members(server: wanderbus.Server) -> list[str]:
    """The devices of the session, in the order in which they joined."""
    sessions = service(server).broker.state.sessions_of("sip:alice@localhost")
    return next(each.devices for each in sessions if each.name == "default")


def test_j05_an_application_reads_what_another_one_subscribed_to(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent("bob") as bob,
            world.agent(device="first") as first,
            first.subscribe(SUBJECT, "n > 1") as mine,
            world.agent(device="second") as second,
        ):
            (shared,) = await second.subscriptions()
            async with second.read(shared) as theirs:
                await publish(bob, 1, 2)
                assert [(await anext(each)).event["n"] for each in (mine, theirs)] == [2, 2]
            await second.leave()
            await publish(bob, 3)
            assert (await anext(mine)).event["n"] == 3

    run(story())


def test_l07_an_instance_that_waits_at_the_former_server_goes_on_where_the_session_is(tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain", 2)

    async def story() -> None:
        async with (
            domain.server("s1"),
            domain.server("s2") as s2,
            domain.agent("s1", state_dir=tmp_path / "phone") as phone,
            domain.agent("s1", "bob") as bob,
            domain.agent("s1", state_dir=tmp_path / "watch", session=VISIT) as watch,
            phone.subscribe(SUBJECT, keep=True) as ticks,
        ):
            dormant = asyncio.create_task(watch.operator.dormant("default", "desk"))
            await phone.handover("s2")
            async with domain.agent("s2", state_dir=tmp_path / "shell", session=VISIT) as shell:
                await publish(bob, 1)
                assert (await anext(ticks)).event["n"] == 1
                moving = asyncio.create_task(shell.operator.transfer(shell.uri, "default", "desk"))
                assert await rest(ticks) == []
                assert (await dormant).name == "desk"
                await publish(bob, 2)
                async with (
                    domain.agent("s1", state_dir=tmp_path / "desk") as desk,
                    desk.subscribe(SUBJECT, keep=True) as others,
                ):
                    await moving
                    assert broker_of(desk) == contact_of(s2)
                    assert (await anext(others)).event["n"] == 2

    run(story())
