"""The agent as applications use it, end to end on loopback (SPEC A-01, A-03, A-11, D-08, E-07)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

import wanderbus
from tests.api.world import SUBJECT, World, nothing_more, numbers, publish, run, service, take, until
from wanderbus.client.agent_sockets import MobileEnd
from wanderbus.errors import Closed
from wanderbus.event import merge_repeated


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_the_documented_shape(tmp_path: Path, world: World, loop_factory: Any) -> None:
    async def story() -> None:
        async with (
            world.server(),
            wanderbus.connect(
                "sip:alice@localhost",
                password="secret",
                server=world.address,
                broker="sip:broker@localhost",
                state_dir=tmp_path / "alice",
                resume=None,
                local_address=None,
            ) as alice,
        ):
            assert alice.status == "CONNECTED"
            assert alice.uri == "sip:alice@localhost"
            async with alice.subscribe(SUBJECT, "(Dest == IAH)", keep=True) as notifications:
                identity = await alice.publish(SUBJECT, {"Dest": "IAH", "DepDelay": 42.0})
                async for notification in notifications:
                    assert notification.event["Dest"] == "IAH"
                    assert notification.event["DepDelay"] == 42.0
                    assert notification.subscriptions == (notifications.subscription.id,)
                    assert notification.position.number == 1
                    assert notification.id == identity
                    assert notification.redelivered is False
                    break
                await alice.rebind("127.0.0.7")
            assert [each.expression for each in await alice.subscriptions()] == ["(Dest == IAH)"]
        assert alice.status == "DISCONNECTED"

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


def test_agent_and_subscription_open_without_a_block(world: World) -> None:
    async def story() -> None:
        async with world.server():
            alice = await world.agent()
            assert alice.status == "CONNECTED"
            notifications = await alice.subscribe(SUBJECT)
            assert [each.id for each in await alice.subscriptions()] == [notifications.subscription.id]
            await alice.publish(SUBJECT, {"n": 1})
            assert (await anext(notifications)).event["n"] == 1
            with pytest.raises(Closed):
                await notifications
            await alice.close()
            assert alice.status == "DISCONNECTED"
            with pytest.raises(Closed):
                await alice

    run(story())


def test_a_subscription_that_was_awaited_ends_with_its_agent(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            alice = await world.agent()
            await alice.subscribe(SUBJECT)
            await alice.close()
            async with world.agent() as again:
                assert await again.subscriptions() == ()
            assert bob.status == "CONNECTED"

    run(story())


def test_an_event_is_published_whole(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await alice.publish(wanderbus.Event(SUBJECT, {"n": 1}, published_us=5, arrived_us=7))
            await alice.publish(wanderbus.Event(SUBJECT, {"n": 2}))
            first, second = [(await anext(notifications)).event for _ in range(2)]
            assert (first["n"], first.published_us) == (1, 5)
            assert second["n"] == 2
            assert second.published_us is not None
            with pytest.raises(TypeError, match="beside an Event"):
                await alice.publish(wanderbus.Event(SUBJECT, {}), {"n": 3})  # type: ignore[call-overload]
            with pytest.raises(TypeError, match="needs a subject and attributes"):
                await alice.publish(SUBJECT)  # type: ignore[call-overload]

    run(story())


@pytest.mark.parametrize("outbox", [False, True])
def test_a16_x4_an_attribute_may_be_repeated(world: World, outbox: bool) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            alice.subscribe(SUBJECT, "any Score > 8") as some,
            alice.subscribe(SUBJECT, "all Score > 5") as every,
        ):
            repeated = merge_repeated([("Score", 6), ("Name", "Ann"), ("Score", 9.5)])
            events: list[dict[str, Any]] = [repeated, {"Score": []}]
            for attributes in events:
                if outbox:
                    await alice.publish(SUBJECT, attributes, outbox=True)
                else:
                    await alice.publish(SUBJECT, attributes)
            first = await anext(some)
            assert first.event.attributes == {"Score": [6, 9.5], "Name": "Ann"}
            assert (first.event.get_all("Score"), first.event.get_all("Name")) == ([6, 9.5], ["Ann"])
            assert [(await anext(every)).event.get_all("Score") for _ in range(2)] == [[6, 9.5], []]

    run(story())


def test_one_agent_is_publisher_and_subscriber(world: World) -> None:
    """SPEC A-01: both roles in one user, and more than one subscription at a time."""

    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            alice.subscribe(SUBJECT, "(n < 3)") as low,
            alice.subscribe(SUBJECT, "(n > 1)") as high,
        ):
            await publish(alice, 1, 2, 3)
            assert await numbers(low, 2) == [1, 2]
            both = await take(high, 2)
            assert [each.event["n"] for each in both] == [2, 3]
            assert set(both[0].subscriptions) == {low.subscription.id, high.subscription.id}
            await nothing_more(low)

    run(story())


def test_another_subject_is_not_notified(world: World) -> None:
    """SPEC A-03: a subscription hears of its subject alone."""

    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await alice.publish("Arrival", {"n": 1})
            await alice.publish("departure", {"n": 2})
            await alice.publish(SUBJECT, {"n": 3})
            assert await numbers(notifications, 1) == [3]
            await nothing_more(notifications)

    run(story())


def test_two_users_receive_each_others_events(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent("alice") as alice,
            world.agent("bob") as bob,
            alice.subscribe(SUBJECT) as to_alice,
            bob.subscribe(SUBJECT, "(n == 2)") as to_bob,
        ):
            await publish(alice, 1, 2)
            await publish(bob, 3)
            assert await numbers(to_alice, 3) == [1, 2, 3]
            assert await numbers(to_bob, 1) == [2]
            assert await alice.subscriptions() != await bob.subscriptions()

    run(story())


def test_moving_in_the_middle_of_a_stream_loses_nothing(world: World) -> None:
    """SPEC D-08: both ends of the stream move, again and again, while events flow."""
    count = 400

    async def story() -> list[Any]:
        async with (
            world.server(),
            world.agent("alice", local_address="127.0.0.1") as alice,
            world.agent("bob", local_address="127.0.0.1") as bob,
            alice.subscribe(SUBJECT) as notifications,
        ):
            reading = asyncio.create_task(numbers(notifications, count))
            publishing = []
            for value in range(count):
                publishing.append(asyncio.create_task(bob.publish(SUBJECT, {"n": value})))
                if value % 50 == 25:
                    await alice.rebind(f"127.0.0.{2 + value // 50}")
                if value % 100 == 75:
                    await bob.rebind(f"127.0.1.{2 + value // 50}")
                await asyncio.sleep(0.0005)
            await asyncio.gather(*publishing)
            return await reading

    assert run(story()) == list(range(count))


def test_publishes_keep_the_order_of_their_calls(world: World) -> None:
    """More at once than may be unsettled, from two tasks: the log has them as they were called."""
    called: list[int] = []
    made: dict[int, wanderbus.EventId] = {}

    async def story() -> None:
        async with world.server(), world.agent() as alice:

            async def one(value: int) -> None:
                called.append(value)
                made[value] = await alice.publish(SUBJECT, {"n": value})

            async def source(first: int) -> None:
                async with asyncio.TaskGroup() as group:
                    for value in range(first, first + 700):
                        group.create_task(one(value))
                        if value % 7 == 0:
                            await asyncio.sleep(0)

            await asyncio.gather(source(0), source(10_000))

    run(story())
    offsets = [made[value].number for value in called]
    assert len(offsets) == 1_400
    assert offsets == sorted(offsets)
    assert called != sorted(called), "the two tasks did not interleave, so this shows nothing"


def test_every_type_of_attribute_arrives_as_it_was(world: World) -> None:
    """SPEC A-13: String, Integer, Double, Boolean, Date, and lists of them; the publication time is the caller's."""
    from datetime import UTC, datetime

    attributes: dict[str, Any] = {
        "text": "Zürich ✈ \n\"'",
        "least": -(2**63),
        "most": 2**63 - 1,
        "real": 4.5,
        "whole": 4.0,
        "yes": True,
        "date": datetime(2013, 1, 1, 12, 30, 5, 123456, UTC),
        "list": ["a", 1, 2.5, False],
        "empty": [],
    }

    async def story() -> wanderbus.Notification:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await alice.publish(SUBJECT, attributes, published_us=12_345)
            return (await take(notifications, 1))[0]

    event = run(story()).event
    assert event.attributes == attributes
    assert [type(value) for value in event.attributes.values()] == [type(value) for value in attributes.values()]
    assert event.published_us == 12_345


