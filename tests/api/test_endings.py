"""Subscriptions that end without their application asking for it (SPEC G-07, G-10, G-11, G-12, X20, X21)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, nothing_more, numbers, publish, run, settled, take, until
from wanderbus.client import inbox as reading
from wanderbus.client.notifications import Notifications
from wanderbus.errors import ConfigurationError, Refused
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import QueuePolicy


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "QUIET_S", 0.1)


async def discard(world: World) -> None:
    """Another device of alice discards her subscriptions, which ends them; their queues stay (SPEC G-09, X20)."""
    async with world.agent("alice", device="other", keep=False, keep_queue=True):
        pass


async def rest(notifications: Notifications[Any]) -> list[Any]:
    return [each.event["n"] async for each in notifications]


def test_g10_g07_an_ignored_end_is_reported_and_the_queue_is_read_first(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            world.agent("bob") as bob,
            alice.subscribe(SUBJECT, keep=True) as notifications,
        ):
            endings = alice.endings()
            await publish(bob, 1, 2, 3)
            assert await numbers(notifications, 1) == [1]
            await discard(world)
            ending = await anext(endings)
            assert ending == wanderbus.Ending(notifications.subscription, "discarded", None)
            await publish(bob, 4)
            assert await rest(notifications) == [2, 3]
            assert notifications.ended == "discarded"
            assert await rest(notifications) == [], "and stays ended"
            async with alice.subscribe(SUBJECT) as anew:
                await publish(bob, 5)
                assert await numbers(anew, 1) == [5]
        assert [each async for each in endings] == []

    run(story())


def test_g11_x21_renewed_it_goes_on_under_its_id(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent(on_ended="renew") as alice,
            world.agent("bob") as bob,
            alice.subscribe(SUBJECT, lifetime_s=60.0) as notifications,
        ):
            endings, before = alice.endings(), notifications.subscription
            await publish(bob, 1)
            await discard(world)
            ending = await anext(endings)
            assert ending.successor is not None
            assert ending.successor.id == before.id
            await publish(bob, 2)
            assert await numbers(notifications, 2) == [1, 2]
            assert notifications.ended is None
            assert [each.id for each in await alice.subscriptions()] == [before.id]

    run(story())


def test_g11_x21_resubmitted_its_reader_has_the_notifications_of_both_ids(world: World) -> None:
    async def story() -> None:
        async with (
            world.server() as server,
            world.agent(on_ended="resubmit") as alice,
            world.agent("bob") as bob,
            alice.subscribe(SUBJECT, "n > 0", keep=True) as notifications,
        ):
            endings, before = alice.endings(), notifications.subscription
            await publish(bob, 1, 2, 3)
            assert (await anext(notifications)).event["n"] == 1
            await discard(world)
            ending = await anext(endings)
            assert ending.successor == notifications.subscription
            assert notifications.subscription.id != before.id
            assert notifications.subscription.expression == "n > 0"
            await publish(bob, 4)
            taken = await take(notifications, 3)
            assert [each.event["n"] for each in taken] == [2, 3, 4]
            present = (ending.successor.id,)
            assert [each.subscriptions for each in taken] == [(before.id,), (before.id,), present]
            await until(lambda: settled(server) == 4)

    run(story())


def test_g12_ends_during_an_absence_are_reported_after_reconnecting(world: World) -> None:
    """The server is away when the lifetime ends, and no event is published: the agent queries by itself."""

    async def story() -> None:
        async with world.server():
            alice = await world.agent(on_ended="resubmit").__aenter__()
            endings = alice.endings()
            notifications = await alice.subscribe(SUBJECT, lifetime_s=0.3).__aenter__()
            before = notifications.subscription.id
        await asyncio.sleep(0.4)
        async with world.server(), world.agent("bob") as bob:
            ending = await anext(endings)
            assert ending.subscription.id == before
            assert ending.successor is not None
            await publish(bob, 1)
            assert await numbers(notifications, 1) == [1]
            await notifications.__aexit__(None, None, None)
            await alice.close()

    run(story())


def test_g10_two_agents_of_one_session_go_on_with_one_subscription(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent(on_ended="resubmit") as phone,
            world.agent(device="laptop", on_ended="resubmit") as laptop,
            world.agent("bob") as bob,
            phone.subscribe(SUBJECT, keep=True) as to_phone,
            laptop.subscribe(SUBJECT, keep=True) as to_laptop,
        ):
            endings = phone.endings(), laptop.endings()
            await discard(world)
            ends = [await anext(each) for each in endings]
            assert ends[0] == ends[1]
            assert to_phone.subscription == to_laptop.subscription
            await publish(bob, 1)
            assert await numbers(to_phone, 1) == await numbers(to_laptop, 1) == [1]
            assert len(await phone.subscriptions()) == 1

    run(story())


def test_an_end_requested_by_the_application_is_not_reported(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(on_ended="resubmit") as alice:
            endings = alice.endings()
            async with alice.subscribe(SUBJECT):
                pass
            async with alice.subscribe(SUBJECT, keep=True) as notifications:
                await alice.unsubscribe(notifications.subscription.id)
                assert await alice.subscriptions() == ()
        assert [each async for each in endings] == []

    run(story())


def test_x17_a_subscription_lives_until_an_instant(world: World) -> None:
    async def story() -> None:
        later = datetime.now(UTC) + timedelta(hours=1)
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT, until=later) as notifications:
            expires_us = notifications.subscription.expires_us
            assert expires_us == round(later.timestamp() * 1e6)
            renewed = await alice.renew(notifications.subscription.id, until=later + timedelta(hours=1))
            assert renewed.expires_us == expires_us + 3_600_000_000
            assert notifications.subscription == renewed
            with pytest.raises(Refused, match="no time zone"):
                alice.subscribe(SUBJECT, until=datetime(2030, 1, 1))
            with pytest.raises(Refused, match="not both"):
                await alice.subscribe("Other", until=later, lifetime_s=1.0).__aenter__()

    run(story())


def test_g09_x20_discarding_may_keep_what_is_queued(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            for keep_queue, expected in ((True, [1, 2, 3]), (False, [3])):
                async with world.agent() as alice, alice.subscribe(SUBJECT, keep=True):
                    pass
                await publish(bob, 1, 2)
                async with (
                    world.agent(keep=False, keep_queue=keep_queue) as alice,
                    alice.subscribe(SUBJECT) as notifications,
                ):
                    await publish(bob, 3)
                    assert await numbers(notifications, len(expected)) == expected
                    await nothing_more(notifications, 0.05)

    run(story())


def test_u02_a_gap_is_of_its_own_subscription_and_the_counts_add_up(world: World) -> None:
    """A bound of one subscription drops: its reader gets the number and the reason, the other reads everything."""

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            small = QueuePolicy(notifications_max=2)
            async with (
                world.agent() as alice,
                alice.subscribe(SUBJECT, "n > 0", keep=True, queue=small),
                alice.subscribe(SUBJECT, "n > 1", keep=True),
            ):
                pass
            await publish(bob, 1, 2, 3, 4, 5)
            async with (
                world.agent() as alice,
                alice.subscribe(SUBJECT, "n > 0", keep=True, queue=small, gaps=True) as bounded,
                alice.subscribe(SUBJECT, "n > 1", keep=True, gaps=True) as whole,
            ):
                read = [await anext(bounded) for _ in range(3)]
                gaps = [each for each in read if isinstance(each, wanderbus.Gap)]
                assert [each.event["n"] for each in read if isinstance(each, wanderbus.Notification)] == [4, 5]
                assert bounded.dropped == sum(gap.count for gap in gaps) == 3
                assert {gap.reason for gap in gaps} == {"subscription.queue.notifications_max"}
                assert await numbers(whole, 4) == [2, 3, 4, 5]
                assert whole.dropped == 0

    run(story())


def test_an_answer_to_an_end_that_is_unknown_is_refused(world: World) -> None:
    with pytest.raises(ConfigurationError):
        world.agent(on_ended="panic")


def test_a09_the_original_eci_takes_what_ends_as_it_comes(world: World) -> None:
    with pytest.raises(ConfigurationError, match="has no on_ended"):
        wanderbus.connect("eci://127.0.0.1:5999", on_ended="renew")

    async def story() -> None:
        async with world.server(eci_port=0, broker=BrokerConfig(sweep_s=0.05)) as server:
            assert server.eci_address is not None
            host, port = server.eci_address
            async with wanderbus.connect(f"eci://{host}:{port}") as alice:
                endings = alice.endings()
                async with alice.subscribe(SUBJECT, lifetime_s=0.05) as notifications:
                    assert (await anext(endings)).reason == "expired"
                    assert await rest(notifications) == []

    run(story())
