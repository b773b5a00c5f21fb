"""The broker as a user agent of a SIP server in another process, which may be killed and started again (DESIGN 6.4)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import numbers, publish, run, service, until_true
from tests.certificates import Certificates, make_certificates
from wanderbus.errors import AuthenticationError, Unreachable
from wanderbus.machine import shown
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.sip.message.message import Request
from wanderbus.sip.proxy.routing_script import Forward, RoutingContext, Verdict
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
USERS = {"alice": "secret", "bob": "hunter2", "broker": "quorum"}
TRANSPORTS = ["udp", "tcp", "tls"]


class Proxy:
    """``wanderbus proxy`` in a process of its own; the next one has the ports of the first."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self.certificates = certificates
        self.directory = directory
        self.ports = (0, 0)
        self.process: Process | None = None
        directory.joinpath("users").write_text("".join(f"{name}:{word}\n" for name, word in USERS.items()))

    def start(self) -> None:
        port, tls_port = self.ports
        argv = python("wanderbus", "proxy", "--users", "users", "--data-dir", "proxy")
        argv += ["--tls-certificate", str(self.certificates.certificate), "--tls-key", str(self.certificates.key)]
        argv += ["--port", str(port), "--tls-port", str(tls_port)]
        self.process = Process("the proxy", argv, self.directory / "errors", read=True, cwd=self.directory)
        word, plain, secure = self.process.line().split()
        assert (word, plain.startswith("sip:127.0.0.1:"), secure.startswith("sips:127.0.0.1:")) == ("ready", True, True)
        self.ports = (int(plain.rpartition(":")[2]), int(secure.rpartition(":")[2]))

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.end()
            self.process = None

    def sip_server(self, transport: str) -> str:
        port, tls_port = self.ports
        known = {"udp": f"sip:127.0.0.1:{port}", "tls": f"sips:localhost:{tls_port}"}
        return known.get(transport, f"sip:127.0.0.1:{port};transport={transport}")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def proxy(tmp_path: Path, certificates: Certificates) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path, certificates)
    proxy.start()
    yield proxy
    proxy.kill()


def broker(proxy: Proxy, transport: str, **options: Any) -> wanderbus.Server:
    settings: dict[str, Any] = {
        "domain": "localhost",
        "data_dir": proxy.directory / "broker",
        "users": USERS,
        "sip_server": proxy.sip_server(transport),
        "ca_file": proxy.certificates.authority,
    }
    return wanderbus.Server(**(settings | options))


def agent(proxy: Proxy, name: str, transport: str = "udp", **options: Any) -> wanderbus.Agent:
    port, tls_port = proxy.ports
    settings: dict[str, Any] = {
        "password": USERS[name],
        "server": f"127.0.0.1:{tls_port if transport == 'tls' else port}",
        "transport": transport,
        "ca_file": proxy.certificates.authority,
        "state_dir": proxy.directory / name,
    }
    return wanderbus.connect(f"sip:{name}@localhost", **(settings | options))


@asynccontextmanager
async def restarted(proxy: Proxy, away_s: float = 0.5) -> AsyncIterator[None]:
    """Have no proxy within, and one again after it."""
    proxy.kill()
    try:
        yield
        await asyncio.sleep(away_s)
    finally:
        proxy.start()


async def published(proxy: Proxy, transport: str) -> bool:
    """Publish as a newly connected agent; False if the proxy does not know the broker."""
    try:
        async with agent(proxy, "bob", transport) as bob:
            await publish(bob, 1)
    except Unreachable:
        return False
    return True


@pytest.mark.parametrize("agents", TRANSPORTS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_agents_find_the_broker_and_move(proxy: Proxy, transport: str, agents: str) -> None:
    async def story() -> None:
        async with (
            broker(proxy, transport) as server,
            agent(proxy, "alice", agents) as alice,
            agent(proxy, "bob", agents, local_address="127.0.0.1") as bob,
            bob.subscribe("Departure") as notifications,
        ):
            assert server.broker_address[1] not in (0, *proxy.ports)
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]
            await bob.rebind("127.0.0.2")
            await publish(alice, 2)
            assert await numbers(notifications, 1) == [2]

    run(story())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_stream_goes_on_without_the_sip_server_and_new_agents_come_with_it(proxy: Proxy, transport: str) -> None:
    async def story() -> None:
        async with (
            broker(proxy, transport),
            agent(proxy, "alice", transport) as alice,
            alice.subscribe("Departure") as notifications,
        ):
            async with restarted(proxy):
                await publish(alice, 1, 2)
                assert await numbers(notifications, 2) == [1, 2]
            async with agent(proxy, "bob", transport) as bob:
                await publish(bob, 3)
                assert await numbers(notifications, 1) == [3]
            await alice.rebind("127.0.0.2")
            await publish(alice, 4)
            assert await numbers(notifications, 1) == [4]

    run(story())


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_the_broker_registers_again_by_itself_where_nothing_was_kept(proxy: Proxy, transport: str) -> None:
    """This applies to a registrar with bindings in memory: the broken connection reveals it, long before a refresh."""

    async def story() -> None:
        async with broker(proxy, transport):
            async with restarted(proxy):
                for path in proxy.directory.joinpath("proxy").glob("registrations.db*"):
                    path.unlink()
            await until_true(lambda: published(proxy, transport))

    run(story())


def test_the_broker_is_restarted(proxy: Proxy) -> None:
    async def story() -> None:
        async with broker(proxy, "tcp") as first:
            before = first.broker_address
            alice = agent(proxy, "alice")
            await alice.__aenter__()
            notifications = await alice.subscribe("Departure").__aenter__()
        async with broker(proxy, "tcp") as second, agent(proxy, "bob") as bob:
            assert second.broker_address == before
            await publish(bob, 1)
            assert await numbers(notifications, 1) == [1]
            await alice.close()

    run(story())


