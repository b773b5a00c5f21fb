"""Agents of one user that move together: one update reports all of them (SPEC D-14)."""

from __future__ import annotations

from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, numbers, run
from wanderbus.errors import ConfigurationError


@pytest.mark.parametrize("over", ["udp", "tcp"])
def test_d14_two_agents_that_move_together(world: World, over: str) -> None:
    async def story() -> None:
        own: dict[str, Any] = {"data_transport": over}
        async with (
            world.server(),
            world.agent(device="phone", **own) as phone,
            world.agent(device="tablet", **own) as tablet,
            world.agent("bob") as bob,
            phone.subscribe(SUBJECT) as first,
            tablet.subscribe(SUBJECT) as second,
        ):
            for n, host in ((1, "127.0.0.7"), (2, "127.0.0.8")):
                await phone.rebind(host, along=[tablet])
                await bob.publish(SUBJECT, {"n": n})
                assert await numbers(first, 1) == [n]
                assert await numbers(second, 1) == [n]

    run(story())


def test_d14_agent_of_another_user(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, world.agent("bob") as bob:
            with pytest.raises(ConfigurationError, match="bob@localhost is not another device of"):
                await alice.rebind("127.0.0.7", along=[bob])
            assert alice.status == "CONNECTED"

    run(story())


def test_d14_address_that_cannot_be_used(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(device="phone") as phone, world.agent(device="tablet") as tablet:
            with pytest.raises(ConfigurationError, match="local_address"):
                await phone.rebind("192.0.2.1", along=[tablet])
            assert phone.status == tablet.status == "CONNECTED"
            assert await tablet.publish(SUBJECT, {"n": 1}) is not None

    run(story())


def test_d14_original_eci_has_no_devices(world: World) -> None:
    async def story() -> None:
        async with world.server(eci_port=0) as server:
            assert server.eci_address is not None
            host, port = server.eci_address
            async with (
                wanderbus.connect(f"eci://{host}:{port}") as first,
                wanderbus.connect(f"eci://{host}:{port}") as second,
            ):
                with pytest.raises(ConfigurationError, match="original ECI has no user with several devices"):
                    await first.rebind("127.0.0.2", along=[second])

    run(story())
