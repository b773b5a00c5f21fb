"""Counts of filtering publishers that end quickly are kept by the server (SPEC N-01)."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.world import SUBJECT, World, run
from wanderbus.parameters.broker import BrokerConfig


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("count", [1, 3, 400])
def test_n01_the_counts_of_a_publisher_that_ends_at_once_are_kept(world: World, count: int, leaves: bool) -> None:
    async def story() -> None:
        config = BrokerConfig(roles={"bob": "operator"})
        async with (
            world.server(broker=config),
            world.agent("bob") as bob,
            bob.subscribe(SUBJECT, "n < 3"),
        ):
            examined = held_back = 0
            for _ in range(3):
                alice = await world.agent(publisher_filtering=True)
                await asyncio.gather(*(alice.publish(SUBJECT, {"n": 7}) for _ in range(count)))
                examined, held_back = examined + count, held_back + alice.held_back
                if leaves:
                    await alice.leave()
                await alice.close()
            (row, *_) = [row async for row in bob.operator.filtering()]
            assert (row.phase, row.examined, row.held_back) == ("publisher", examined, held_back)

    run(story())