def test_another_user_is_the_broker(proxy: Proxy) -> None:
    async def story() -> None:
        async with (
            broker(proxy, "udp", broker_user="bob") as server,
            agent(proxy, "alice", broker="sip:bob@localhost") as alice,
        ):
            assert server.broker_uri == "sip:bob@localhost"
            await publish(alice, 1)

    run(story())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"broker_password": "guess"}, "rejects sip:broker@localhost: 403 .*; check that user's password"),
        ({"users": {}}, "rejects sip:broker@localhost: 401 Unauthorized; give that user's password with"),
        ({"broker_user": "mallory", "broker_password": "guess"}, "rejects sip:mallory@localhost: 403"),
    ],
)
def test_a_refused_broker_reports_it_at_once(proxy: Proxy, options: dict[str, Any], said: str) -> None:
    async def story() -> None:
        with pytest.raises(AuthenticationError, match=said):
            await broker(proxy, "udp", **options).__aenter__()

    run(story())


def test_a_password_in_a_file(proxy: Proxy) -> None:
    file = proxy.directory / "word"
    file.touch(0o600)
    file.write_text(USERS["broker"] + "\n")

    async def story() -> None:
        users = {name: word for name, word in USERS.items() if name != "broker"}
        async with broker(proxy, "udp", users=users, broker_password_file=file), agent(proxy, "alice") as alice:
            await publish(alice, 1)

    run(story())


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_sip_server_that_is_not_there(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setattr("wanderbus.server.broker_role.START_S_MAX", 0.5)
    proxy = Proxy(tmp_path, certificates)
    proxy.ports = (9, 9)

    async def story() -> None:
        with pytest.raises(
            Unreachable, match=r"127.0.0.1:9 does not answer the broker sip:broker@localhost .* check that it runs"
        ):
            await broker(proxy, transport).__aenter__()

    run(story())


class Staying:
    """Routing of a proxy that stays on the path of every dialog."""

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        return Forward(stay_on_path=True)


def test_the_proxy_is_on_the_path_of_the_same_dialogs_after_its_restart(tmp_path: Path) -> None:
    """Its registrations are lost by then: over UDP the broker does not notice so soon."""
    ports = [0]

    @asynccontextmanager
    async def proxy() -> AsyncIterator[str]:
        directory = tmp_path / "proxy"
        async with ProxyServer(
            domain="localhost", data_dir=directory, users=USERS, port=ports[0], routing=Staying()
        ) as started:
            ports[0] = started.address[1]
            yield f"127.0.0.1:{ports[0]}"
        for path in directory.glob("registrations.db*"):
            path.unlink()

    def sip_session(agent: wanderbus.Agent) -> str:
        machine: Any = agent._driver and agent._driver.machine
        return str(machine._session)

    async def story() -> None:
        first = proxy()
        place = await first.__aenter__()
        alice = wanderbus.connect(
            "sip:alice@localhost", password="secret", server=place, state_dir=tmp_path / "a", local_address="127.0.0.1"
        )
        async with (
            wanderbus.Server(domain="localhost", data_dir=tmp_path / "b", users=USERS, sip_server=place),
            alice,
            alice.subscribe("Departure") as notifications,
        ):
            before = sip_session(alice)
            await first.__aexit__(None, None, None)
            async with proxy():
                changes = aiter(alice.changes())
                await alice.rebind("127.0.0.2")
                change = await anext(changes)
                assert (change.status, change.address.partition(":")[0]) == ("CONNECTED", "127.0.0.2")
                assert sip_session(alice) == before
                await publish(alice, 1)
                assert await numbers(notifications, 1) == [1]

    run(story())


def test_the_broker_is_one_device_over_its_restarts(tmp_path: Path) -> None:
    """RFC 5626 4.1: at another port, when the previous one is in use, it leaves no stale contact behind."""

    async def story() -> None:
        common: dict[str, Any] = {"domain": "localhost", "users": USERS}
        async with ProxyServer(**common, data_dir=tmp_path / "proxy", port=0) as proxy:
            place = shown(proxy.address)
            machine: Any = proxy._sip and proxy._sip.machine
            seen = set()
            for _ in range(2):
                async with wanderbus.Server(**common, data_dir=tmp_path / "b", sip_server=place) as broker:
                    seen.add(broker.broker_address)
                    contacts = machine.location.contacts("sip:broker@localhost", float("-inf"))
                    assert contacts == (f"sip:broker@{shown(broker.broker_address)}",)
                taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                taken.bind(broker.broker_address)
            taken.close()
            assert len(seen) == 2

    run(story())


@pytest.mark.parametrize(("transport", "least_s", "most_s"), [("udp", 24, 29), ("tcp", 95, 120), ("tls", 95, 120)])
def test_the_way_to_a_sip_server_elsewhere_is_kept_open(
    proxy: Proxy, transport: str, least_s: int, most_s: int
) -> None:
    """RFC 5626 4.4.1; there may be a NAT between them, or a firewall that forgets."""

    async def story() -> None:
        async with broker(proxy, transport) as server:
            period_s = service(server).properties.keep_alive_s
            assert period_s is not None
            assert least_s <= period_s <= most_s

    run(story())


def test_over_tcp_the_sip_server_may_connect_to_the_broker(proxy: Proxy) -> None:
    """RFC 3261 18.1.2: a proxy without a connection to the address in Contact opens one, as after its restart."""

    async def story() -> None:
        async with broker(proxy, "tcp") as server:
            with socket.create_connection(server.broker_address, timeout=1):
                pass

    run(story())
