"""A server whose calls pass a media relay: one in its process, one elsewhere, one of several (SPEC I-01 to I-05)."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import PASSWORDS, World, crash, numbers, publish, run
from wanderbus.api.proxy_server import ProxyServer
from wanderbus.config import RelaySettings
from wanderbus.errors import ConfigurationError, Unreachable
from wanderbus.machine import Address, shown
from wanderbus.runtime.relaying import RelayServer

pytestmark = pytest.mark.integration

PORTS = range(31_000, 32_000)
RELAY = RelaySettings(ports=f"{PORTS[0]}-{PORTS[-1]}")
ALL: dict[str, Any] = {"relay": RELAY, "relay_calls": "all"}


def remote(agent: wanderbus.Agent) -> Address:
    """Where ``agent`` sends its data."""
    machine: Any = agent._driver and agent._driver.machine
    address: Address = machine._channel.remote.address
    return address


def elsewhere() -> RelayServer:
    return RelayServer(RelaySettings(ports=RELAY.ports, ng_listen="127.0.0.1:0"))


@pytest.mark.parametrize("data_transport", ["udp", "tcp"])
def test_events_pass_the_relay_beside_it_and_a_move_does_too(world: World, data_transport: str) -> None:
    async def story() -> None:
        async with (
            world.server(**ALL),
            world.agent("alice") as alice,
            world.agent("bob", local_address="127.0.0.1", data_transport=data_transport) as bob,
            bob.subscribe("Departure") as notifications,
        ):
            for value, local in enumerate(("127.0.0.1", "127.0.0.2")):
                if value:
                    changes = aiter(bob.changes())
                    await bob.rebind(local)
                    assert (await anext(changes)).status == "CONNECTED"
                assert {remote(alice)[1], remote(bob)[1]} <= set(PORTS)
                await publish(alice, value)
                assert await numbers(notifications, 1) == [value]

    run(story())


def test_the_relay_ends_with_the_server(world: World) -> None:
    """Its ports are free, though there are calls."""

    async def story() -> None:
        async with world.server(**ALL):
            alice = world.agent("alice")
            await alice.__aenter__()
            address = remote(alice)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, pytest.raises(OSError, match="in use"):
                probe.bind(address)
        crash(alice)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(address)

    run(story())


def test_without_nat_nothing_passes_it_unless_all_does(world: World) -> None:
    async def story() -> None:
        async with world.server(relay=RELAY), world.agent("alice") as alice:
            assert remote(alice)[1] not in PORTS

    run(story())


def test_a_relay_elsewhere_and_one_that_does_not_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each call is for one of them, by its Call-ID; so that one of a few is sure to ask the one that is not there."""

    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            async with elsewhere() as relay:
                relays = (shown(silent.getsockname()), shown(relay.ng_address))
                async with world.server(relays=relays, relay_calls="all"):
                    for device in map(str, range(8)):
                        async with world.agent("alice", device=device) as alice:
                            assert remote(alice)[1] in PORTS
                        if caplog.records:
                            break
                assert relay.figures()["counters"]["calls"] > 0
                assert f"the media relay {relays[0]} does not answer" in caplog.text

    with caplog.at_level(logging.WARNING, "wanderbus.sip"):
        run(story())


def test_no_relay_answers(world: World) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            async with world.server(relays=(shown(silent.getsockname()),), relay_calls="all"):
                with pytest.raises(Unreachable):
                    await world.agent("alice", connect_s_max=5.0).__aenter__()

    run(story())


def test_a_proxy_with_a_relay_and_the_broker_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        users = PASSWORDS | {"broker": "quorum"}
        given: dict[str, Any] = {"domain": "localhost", "users": users}
        async with ProxyServer(**given, **ALL, data_dir=tmp_path / "proxy", port=0) as proxy:
            place = shown(proxy.address)
            async with (
                wanderbus.Server(**given, data_dir=tmp_path / "broker", sip_server=place),
                wanderbus.connect(
                    "alice@localhost", password="secret", server=place, state_dir=tmp_path / "a"
                ) as alice,
            ):
                assert remote(alice)[1] in PORTS
                await publish(alice, 1)

    run(story())


def test_a_relay_at_an_address_that_is_not_here(world: World) -> None:
    async def story() -> None:
        with pytest.raises(ConfigurationError, match=r"relay.address 203.0.113.9 or ng_listen .* cannot be used"):
            async with world.server(relay=RelaySettings(address="203.0.113.9")):
                pass

    run(story())


def test_relays_on_another_loopback_are_commanded_from_there(world: World) -> None:
    async def story() -> None:
        async with (
            RelayServer(RelaySettings(ports=RELAY.ports, ng_listen="[::1]:0")) as relay,
            world.server(relays=(shown(relay.ng_address),), relay_calls="all"),
            world.agent("alice") as alice,
        ):
            assert remote(alice)[1] in PORTS

    run(story())
