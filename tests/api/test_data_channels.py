"""Transports of the data channel, which both sides have to accept (SPEC F-01, U-05; DESIGN 6.3)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.api.world import SUBJECT, World, files, numbers, publish, run
from wanderbus.client.machine import core
from wanderbus.errors import ConfigurationError, Refused
from wanderbus.parameters.transports import RudpConfig
from wanderbus.runtime.net.free_port import free_port

every_kind = pytest.mark.parametrize(
    ("encryption", "data_transport"),
    [(True, "udp"), (True, "tcp"), (False, "udp"), (False, "tcp")],
    ids=["udp", "tls", "plain-udp", "plain-tcp"],
)
over_both = pytest.mark.parametrize("data_transport", ["udp", "tcp"])


@every_kind
def test_f01_events_travel_over_what_was_asked_for_also_after_a_move(
    world: World, encryption: bool, data_transport: str
) -> None:
    how: dict[str, Any] = {"encryption": encryption, "data_transport": data_transport}

    async def story() -> None:
        async with (
            world.server(encryption=encryption),
            world.agent(**how) as alice,
            world.agent("bob", **how) as bob,
            alice.subscribe(SUBJECT) as notifications,
        ):
            await publish(bob, *range(100))
            assert await numbers(notifications, 100) == list(range(100))
            await alice.rebind("127.0.0.2")
            await bob.rebind("127.0.0.3")
            await publish(bob, *range(100, 200))
            assert await numbers(notifications, 100) == list(range(100, 200))

    run(story())


def test_q02_events_use_the_port_that_is_given_also_after_a_move(world: World) -> None:
    port = free_port("127.0.0.1")

    async def story() -> None:
        async with world.server(), world.agent(data_port=port) as alice, alice.subscribe(SUBJECT) as notifications:
            for address in ("127.0.0.1", "127.0.0.2"):
                driver = alice._driver
                assert driver is not None
                assert driver._sockets[core.DATA_SOCKET].getsockname() == (address, port)
                await publish(alice, 1)
                assert await numbers(notifications, 1) == [1]
                if address == "127.0.0.1":
                    await alice.rebind("127.0.0.2")

    run(story())


@pytest.mark.parametrize("port", [-1, 65_536, None])
def test_q02_a_port_that_cannot_be_used_is_named(world: World, port: int | None) -> None:
    async def story() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            used = other.getsockname()[1]
            reason = f"port {used} of 127.0.0.1 cannot be used: Address already in use"
            with pytest.raises(ConfigurationError, match=f"data_port: ({port} is no port|{reason})"):
                async with world.server(), world.agent(data_port=used if port is None else port):
                    pass

    run(story())


@every_kind
def test_design_6_3_a_restarted_server_is_found_at_its_ports_with_its_keys(
    world: World, encryption: bool, data_transport: str
) -> None:
    how: dict[str, Any] = {"encryption": encryption, "data_transport": data_transport}

    async def story() -> None:
        kept = []
        async with world.server(encryption=encryption) as server:
            kept.append((files(server).identity, files(server).reset_key))
            alice = await world.agent(**how).__aenter__()
            notifications = await alice.subscribe(SUBJECT).__aenter__()
            await publish(alice, 1)
        meanwhile = asyncio.create_task(alice.publish(SUBJECT, {"n": 2}))
        async with world.server(encryption=encryption) as server:
            kept.append((files(server).identity, files(server).reset_key))
            await meanwhile
            assert await numbers(notifications, 2) == [1, 2]
            await notifications.__aexit__(None, None, None)
            await alice.close()
        assert kept[0] == kept[1]

    run(story())


def test_a_server_whose_tcp_port_was_taken_meanwhile_is_found_again(world: World) -> None:
    async def story() -> None:
        async with world.server() as server:
            alice = await world.agent(data_transport="tcp").__aenter__()
            before = files(server).identity
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as squatter:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("127.0.0.1", before.ports["stream_port"]))
            squatter.listen()
            async with world.server() as server:
                assert files(server).identity.ports["stream_port"] != before.ports["stream_port"]
                await publish(alice, 1)
                await alice.close()

    run(story())


@over_both
@pytest.mark.parametrize("server_encrypts", [True, False])
def test_u05_a_mismatch_of_encryption_is_one_line(world: World, server_encrypts: bool, data_transport: Any) -> None:
    async def story() -> None:
        async with world.server(encryption=server_encrypts):
            agent = world.agent(encryption=not server_encrypts, data_transport=data_transport)
            with pytest.raises(Refused, match="give --no-encryption to both, or to neither") as caught:
                await agent.__aenter__()
            assert "\n" not in str(caught.value)

    run(story())


def test_an_unknown_transport_is_a_configuration_error(world: World) -> None:
    with pytest.raises(ConfigurationError, match="invalid value 'sctp'"):
        world.agent(server="127.0.0.1", data_transport="sctp")


@every_kind
def test_u05_nothing_of_an_event_can_be_read_on_the_way_unless_both_want_it_so(
    world: World, encryption: bool, data_transport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test records the datagrams at the sockets, and the bytes of TCP below TLS."""
    seen: list[bytes] = []

    class Tapped(socket.socket):
        def sendto(self, data: Any, *more: Any) -> int:
            seen.append(bytes(data))
            return super().sendto(data, *more)

        def send(self, data: Any, *more: Any) -> int:
            seen.append(bytes(data))
            return super().send(data, *more)

    monkeypatch.setattr(socket, "socket", Tapped)

    async def story() -> None:
        async with (
            world.server(encryption=encryption),
            world.agent(encryption=encryption, data_transport=data_transport) as alice,
            alice.subscribe(SUBJECT) as notifications,
        ):
            await alice.publish(SUBJECT, {"n": 1, "text": "for nobody else's eyes"})
            await numbers(notifications, 1)

    run(story())
    assert any(b"nobody else" in data for data in seen) is not encryption


def test_f10_an_agent_has_the_parameters_that_it_was_given(world: World) -> None:
    seen: list[RudpConfig] = []

    class Spied(core.AgentMachine):
        def __init__(self, *given: Any, rudp: RudpConfig | None, **named: Any) -> None:
            assert rudp is not None
            seen.append(rudp)
            super().__init__(*given, rudp=rudp, **named)

    async def story() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core, "AgentMachine", Spied)
            async with world.server(), world.agent(rudp=RudpConfig(messages_per_datagram_max=1)) as alice:
                await publish(alice, 1)

    run(story())
    assert [config.messages_per_datagram_max for config in seen] == [1]
