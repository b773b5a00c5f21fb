"""A device that publishes at another server while its own is down: once, and in order (SPEC K-04, L-04)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wanderbus
from tests.api.event_domain import Domain
from tests.api.test_access_servers import broker_of
from tests.api.test_session_owners import contact_of
from tests.api.world import SUBJECT, numbers, run, until

pytestmark = pytest.mark.integration

PAUSE_S = 0.3
"""Time in which a publish that does not wait is answered."""

WAITS = "publishes wait: s1, where this device was before"


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain", 2, keys='model = "decentralised"')


def alice_at(domain: Domain, server: str) -> wanderbus.Agent:
    """Alice's device; its SIP server is that of a server, which may not be the one that has its session."""
    return domain.agent(server, state_dir=domain.directory / "phone", heal_s=0.3, probe_s=0.1, keepalive_s=0.2)


def is_at(agent: wanderbus.Agent, server: wanderbus.Server) -> Callable[[], bool]:
    return lambda: agent.status == "CONNECTED" and broker_of(agent) == contact_of(server)


async def check_waiting(
    alice: wanderbus.Agent, caplog: pytest.LogCaptureFixture, *waiting: asyncio.Task[object]
) -> None:
    """Check that publishes wait for the former server, and that the application gets the reason."""
    await asyncio.sleep(PAUSE_S)
    assert not any(each.done() for each in waiting)
    await until(lambda: WAITS in caplog.text)


def test_l04_publishes_wait_for_the_former_server_and_come_once_and_in_order(
    domain: Domain, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with domain.server("s2") as s2, AsyncExitStack() as of_s1:
            s1 = await of_s1.enter_async_context(domain.server("s1"))
            async with domain.agent("s2", "bob") as bob, bob.subscribe(SUBJECT) as reader:
                async with alice_at(domain, "s1") as alice:
                    await alice.publish(SUBJECT, {"n": 0})
                async with alice_at(domain, "s2") as alice:
                    await until(is_at(alice, s1))
                    await alice.publish(SUBJECT, {"n": 1})
                    await of_s1.aclose()
                    await until(is_at(alice, s2))
                    waiting = [asyncio.create_task(alice.publish(SUBJECT, {"n": number})) for number in (2, 3)]
                    await check_waiting(alice, caplog, *waiting)
                    async with domain.server("s1"):
                        await asyncio.gather(*waiting)
                        await alice.publish(SUBJECT, {"n": 4})
                        assert await numbers(reader, 5) == [0, 1, 2, 3, 4]

    run(story())


def test_l04_a_later_agent_of_the_device_knows_its_former_server(
    domain: Domain, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with domain.server("s2"):
            async with domain.server("s1"), alice_at(domain, "s1") as alice:
                await alice.publish(SUBJECT, {"n": 0})
            async with alice_at(domain, "s2") as alice:
                waiting = asyncio.create_task(alice.publish(SUBJECT, {"n": 1}))
                await check_waiting(alice, caplog, waiting)
                async with domain.server("s1"):
                    await waiting

    run(story())