def test_an_event_may_be_as_large_as_stated(world: World) -> None:
    from wanderbus.limits import EVENT_BYTES_MAX

    text = "x" * (EVENT_BYTES_MAX - 100)

    async def story() -> Any:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            await alice.publish(SUBJECT, {"n": text})
            return (await numbers(notifications, 1))[0]

    assert run(story()) == text


def test_a_second_agent_in_the_same_directory_is_another_device_for_a_while(world: World) -> None:
    """DESIGN 5.4: a directory in use gives an ephemeral device, which leaves the session when it is closed."""

    async def story() -> None:
        async with world.server() as server:
            devices = service(server).broker.state.devices
            async with world.agent() as first, first.subscribe(SUBJECT, keep=True) as to_first:
                async with world.agent() as second, second.subscribe(SUBJECT, keep=True) as to_second:
                    await publish(second, 1)
                    assert await numbers(to_first, 1) == [1]
                    assert await numbers(to_second, 1) == [1]
                    assert len(devices) == 2
                await until(lambda: len(devices) == 1)
                await publish(first, 2)
                assert await numbers(to_first, 1) == [2]

    run(story())


def test_changes_are_reported_from_the_call_on(world: World) -> None:
    """No change between the call and the first iteration is missed; closing the agent ends the iteration."""

    async def story() -> None:
        async with world.server():
            agent = world.agent(local_address="127.0.0.1")
            early = agent.changes()
            async with agent:
                first = await anext(early)
                changes = agent.changes()
                await agent.rebind("127.0.0.2")
                async with agent.subscribe(SUBJECT):
                    await until(lambda: not changes._queue.empty())
                change = await anext(changes)
                assert change.status == "CONNECTED"
                assert change.address.startswith("127.0.0.2:")
                assert change.at_us >= first.at_us
            assert [each.reason async for each in changes] == ["the agent left"]
            assert [each.address async for each in early] == [change.address] * 2
            assert [each async for each in agent.changes()] == [], "a closed agent has no more to tell"

    run(story())


def test_an_abandoned_iteration_costs_nothing(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            for _ in range(10):
                alice.changes()
            reader = asyncio.create_task(anext(alice.changes()))
            await asyncio.sleep(0)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            del reader
            await asyncio.sleep(0)
            import gc

            gc.collect()
            assert len(alice._changes._listening) == 0

    run(story())


def test_an_agent_follows_the_route_by_default(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC D-05: a change reported by the address monitor is a move; ``rebind`` stops following it."""
    from wanderbus.runtime.net import addresses

    monkeypatch.setattr(addresses, "POLL_S", 0.01)

    async def story() -> None:
        async with world.server(), world.agent() as alice:
            changes = alice.changes()
            end = alice._end
            assert isinstance(end, MobileEnd)
            monitor = end._monitor
            assert monitor is not None
            monkeypatch.setattr(addresses, "address_towards", lambda server: "127.0.0.3")
            monitor._look()
            assert (await anext(changes)).address.startswith("127.0.0.3:")
            await alice.rebind("127.0.0.4")
            assert (await anext(changes)).address.startswith("127.0.0.4:")
            assert end._monitor is None
            await publish(alice, 1)

    run(story())
