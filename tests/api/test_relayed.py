"""A server whose calls pass a media relay: one in its process, one elsewhere, one of several (SPEC I-01 to I-05)."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

import wanderbus
from tests.api.world import PASSWORDS, World, crash, numbers, publish, run
from wanderbus.config import RelaySettings
from wanderbus.errors import AuthenticationError, ConfigurationError, Unreachable
from wanderbus.machine import Address, shown
from wanderbus.relay import RelayLimits
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.server.relay_server import RelayServer

pytestmark = pytest.mark.integration

PORTS = range(31_000, 32_000)
RELAY = RelaySettings(ports=f"{PORTS[0]}-{PORTS[-1]}")
ALL: dict[str, Any] = {"relay": RELAY, "relay_calls": "all"}


def remote(agent: wanderbus.Agent) -> Address:
    """Address that ``agent`` sends its data to."""
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


def test_i06_every_event_passes_the_relay_on_both_ways_and_none_goes_past_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test reads the numbers of events in the datagrams at the sockets, which are not encrypted here."""
    ways: dict[str, set[int]] = {"to the relay": set(), "from the relay": set(), "past the relay": set()}

    class Tapped(socket.socket):
        def sendto(self, data: Any, *more: Any) -> int:
            of_relay = self.getsockname()[1] in PORTS, more[-1][1] in PORTS
            way = {(False, True): "to the relay", (True, False): "from the relay"}.get(of_relay, "past the relay")
            ways[way] |= {int(number) for number in re.findall(rb"event (\d{4})", bytes(data))}
            return super().sendto(data, *more)

    monkeypatch.setattr(socket, "socket", Tapped)
    plain: dict[str, Any] = {"encryption": False, "data_transport": "udp"}

    async def story() -> None:
        async with (
            world.server(encryption=False, **ALL),
            world.agent("alice", **plain) as alice,
            world.agent("bob", local_address="127.0.0.1", **plain) as bob,
            bob.subscribe("Departure") as notifications,
        ):
            for number in range(30):
                await alice.publish("Departure", {"n": number, "text": f"event {number:04}"})
            assert await numbers(notifications, 30) == list(range(30))

    run(story())
    assert ways == {"to the relay": set(range(30)), "from the relay": set(range(30)), "past the relay": set()}


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
    """The Call-ID chooses the relay of a call; one of a few calls certainly chooses the relay that does not answer."""

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


def test_a_relay_elsewhere_knows_the_proxy_by_its_host(world: World) -> None:
    settings = RelaySettings(ports=RELAY.ports, ng_listen="127.0.0.3:0", ng_from=("127.0.0.2",))

    async def story() -> None:
        async with RelayServer(settings) as relay:
            told: dict[str, Any] = {"relays": (shown(relay.ng_address),), "relay_calls": "all", "host": "127.0.0.2"}
            async with (
                world.server(**told) as server,
                world.agent("alice", server=shown(server.address)) as alice,
            ):
                assert remote(alice)[1] in PORTS

    run(story())


def test_calls_of_strangers_take_no_ports(world: World) -> None:
    """A call is offered to the relay before the password is checked, and released when the caller is challenged."""
    one_call = msgspec.structs.replace(RELAY, limits=RelayLimits(calls_max=1))

    async def story() -> None:
        async with world.server(relay=one_call, relay_calls="all") as server:
            with pytest.raises(AuthenticationError):
                await world.agent("alice", password="guess").__aenter__()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("127.0.0.1", 0))
                stranger.setblocking(False)
                loop = asyncio.get_running_loop()
                for number in range(3):
                    stranger.sendto(invitation(stranger.getsockname(), number), server.address)
                    while (answer := await loop.sock_recv(stranger, 4096)).startswith(b"SIP/2.0 100"):
                        pass
                    assert answer.startswith(b"SIP/2.0 401")
            async with world.agent("alice") as alice:
                assert remote(alice)[1] in PORTS

    run(story())


def invitation(source: Address, number: int) -> bytes:
    """Return a call of the broker by somebody without a password."""
    sdp = "v=0\r\no=x 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9000 RTP/AVP 0\r\n"
    lines = (
        "INVITE sip:broker@localhost SIP/2.0",
        f"Via: SIP/2.0/UDP {shown(source)};branch=z9hG4bK{number}",
        f"From: <sip:mallory@localhost>;tag={number}",
        "To: <sip:broker@localhost>",
        f"Call-ID: {number}",
        "CSeq: 1 INVITE",
        f"Contact: <sip:mallory@{shown(source)}>",
        "Max-Forwards: 70",
        "Content-Type: application/sdp",
        f"Content-Length: {len(sdp)}",
    )
    return "\r\n".join((*lines, "", sdp)).encode()


def test_no_relay_answers(world: World) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            async with world.server(relays=(shown(silent.getsockname()),), relay_calls="all"):
                with pytest.raises(Unreachable, match=r"\(503 Media Relay Unreachable\); check that the server runs"):
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
