"""Several brokers at one registrar and proxy on loopback: each user reaches one of them (SPEC J-01, J-08)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import wanderbus
from tests.api.world import numbers, publish, run
from wanderbus.config import AccessSettings
from wanderbus.machine import shown
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.sip.proxy.access_choice import AccessChoice
from wanderbus.sip.proxy.access_policy import AccessPolicy, AccessRequest, RegisteredServer
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.response_forwarding import SERVER_PATIENCE_S

pytestmark = pytest.mark.integration

NAMES = [f"user{number}" for number in range(6)]
USERS = {name: f"secret of {name}" for name in (*NAMES, "broker")}
BROKER = "sip:broker@localhost"


class Place:
    """A proxy, the brokers at it, and the directory of all of them."""

    def __init__(self, directory: Path, proxy: ProxyServer) -> None:
        self.directory = directory
        self.proxy = proxy

    @property
    def location(self) -> LocationService:
        assert self.proxy._sip is not None
        assert self.proxy._sip.machine is not None
        return self.proxy._sip.machine.location

    @property
    def bindings(self) -> tuple[Binding, ...]:
        return self.location.bindings(BROKER, float("-inf"))

    def broker(self, name: str, **more: Any) -> wanderbus.Server:
        settings: dict[str, Any] = {"domain": "localhost", "users": USERS, "data_dir": self.directory / name}
        return wanderbus.Server(**settings, sip_server=shown(self.proxy.address), **more)

    def agent(self, name: str, device: str = "first") -> wanderbus.Agent:
        return wanderbus.connect(
            f"sip:{name}@localhost",
            password=USERS[name],
            server=shown(self.proxy.address),
            state_dir=self.directory / name / device,
        )

    def expected(self, name: str, bindings: Iterable[Binding]) -> str:
        """Return the contact that the hash chooses for a user."""
        contacts = {str(each.instance): each.contact for each in bindings}
        asked = AccessRequest(f"sip:{name}@localhost", "any", "", begins=False)
        return contacts[
            AccessChoice(AccessPolicy()).order(asked, [RegisteredServer(each, ()) for each in contacts], 0.0)[0]
        ]


@asynccontextmanager
async def place(directory: Path, access: AccessSettings | None = None) -> AsyncIterator[Place]:
    proxy = ProxyServer(domain="localhost", users=USERS, data_dir=directory / "proxy", port=0, access=access)
    async with proxy:
        yield Place(directory, proxy)


def broker_of(agent: wanderbus.Agent) -> str:
    """Return the contact of the broker that has the agent's session, "" while there is none."""
    machine: Any = agent._driver and agent._driver.machine
    session = machine._user_agent.sessions.get(machine._session)
    return "" if session is None or session.dialog is None else str(session.dialog.remote_target)


def test_j01_every_device_of_a_user_reaches_one_broker_while_that_is_registered(tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here, here.broker("first") as first, AsyncExitStack() as agents:
            async with here.broker("second"):
                assert len(here.bindings) == 2
                chosen = {name: here.expected(name, here.bindings) for name in NAMES}
                devices = [
                    (name, await agents.enter_async_context(here.agent(name, device)))
                    for name in NAMES
                    for device in ("first", "second")
                ]
                for name, agent in devices:
                    assert broker_of(agent) == chosen[name]
                name, one = devices[0]
                async with one.subscribe("Departure") as notifications:
                    await publish(devices[1][1], 1)
                    assert await numbers(notifications, 1) == [1], f"both devices of {name} are at one broker"
                await agents.aclose()
            remaining = f"sip:broker@{shown(first.broker_address)}"
            here.location.replace(BROKER, [each for each in here.bindings if each.contact == remaining])
            for name in NAMES:
                assert broker_of(await agents.enter_async_context(here.agent(name))) == remaining

    run(story())


def test_j01_the_nearest_broker_by_configuration(tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as first, first.broker("near") as near:
            port = near.broker_address[1]
        access = AccessSettings(nearest={"127.0.0.0/8": f"127.0.0.1:{port}"})
        async with (
            place(tmp_path, access) as here,
            here.broker("far"),
            here.broker("near", broker_port=port),
            AsyncExitStack() as agents,
        ):
            assert len(here.bindings) == 2
            for name in NAMES:
                agent = await agents.enter_async_context(here.agent(name))
                assert broker_of(agent) == f"sip:broker@127.0.0.1:{port}"

    run(story())


def test_j01_a_broker_that_died_without_a_word_is_passed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here, here.broker("living"):
            (living,) = here.bindings
            dead = msgspec.structs.replace(living, contact="sip:broker@127.0.0.1:9", call_id="dead")
            several = (msgspec.structs.replace(dead, instance=f"<urn:uuid:{number}>") for number in range(100))
            chosen = next(each for each in several if here.expected("user0", (living, each)) == dead.contact)
            here.location.replace(BROKER, (living, chosen))
            started = asyncio.get_running_loop().time()
            async with here.agent("user0") as agent:
                first_s = asyncio.get_running_loop().time() - started
                assert broker_of(agent) == living.contact
            started = asyncio.get_running_loop().time()
            async with here.agent("user0", "second") as agent:
                assert broker_of(agent) == living.contact
            assert first_s < SERVER_PATIENCE_S + 2.0
            assert asyncio.get_running_loop().time() - started < SERVER_PATIENCE_S, "it is avoided for a while"

    run(story())
