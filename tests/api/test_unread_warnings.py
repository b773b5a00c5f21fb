"""Warnings about subscriptions without a reader, in the logs of server and agent (SPEC G-25)."""

from __future__ import annotations

import logging

import pytest

from tests.api.world import SUBJECT, World, publish, run, until
from wanderbus.parameters.broker import BrokerConfig

QUICK = BrokerConfig(blocked_s=0.1, sweep_s=0.05)


def test_g25_server_and_agent_warn_of_a_kept_subscription_without_a_reader(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings(logger: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == logger]

    async def story() -> str:
        async with world.server(broker=QUICK), world.agent("bob") as bob, world.agent() as alice:
            async with alice.subscribe(SUBJECT, "n > 0", keep=True, lifetime_s=3600.0) as notifications:
                identity = notifications.subscription.id
            await publish(bob, 1, 2)
            await until(lambda: warnings("wanderbus.agent"))
            return identity

    with caplog.at_level(logging.WARNING):
        identity = run(story())
    (agents,) = warnings("wanderbus.agent")
    assert agents.startswith(f"2 notifications are queued for subscription {identity} ('Departure' where 'n > 0')")
    assert f"subscribe to it again, or end it with wanderbus unsubscribe {identity}; it expires at 20" in agents
    (servers,) = warnings("wanderbus.server")
    assert servers.startswith(f"2 notifications wait for subscription {identity} of sip:alice@localhost in session")


def test_g25_the_server_warns_of_a_reader_that_stands_still(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        settings = BrokerConfig(blocked_s=0.1, sweep_s=0.05, unacknowledged_max=2)
        async with (
            world.server(broker=settings),
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT),
        ):
            await publish(bob, 1, 2, 3)
            await until(lambda: "has acknowledged nothing for" in caplog.text)

    with caplog.at_level(logging.WARNING, "wanderbus.server"):
        run(story())
    assert caplog.text.count("3 notifications wait for subscription") == 1
