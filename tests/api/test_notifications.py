"""Reading a subscription: acknowledgement of a notification, and the effect of leaving the block (DESIGN 5.2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, nothing_more, numbers, publish, run, service, settled, take, until_true
from wanderbus.errors import Closed, LocalProtocolError
from wanderbus.subscription import QueuePolicy


async def until_settled(server: wanderbus.Server, number: int) -> None:
    async def reached() -> bool:
        assert settled(server) <= number
        return settled(server) == number

    await until_true(reached)


def test_asking_for_the_next_acknowledges_the_one_before(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await publish(alice, 1, 2, 3)
            await anext(notifications)
            await asyncio.sleep(0.05)
            assert settled(server) == 0, "nothing is taken while it is in hand"
            await anext(notifications)
            await until_settled(server, 1)
            await anext(notifications)
            await until_settled(server, 2)

    run(story())


def test_ack_acknowledges_at_once_and_once(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await publish(alice, 1, 2)
            await anext(notifications)
            notifications.ack()
            notifications.ack()
            await until_settled(server, 1)
            assert (await anext(notifications)).event["n"] == 2

    run(story())


def test_leaving_a_kept_subscription_keeps_what_was_not_taken(world: World) -> None:
    """The current notification is not acknowledged: the next reader gets it and the later ones, in order."""

    async def story() -> None:
        async with world.server() as server, world.agent() as alice:
            async with alice.subscribe(SUBJECT, keep=True) as notifications:
                await publish(alice, 1, 2, 3, 4)
                assert await numbers(notifications, 1) == [1]
                assert (await anext(notifications)).event["n"] == 2
                identity = notifications.subscription.id
            await publish(alice, 5)
            async with alice.subscribe(SUBJECT, keep=True) as notifications:
                assert notifications.subscription.id == identity
                assert await numbers(notifications, 4) == [2, 3, 4, 5]
            await until_settled(server, 5)
            assert [each.id for each in await alice.subscriptions()] == [identity]

    run(story())


def test_leaving_ends_a_subscription_that_is_not_kept(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice:
            async with alice.subscribe(SUBJECT) as notifications:
                await publish(alice, 1, 2, 3)
                await anext(notifications)
                assert len(await alice.subscriptions()) == 1
            assert await alice.subscriptions() == ()
            await until_settled(server, 3)
            await publish(alice, 4)
            async with alice.subscribe(SUBJECT) as notifications:
                await publish(alice, 5)
                assert await numbers(notifications, 1) == [5]

    run(story())


async def stumble(alice: wanderbus.Agent, *, keep: bool) -> None:
    """Fail with the first of two notifications in hand."""
    async with alice.subscribe(SUBJECT, keep=keep) as notifications:
        await publish(alice, 1, 2)
        async for _ in notifications:
            raise ZeroDivisionError


def test_leaving_by_an_exception_leaves_in_order_and_lets_it_through(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice, alice.subscribe(SUBJECT, "(n > 1)") as other:
            with pytest.raises(ZeroDivisionError):
                await stumble(alice, keep=False)
            assert [each.id for each in await alice.subscriptions()] == [other.subscription.id]
            assert await numbers(other, 1) == [2]
            await until_settled(server, 2)

    run(story())


def test_a_kept_subscription_left_by_an_exception_repeats_what_was_in_hand(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            with pytest.raises(ZeroDivisionError):
                await stumble(alice, keep=True)
            async with alice.subscribe(SUBJECT, keep=True) as notifications:
                assert await numbers(notifications, 2) == [1, 2]

    run(story())


def test_a_wait_given_up_loses_nothing(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            for value in range(5):
                await nothing_more(notifications, 0.01)
                await publish(alice, value)
                assert await numbers(notifications, 1) == [value]

    run(story())


def test_notifications_before_the_end_are_read_before_the_error(world: World) -> None:
    async def story() -> None:
        async with world.server():
            agent = world.agent()
            async with agent:
                notifications = await agent.subscribe(SUBJECT, keep=True).__aenter__()
                waiting = await agent.subscribe("Other", keep=True).__aenter__()
                reader = asyncio.create_task(anext(waiting))
                await publish(agent, 1, 2)
                await anext(notifications)
            assert (await anext(notifications)).event["n"] == 2
            with pytest.raises(Closed):
                await anext(notifications)
            with pytest.raises(Closed):
                await reader

    run(story())


def test_the_same_subscription_twice_at_once_is_refused_and_harmless(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            with pytest.raises(LocalProtocolError, match="already reads the same subscription"):
                async with alice.subscribe(SUBJECT):
                    pass
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]

    run(story())


def test_a_block_may_be_entered_again(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            stream = alice.subscribe(SUBJECT)
            for value in (1, 2):
                async with stream as notifications:
                    await publish(alice, value)
                    assert await numbers(notifications, 1) == [value]
                with pytest.raises(Closed, match="not open"):
                    _ = stream.subscription
            assert not alice._readers._readers

    run(story())


def test_drops_are_a_gap_where_asked_for_and_counted_elsewhere(world: World) -> None:
    """SPEC U-02: the gap was made while the agent was away, so it comes before anybody reads."""

    async def story(gaps: bool) -> None:
        kind = f"gaps {gaps}"
        async with world.agent("bob") as bob:
            async with world.agent() as alice, alice.subscribe(kind, keep=True, queue=QueuePolicy(notifications_max=2)):
                pass
            for value in range(6):
                await bob.publish(kind, {"n": value})
            async with (
                world.agent() as alice,
                alice.subscribe(kind, keep=True, queue=QueuePolicy(notifications_max=2), gaps=gaps) as again,
            ):
                if gaps:
                    items: list[Any] = [await anext(again)]
                    while isinstance(items[-1], wanderbus.Gap):
                        items.append(await anext(again))
                    assert sum(gap.count for gap in items[:-1]) == 4
                    assert {gap.reason for gap in items[:-1]} == {"subscription.queue.notifications_max"}
                    assert [items[-1].event["n"], *await numbers(again, 1)] == [4, 5]
                else:
                    assert await numbers(again, 2) == [4, 5]
                assert again.dropped == 4
                await alice.unsubscribe(again.subscription.id)

    async def both() -> None:
        async with world.server():
            await story(True)
            await story(False)

    run(both())


def test_cancelling_the_entry_leaves_no_subscription_behind(world: World) -> None:
    """At any moment of the cancellation: no notifications are queued that nobody reads, so nothing is delayed."""

    async def story() -> None:
        async with world.server() as server, world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            for pause in range(40):
                entering = asyncio.create_task(alice.subscribe(SUBJECT, f"(n >= {pause})").__aenter__())
                async with asyncio.timeout(5):
                    for _ in range(pause):
                        await asyncio.sleep(0)
                    if pause % 4 == 3:
                        await asyncio.sleep(pause / 4_000)
                if not entering.cancel():
                    await (await entering).__aexit__(None, None, None)
                await asyncio.gather(entering, return_exceptions=True)
                await publish(alice, pause)
            await take(notifications, 40)
            await until_settled(server, 40)

            async def alone() -> bool:
                return [each.id for each in await alice.subscriptions()] == [notifications.subscription.id]

            await until_true(alone)
            assert alice._readers._early == {}

    run(story())


def test_cancelling_the_exit_lets_the_subscription_go(world: World) -> None:
    async def story() -> None:
        async with world.server() as server, world.agent() as alice:
            notifications = await alice.subscribe(SUBJECT).__aenter__()
            identity = notifications.subscription.id
            await publish(alice, 1, 2)
            leaving = asyncio.create_task(notifications.__aexit__(None, None, None))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await until_settled(server, 2)
            assert await alice.subscriptions() == ()
            assert alice._readers.reader(identity) is None

    run(story())


def test_closing_ends_what_was_asked_for_and_not_waited_for(world: World) -> None:
    async def story() -> None:
        async with world.server() as server:
            for pause in range(0, 40, 5):
                async with world.agent() as alice:
                    entering = asyncio.create_task(alice.subscribe(SUBJECT, f"(n >= {pause})").__aenter__())
                    for _ in range(pause):
                        await asyncio.sleep(0)
                    if not entering.cancel():
                        await (await entering).__aexit__(None, None, None)
                    await asyncio.gather(entering, return_exceptions=True)
            assert list(service(server).broker.state.subscriptions.values()) == []

    run(story())
