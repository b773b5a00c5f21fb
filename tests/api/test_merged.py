"""One iteration over several subscriptions, in the order of the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, nothing_more, run, until
from wanderbus.errors import Closed, LocalProtocolError
from wanderbus.event import Gap
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import QueuePolicy

NARROW = BrokerConfig(unacknowledged_max=3)
"""A window that a reader of many notifications fills before a reader of few."""


async def publish_each(agent: wanderbus.Agent, *values: int) -> None:
    for value in values:
        await agent.publish(SUBJECT, {"n": value, "last": value % 10})


async def read(items: Any, count: int) -> list[int]:
    return [(await anext(items)).event["n"] for _ in range(count)]


def test_notifications_of_several_subscriptions_come_in_the_order_of_the_log(world: World) -> None:
    """Without the order, those of the rare one overtake those of the frequent one, whose window is full."""

    async def story() -> None:
        async with world.server(broker=NARROW), world.agent() as alice, world.agent("bob") as bob:
            frequent, rare = alice.subscribe(SUBJECT, "last > 0"), alice.subscribe(SUBJECT, "last == 0")
            async with alice.merged(frequent, rare) as merged:
                await publish_each(bob, *range(1, 51))
                assert await read(merged, 50) == list(range(1, 51))
                await nothing_more(merged)

    run(story())


def test_waiting_notifications_come_in_order_also_after_a_restart_of_the_agent(world: World) -> None:
    async def story() -> None:
        async with world.server(broker=NARROW), world.agent("bob") as bob:
            async with world.agent() as alice:
                for expression in ("n > 5", "n <= 5", "n == 7"):
                    async with alice.subscribe(SUBJECT, expression, keep=True):
                        pass
            await publish_each(bob, 1, 2, 9, 3, 4, 7, 5, 8, 6)
            for expected in ([1, 2, 9, 3], [4, 7, 5, 8, 6]):
                async with world.agent() as alice:
                    members = [alice.subscribe(SUBJECT, each, keep=True) for each in ("n > 5", "n <= 5", "n == 7")]
                    async with alice.merged(*members) as merged:
                        assert await read(merged, len(expected)) == expected
                        merged.ack()

    run(story())


def test_a_notification_that_several_match_comes_once_and_names_them(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            every, high = alice.subscribe(SUBJECT), alice.subscribe(SUBJECT, "n > 1", format="xml")
            async with alice.merged(every, high) as merged:
                await publish_each(alice, 1, 2, 3)
                one, two, three = [await anext(merged) for _ in range(3)]
                both = {every.subscription.id, high.subscription.id}
                assert one.subscriptions == (every.subscription.id,)
                assert set(two.subscriptions) == set(three.subscriptions) == both
                assert (one.xml, two.xml is None) == (None, False)
                merged.ack()
                await until(lambda: alice.status == "CONNECTED")
                async for row in alice.operator.queues():
                    assert row.notifications == 0, "all were acknowledged for both"

    run(story())


def test_a_gap_comes_at_the_place_of_its_first_notification(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            small = QueuePolicy(notifications_max=1)
            async with world.agent() as alice:
                async with alice.subscribe(SUBJECT, "n < 0", keep=True, queue=small):
                    pass
                async with alice.subscribe(SUBJECT, "n > 0", keep=True):
                    pass
            await publish_each(bob, 1, -2, 3, -4, 5, -6)
            async with world.agent() as alice:
                lossy = alice.subscribe(SUBJECT, "n < 0", keep=True, queue=small, gaps=True)
                whole = alice.subscribe(SUBJECT, "n > 0", keep=True)
                seen: list[object] = []
                async with alice.merged(lossy, whole) as merged:
                    while len(seen) < 5:
                        item = await anext(merged)
                        seen.append(item.count if isinstance(item, Gap) else item.event["n"])
                        if isinstance(item, Gap):
                            assert {loss.subscription for loss in item.lost} == {lossy.subscription.id}
                assert [each for each in seen if each != 2] == [1, 3, 5, -6]
                assert seen[1] == 2, "the gap stands for -2 and -4"
                assert (lossy.dropped, whole.dropped) == (2, 0)

    run(story())


def test_the_end_of_one_subscription_ends_the_others_not(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, world.agent("bob") as bob:
            brief = alice.subscribe(SUBJECT, "n < 0", lifetime_s=0.5)
            lasting = alice.subscribe(SUBJECT, "n > 0", keep=True)
            endings = alice.endings()
            async with alice.merged(brief, lasting) as merged:
                await publish_each(bob, -1, 1)
                while brief.ended is None:
                    await bob.publish(SUBJECT, {"n": 2})
                assert (await anext(endings)).reason == brief.ended == "expired"
                await publish_each(bob, -3, 3)
                assert await read(merged, 2) == [-1, 1]
                assert lasting.ended is None
                async with world.agent("alice", device="other", keep=False, keep_queue=True):
                    pass
                assert (await anext(endings)).reason == "discarded"
                rest = [item.event["n"] async for item in merged]
                assert (set(rest[:-1]) <= {2}, rest[-1:]) == (True, [3])

    run(story())


def test_members_are_read_together_only_and_once(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, world.agent("bob") as bob:
            one, two = alice.subscribe(SUBJECT, "n > 0"), alice.subscribe(SUBJECT, "n > 1")
            with pytest.raises(LocalProtocolError, match="different subscriptions"):
                alice.merged(one, one)
            with pytest.raises(LocalProtocolError, match="different subscriptions"):
                alice.merged()
            with pytest.raises(LocalProtocolError, match="of one agent"):
                alice.merged(one, bob.subscribe(SUBJECT))
            assert repr(alice.merged(one)).startswith("<Merged: <Notifications of 'Departure' where 'n > 0', not open")
            merged = await alice.merged(one, two)
            for wrong in (one.__anext__, one.__aenter__, merged.__aenter__):
                with pytest.raises(LocalProtocolError):
                    await wrong()
            await merged.aclose()
            with pytest.raises(Closed):
                await anext(merged)
            assert not await alice.subscriptions()
            async with alice.subscribe(SUBJECT, "n > 0") as alone:
                with pytest.raises(LocalProtocolError, match="opened by itself"):
                    await alice.merged(alone, alice.subscribe(SUBJECT, "n > 1"))

    run(story())


def test_closing_the_agent_fails_the_iteration(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            merged = await alice.merged(alice.subscribe(SUBJECT, "n > 0"), alice.subscribe(SUBJECT, "n > 1"))
            waiting = asyncio.create_task(read(merged, 1))
            await asyncio.sleep(0)
            await alice.close()
            with pytest.raises(Closed):
                await waiting

    run(story())
