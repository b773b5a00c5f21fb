"""Clocks of the server and of agents are set while both run: nothing is lost, repeated, reordered or ended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.world import SUBJECT, World, nothing_more, run
from wanderbus.client.notifications import Notifications
from wanderbus.runtime import system_random

HOUR_US = 3_600_000_000
DECADE_US = 3_650 * 24 * HOUR_US
STEPS_US = (HOUR_US, DECADE_US, -DECADE_US, -HOUR_US, 0)
SERVER_CLOCKS = ("runtime.net.driver", "runtime.files.registrations", "server.broker_role")
AGENT_CLOCKS = ("client.agent", "client.publishes")


class Clock:
    """The wall clock of one side, and by how much it was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, places: tuple[str, ...]) -> None:
        self.set_us = 0
        for place in places:
            monkeypatch.setattr(f"wanderbus.{place}.wall_us", self.read)

    def read(self) -> int:
        return system_random.wall_us() + self.set_us


async def values_of(notifications: Notifications[Any], count: int) -> list[tuple[object, int]]:
    """Take some notifications; return each event's ``n``, and by how many years its publisher's clock was off."""
    found: list[tuple[object, int]] = []
    for _ in range(count):
        event = (await anext(notifications)).event
        assert event.published_us is not None
        found.append((event["n"], round((event.published_us - system_random.wall_us()) / DECADE_US)))
    return found


@pytest.mark.parametrize("data_transport", ["udp", "tcp"])
@pytest.mark.parametrize("whose", ["server", "agents", "both"])
def test_events_come_once_and_in_order_and_nobody_is_disconnected(
    world: World, monkeypatch: pytest.MonkeyPatch, whose: str, data_transport: str
) -> None:
    server, agents = Clock(monkeypatch, SERVER_CLOCKS), Clock(monkeypatch, AGENT_CLOCKS)
    clocks = {"server": [server], "agents": [agents], "both": [server, agents]}[whose]

    async def story() -> None:
        async with (
            world.server(),
            world.agent(data_transport=data_transport) as alice,
            world.agent("bob", data_transport=data_transport) as bob,
            bob.subscribe(SUBJECT, lifetime_s=60.0) as notifications,
        ):
            changes, endings = bob.changes(), bob.endings()
            for number, set_us in enumerate(STEPS_US):
                for clock in clocks:
                    clock.set_us = set_us
                await alice.publish(SUBJECT, {"n": 2 * number})
                await alice.publish(SUBJECT, {"n": 2 * number + 1}, outbox=True)
                off = round(agents.set_us / DECADE_US)
                assert await values_of(notifications, 2) == [(2 * number, off), (2 * number + 1, off)]
            await nothing_more(notifications)
            assert len(await bob.subscriptions()) == 1
        assert [change.reason async for change in changes] == ["the agent left"]
        assert [ending async for ending in endings] == []

    run(story())


@pytest.mark.parametrize("set_us", [DECADE_US, -DECADE_US, HOUR_US, -HOUR_US])
def test_a_server_that_starts_again_with_another_time_has_what_waited(
    world: World, monkeypatch: pytest.MonkeyPatch, set_us: int
) -> None:
    """Also with certificates and registrations that were written under the previous time."""
    clock = Clock(monkeypatch, (*SERVER_CLOCKS, "runtime.net.certificate"))

    async def story() -> None:
        async with (
            world.server(),
            world.agent(data_transport="tcp") as alice,
            world.agent("bob", data_transport="tcp") as bob,
            bob.subscribe(SUBJECT, keep=True),
        ):
            await alice.publish(SUBJECT, {"n": 1})
        clock.set_us = set_us
        async with (
            world.server(),
            world.agent(data_transport="tcp") as alice,
            world.agent("bob", data_transport="tcp") as bob,
            bob.subscribe(SUBJECT, keep=True) as notifications,
        ):
            await alice.publish(SUBJECT, {"n": 2})
            assert [n for n, _ in await values_of(notifications, 2)] == [1, 2]
            await nothing_more(notifications)

    run(story())
