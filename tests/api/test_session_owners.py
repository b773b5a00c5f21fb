"""Two servers of a domain on loopback: the one that does not own a user's session answers 302 (SPEC J-01, L-06)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.event_domain import USERS, Domain
from tests.api.test_access_servers import broker_of
from tests.api.world import SUBJECT, numbers, run
from wanderbus.errors import AuthenticationError
from wanderbus.machine import shown

pytestmark = pytest.mark.integration


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain", 2)


def contact_of(server: wanderbus.Server) -> str:
    """The Contact of the server's broker."""
    return f"sip:broker@{shown(server.broker_address)}"


def device(domain: Domain, server: str, name: str = "phone") -> wanderbus.Agent:
    """A device of alice, which is the same at each server."""
    return domain.agent(server, state_dir=domain.directory / name)


async def subscribe_at_s1(domain: Domain) -> str:
    """Leave a durable subscription of alice at s1; return its id."""
    async with device(domain, "s1") as alice:
        return (await alice.subscribe(SUBJECT, keep=True)).subscription.id


def test_a_device_that_comes_to_another_server_gets_its_queue_from_the_owner(domain: Domain) -> None:
    async def story() -> None:
        async with domain.server("s1") as s1, domain.server("s2") as s2:
            kept = await subscribe_at_s1(domain)
            async with domain.agent("s2", "bob") as bob:
                assert broker_of(bob) == contact_of(s2), "bob has no session anywhere"
                for value in (1, 2):
                    await bob.publish(SUBJECT, {"n": value})
                async with device(domain, "s2") as alice, alice.subscribe(SUBJECT, keep=True) as reader:
                    assert broker_of(alice) == contact_of(s1)
                    assert reader.subscription.id == kept
                    assert await numbers(reader, 2) == [1, 2]
                    async with device(domain, "s2", "laptop") as laptop:
                        assert broker_of(laptop) == contact_of(s1)
                    await alice.rebind("127.0.0.7")
                    await bob.publish(SUBJECT, {"n": 3})
                    assert await numbers(reader, 1) == [3]
                    assert broker_of(alice) == contact_of(s1)

    run(story())


def test_a_user_whose_owner_is_down_is_served_by_the_other_server(domain: Domain) -> None:
    async def story() -> None:
        async with domain.server("s2") as s2:
            async with domain.server("s1") as s1:
                await subscribe_at_s1(domain)
            async with device(domain, "s2") as alice:
                assert broker_of(alice) == contact_of(s2)
            async with domain.server("s1") as s1, device(domain, "s2") as alice:
                assert broker_of(alice) == contact_of(s1), "s2 has no subscription of alice, so s1 is the owner"

    run(story())


def test_a_caller_who_cannot_reach_the_owner_is_served_after_the_redirection(domain: Domain) -> None:
    async def story() -> None:
        async with domain.server("s2") as s2:
            async with domain.server("s1"):
                await subscribe_at_s1(domain)
            async with domain.server("s1", advertise="127.0.0.250"), device(domain, "s2") as alice:
                assert broker_of(alice) == contact_of(s2)

    run(story())


def test_a_device_that_moves_in_its_session_is_not_redirected(domain: Domain) -> None:
    async def story() -> None:
        async with (
            domain.server("s1") as s1,
            domain.server("s2") as s2,
            device(domain, "s2") as phone,
            device(domain, "s1", "laptop") as laptop,
        ):
            assert broker_of(laptop) == contact_of(s1)
            await laptop.subscribe(SUBJECT, keep=True)
            calls = call_ids(s2)
            await phone.rebind("127.0.0.7")
            await asyncio.sleep(0.3)
            assert broker_of(phone) == contact_of(s2)
            assert call_ids(s2) == calls, "the re-INVITE has kept the session"
            await phone.publish(SUBJECT, {"n": 1})

    run(story())


def second(domain: Domain, at: wanderbus.Server, password: str) -> wanderbus.Server:
    """The server s2 without a proxy, which registers at that of another server."""
    settings: dict[str, Any] = {"domain": "localhost", "users": USERS, "broker_password": password}
    settings |= {"event_domain": domain.file, "event_server": "s2", "data_dir": domain.data_dir("s2")}
    return wanderbus.Server(**settings, sip_server=shown(at.address))


def test_a_second_broker_registers_at_the_proxy_of_the_first_server(domain: Domain) -> None:
    """One SIP domain on two machines: the first has the proxy (SPEC J-01)."""

    async def story() -> None:
        async with AsyncExitStack() as of_s2:
            async with domain.server("s1", broker_password="shared") as s1, AsyncExitStack() as stack:
                s2 = await of_s2.enter_async_context(second(domain, s1, "shared"))
                agents = {name: await stack.enter_async_context(domain.agent("s1", name)) for name in USERS}
                assert {broker_of(each) for each in agents.values()} == {contact_of(s1), contact_of(s2)}
                readers = [await stack.enter_async_context(each.subscribe(SUBJECT)) for each in agents.values()]
                await agents["bob"].publish(SUBJECT, {"n": 1})
                for reader in readers:
                    assert await numbers(reader, 1) == [1]
            async with domain.server("s1", broker_password="shared") as s1:
                assert set(brokers_at(s1)) == {contact_of(s1), contact_of(s2)}, "that of s2 has survived"

    run(story())


@pytest.mark.parametrize("shared", [None, "shared"])
def test_a_second_broker_without_the_password_is_refused(domain: Domain, shared: str | None) -> None:
    async def story() -> None:
        async with domain.server("s1", broker_password=shared) as s1:
            with pytest.raises(AuthenticationError):
                async with second(domain, s1, "guess"):
                    pass
            assert brokers_at(s1) == (contact_of(s1),)

    run(story())


def brokers_at(server: wanderbus.Server) -> tuple[str, ...]:
    """The Contacts of the brokers that are registered at the server."""
    sip: Any = server._sip
    return tuple(each.contact for each in sip.machine.location.bindings("sip:broker@localhost", float("-inf")))


def call_ids(server: wanderbus.Server) -> list[str]:
    """The Call-IDs of the server's sessions."""
    broker: Any = server._broker
    return list(broker.machine._user_agent.sessions)
