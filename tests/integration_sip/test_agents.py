"""Agents and server over UDP, TCP and TLS, IPv4 and IPv6, on real sockets: publish, subscribe, move (SPEC Q-02)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Certificates, make_certificates
from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect
from wanderbus.client.reports import StatusChange
from wanderbus.errors import ConfigurationError, Unreachable
from wanderbus.machine import shown
from wanderbus.server.server import Server

pytestmark = pytest.mark.integration

USERS = {"alice": "wonder", "bob": "builder"}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_at(host: str, data: Path, certificates: Certificates | None, **options: Any) -> Server:
    if certificates is not None:
        options |= {"tls_certificate": certificates.certificate, "tls_key": certificates.key}
    return Server(domain="localhost", data_dir=data, users=USERS, host=host, port=0, **options)


def agent_of(
    user: str, server: Server, transport: Any, state: Path, certificates: Certificates, **options: Any
) -> Agent:
    address = server.tls_address if transport == "tls" else server.address
    assert address is not None
    ca_file = certificates.authority if transport == "tls" else None
    options = {"server": shown(address), "transport": transport, "ca_file": ca_file} | options
    return connect(f"sip:{user}@localhost", password=USERS[user], state_dir=state / user, **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("transport", ["udp", "tcp", "tls"])
def test_publish_and_subscribe(transport: str, host: str, tmp_path: Path, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            server_at(host, tmp_path / "data", certificates) as server,
            agent_of("alice", server, transport, tmp_path, certificates) as alice,
            agent_of("bob", server, transport, tmp_path, certificates) as bob,
            bob.subscribe("Departure", "(Dest == IAH)") as notifications,
        ):
            await alice.publish("Departure", {"Dest": "IAH"})
            async for notification in notifications:
                assert notification.event["Dest"] == "IAH"
                break

    asyncio.run(scenario())


async def next_change(agent: Agent) -> StatusChange:
    async for change in agent.changes():
        return change
    raise AssertionError("the agent was closed")


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_a_move_opens_a_new_connection(transport: str, tmp_path: Path, certificates: Certificates) -> None:
    """SPEC D-08: the previous connection belongs to an address that is gone."""

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), server_at("127.0.0.1", tmp_path / "data", certificates) as server:
            options = {"local_address": "127.0.0.1"}
            async with (
                agent_of("bob", server, transport, tmp_path, certificates, **options) as bob,
                bob.subscribe("News") as notifications,
            ):
                moved = asyncio.get_running_loop().create_task(next_change(bob))
                await asyncio.sleep(0)
                await bob.rebind("127.0.0.2")
                change = await moved
                assert (change.status, change.address.partition(":")[0]) == ("CONNECTED", "127.0.0.2")
                await bob.publish("News", {"n": 1})
                async for notification in notifications:
                    assert notification.event["n"] == 1
                    break

    asyncio.run(scenario())


def test_a_server_that_cannot_prove_itself_is_not_spoken_to(tmp_path: Path, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), server_at("127.0.0.1", tmp_path / "data", certificates) as server:
            options = {"ca_file": certificates.stranger, "connect_s_max": 0.5}
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await agent_of("alice", server, "tls", tmp_path, certificates, **options).__aenter__()

    asyncio.run(scenario())


def test_a_sips_user_speaks_tls_at_its_port(tmp_path: Path, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S), server_at("127.0.0.1", tmp_path / "data", certificates) as server:
            assert server.tls_address is not None
            place = f"localhost:{server.tls_address[1]}"
            options: dict[str, Any] = {"password": "wonder", "state_dir": tmp_path, "ca_file": certificates.authority}
            async with connect("sips:alice@localhost", server=place, **options) as alice:
                assert (alice.uri, alice.status) == ("sip:alice@localhost", "CONNECTED")

    asyncio.run(scenario())


@pytest.mark.parametrize(("uri", "transport"), [("sips:alice@x", "udp"), ("sips:alice@x", "tcp"), ("alice@x", "sctp")])
def test_a_transport_that_cannot_be_is_refused(uri: str, transport: Any) -> None:
    with pytest.raises(ConfigurationError):
        connect(uri, transport=transport)


def test_a_server_takes_tcp_at_its_udp_port_and_tls_above(tmp_path: Path, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with (
            server_at("127.0.0.1", tmp_path / "a", certificates) as server,
            server_at("127.0.0.1", tmp_path / "b", None, tcp=False) as plain,
        ):
            with socket.create_connection(server.address, timeout=1):
                pass
            assert plain.tls_address is None
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(plain.address, timeout=1)

    asyncio.run(scenario())


def test_a_tcp_port_in_use_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(ConfigurationError, match=rf"TCP port 127\.0\.0\.1:{port} cannot be used.*--port"):
                await Server(domain="localhost", data_dir=tmp_path, users=USERS, port=port).__aenter__()

    asyncio.run(scenario())
