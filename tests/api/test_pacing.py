"""A publisher's own limit of its rate (SPEC G-22)."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.world import SUBJECT, World, crash, publish, run, take
from wanderbus.errors import Closed, ConfigurationError
from wanderbus.parameters.transports import RudpConfig
from wanderbus.tokens import SLICE_S


@pytest.mark.parametrize("outbox", [False, True])
def test_g22_the_rate_is_kept_and_so_is_the_order(world: World, outbox: bool) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent(publish_per_s=200.0) as alice,
            world.agent("bob") as bob,
            bob.subscribe(SUBJECT) as notifications,
        ):
            clock = asyncio.get_running_loop().time
            began = clock()
            calls = [alice.publish(SUBJECT, {"n": n}, outbox=outbox) for n in range(60)]  # type: ignore[call-overload]
            publishing = asyncio.gather(*calls)
            heard = await take(notifications, 60)
            await publishing
            assert [each.event["n"] for each in heard] == list(range(60))
            assert clock() - began >= (60 - 200.0 * SLICE_S) / 200.0 * 0.99

    run(story())


def test_g22_nothing_goes_through_while_the_broker_is_away_and_nothing_is_saved_up(world: World) -> None:
    hasty = RudpConfig(initial_timeout_s=0.05, retries_max=2)

    async def story() -> None:
        async with world.server():
            alice = await world.agent(publish_per_s=100.0, keepalive_s=0.1, rudp=hasty).__aenter__()
            changes = alice.changes()
        assert (await anext(changes)).status == "DISCONNECTED"
        publishing = asyncio.gather(*(alice.publish(SUBJECT, {"n": n}) for n in range(30)))
        await asyncio.sleep(0.3)
        assert not alice._publishing._open
        async with world.server():
            assert (await anext(changes)).status == "CONNECTED"
            clock = asyncio.get_running_loop().time
            began = clock()
            await publishing
            assert clock() - began >= (30 - 100.0 * SLICE_S) / 100.0 * 0.9
            await alice.close()

    run(story())


def test_closing_lets_those_go_who_wait_for_their_turn(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(publish_per_s=0.01) as alice:
            await publish(alice, 1)
            waiting = [asyncio.create_task(alice.publish(SUBJECT, {"n": n})) for n in (2, 3)]
            await asyncio.sleep(0.02)
            crash(alice)
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(each) for each in ends] == [Closed, Closed]

    run(story())


def test_a_rate_of_nothing_is_refused(world: World) -> None:
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigurationError):
            world.agent(publish_per_s=rate)
