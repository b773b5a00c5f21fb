"""A subscription without a reader, or with a slow one, delays no other (SPEC G-25, G-07, A-11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, crash, nothing_more, numbers, publish, run, service, until
from wanderbus.errors import Closed
from wanderbus.event import Value

MANY = 1_500


async def published(bob: wanderbus.Agent, first: int, last: int) -> None:
    for start in range(first, last + 1, 250):
        await publish(bob, *range(start, min(start + 250, last + 1)))


async def read(notifications: AsyncIterator[wanderbus.Notification], count: int) -> list[Value]:
    return [(await anext(notifications)).event["n"] for _ in range(count)]


@pytest.mark.parametrize("other", ["n > 0", "n < 0"], ids=["same events", "other events"])
def test_g25_one_of_two_subscriptions_is_read_to_the_end_while_the_other_is_not(world: World, other: str) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT, other) as unread,
            alice.subscribe(SUBJECT) as notifications,
        ):
            await published(bob, -MANY, -1) if other == "n < 0" else None
            first = -MANY if other == "n < 0" else 1
            await published(bob, 1, MANY)
            expected = [n for n in range(first, MANY + 1) if n]
            assert await read(notifications, len(expected)) == expected
            assert unread._inbox.waiting <= 256, "a window of it waits here, the rest at the broker"
            notifications.ack()
            assert await read(unread, 600) == [n for n in expected if (n < 0) == (other == "n < 0")][:600]

    run(story())


def test_g25_the_hundredth_is_read_while_99_are_not(world: World) -> None:
    async def story() -> None:
        async with (
            world.server() as server,
            world.agent("bob") as bob,
            world.agent() as alice,
            AsyncExitStack() as stack,
        ):
            for number in range(99):
                await stack.enter_async_context(alice.subscribe(SUBJECT, f"n > {-number}"))
            notifications = await stack.enter_async_context(alice.subscribe(SUBJECT))
            await published(bob, 1, 600)
            assert await read(notifications, 600) == list(range(1, 601))
            (link,) = service(server).broker._links.of_user("sip:alice@localhost")
            assert max(len(reader.unacknowledged or ()) for reader in link.readers()) <= 256

    run(story())


def test_g25_the_subscription_of_a_killed_program_holds_up_nobody(world: World) -> None:
    """Its queue grows without an end, but the next program of the same user still reads its own subscription."""

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            killed = await world.agent(device="one").__aenter__()
            await killed.subscribe(SUBJECT, keep=True).__aenter__()
            crash(killed)
            await published(bob, 1, MANY)
            async with world.agent(device="one") as alice, alice.subscribe(SUBJECT, "n > 0") as notifications:
                await published(bob, MANY + 1, 2 * MANY)
                assert await read(notifications, MANY) == list(range(MANY + 1, 2 * MANY + 1))

    run(story())


def test_g25_a_purge_lets_an_unread_subscription_go_on(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT, keep=True, gaps=True) as notifications,
        ):
            await published(bob, 1, MANY)
            purged = await alice.operator.purge("sip:alice@localhost", "default", notifications.subscription.id)
            assert purged == MANY
            await published(bob, MANY + 1, MANY + 300)
            seen: list[Value] = []
            missing = 0
            while not seen or seen[-1] != MANY + 300:
                item = await anext(notifications)
                if isinstance(item, wanderbus.Gap):
                    missing += item.count
                else:
                    seen.append(item.event["n"])
            assert seen[-300:] == list(range(MANY + 1, MANY + 301))
            assert len(seen) + missing == MANY + 300, "nothing is counted twice, nothing is left out"

    run(story())


# Readers without a block ---------------------------------------------------------------------------------------------


def test_a11_an_iteration_without_a_block_opens_the_subscription(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            async with world.agent() as alice:
                notifications = alice.subscribe(SUBJECT)
                first = asyncio.create_task(anext(notifications))
                await until(lambda: len(service(server).broker.state.subscriptions) == 1)
                await publish(bob, 1, 2)
                assert (await first).event["n"] == 1
                async for notification in notifications:
                    assert notification.event["n"] == 2
                    break
            assert len(service(server).broker.state.subscriptions) == 0, "it ends with the agent"

    run(story())


def test_a11_closing_ends_it_earlier_and_once(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice:
            notifications = alice.subscribe(SUBJECT)
            await notifications.aclose()
            reading = asyncio.create_task(anext(notifications))
            await until(lambda: notifications._inbox.is_unblocked)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]
            await notifications.aclose()
            await notifications.aclose()
            assert len(service(server).broker.state.subscriptions) == 0
            with pytest.raises(Closed, match="subscribe again"):
                await anext(notifications)

    run(story())


# Queues of ended subscriptions ----------------------------------------------------------------------------------------


async def leave_behind(world: World, bob: wanderbus.Agent, expression: str) -> str:
    """Alice subscribes and goes; two events are queued for her; then her subscription ends. Return its id."""
    async with world.agent("alice") as alice, alice.subscribe(SUBJECT, expression, keep=True) as notifications:
        identity = notifications.subscription.id
    await publish(bob, 1, 2)
    async with world.agent("alice", device="other") as other:
        await other.unsubscribe(identity)
        await other.leave()
    return identity


def test_g07_the_next_equal_subscription_inherits_the_queue_of_an_ended_one(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            await leave_behind(world, bob, "n < 10")
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n < 10") as notifications:
                await publish(bob, 3)
                assert await numbers(notifications, 3) == [1, 2, 3]

    run(story())


def test_g07_the_queue_of_an_ended_subscription_blocks_no_other(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            identity = await leave_behind(world, bob, "n < 10")
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n >= 10") as notifications:
                await publish(bob, 11)
                assert await numbers(notifications, 1) == [11]
            (row,) = [
                row for row in service(server).broker.state.tombstones.values() if row.subscription.id == identity
            ]
            assert row.settled == 0, "it is kept for who asks for the same"

    run(story())


def test_g07_nothing_comes_again_to_a_successor_of_what_its_own_reader_has_ended(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, world.agent() as alice:
            async with alice.subscribe(SUBJECT) as notifications:
                await publish(bob, 1, 2, 3)
                await anext(notifications)
            async with alice.subscribe(SUBJECT) as notifications:
                await nothing_more(notifications)
                await publish(bob, 4)
                assert await numbers(notifications, 1) == [4]

    run(story())


def test_a_live_subscription_keeps_what_it_has_for_its_reader(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n < 10", keep=True):
                pass
            await publish(bob, 1, 2)
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, "n < 10") as notifications:
                assert await numbers(notifications, 2) == [1, 2]

    run(story())


# Positions ----------------------------------------------------------------------------------------------------------


def test_design_5_5_each_subscription_resumes_from_its_own_position(world: World) -> None:
    """One is read faster than the other; the program is killed; neither loses or repeats anything."""

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            positions: dict[str, wanderbus.Position] = {}
            got: dict[str, list[Value]] = {"n > 0": [], "n > -1": []}
            for counts in ((20, 3), (30, 47)):
                alice = await world.agent(device="one").__aenter__()
                readers = {
                    each: await alice.subscribe(SUBJECT, each, keep=True, resume=positions.get(each)).__aenter__()
                    for each in got
                }
                if not positions:
                    await published(bob, 1, 50)
                for (each, notifications), count in zip(readers.items(), counts, strict=True):
                    for _ in range(count):
                        notification = await anext(notifications)
                        assert not notification.redelivered
                        got[each].append(notification.event["n"])
                        positions[each] = notification.position
                crash(alice)
            assert list(got.values()) == [list(range(1, 51))] * 2

    run(story())
