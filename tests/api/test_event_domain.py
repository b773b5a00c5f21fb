"""Three servers of one event domain on loopback, and agents at each of them (SPEC J-01, K-02)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import PASSWORDS, nothing_more, numbers, run, service
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.domain_file import create_domain, read_domain

SUBJECT = "Departure"


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Domain:
    """A domain of servers, each with a data directory of its own."""

    def __init__(self, directory: Path, size: int = 3, settings: str = "") -> None:
        self.directory = directory
        self.file = create_domain(directory, "localhost", size)
        text = self.file.read_text()
        for number in range(1, size + 1):
            text = text.replace(f'"127.0.0.{number}:5601"', f'"127.0.0.1:{free_udp_port()}"')
        self.file.write_text(text + settings)
        self.ports: dict[str, int] = {}

    def leader(self, subject: str = SUBJECT) -> str:
        return read_domain(self.file).channel(subject).leader

    def subject_of(self, leader: str) -> str:
        """A subject whose channel this server leads."""
        return next(name for name in map("Subject{}".format, range(1_000)) if self.leader(name) == leader)

    @asynccontextmanager
    async def server(self, name: str) -> AsyncIterator[wanderbus.Server]:
        server = wanderbus.Server(
            domain="localhost",
            data_dir=self.directory / f"data-{name}",
            users=PASSWORDS,
            port=self.ports.get(name, 0),
            event_domain=self.file,
            event_server=name,
        )
        async with server:
            self.ports[name] = server.address[1]
            yield server

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[dict[str, wanderbus.Server]]:
        async with AsyncExitStack() as stack:
            names = read_domain(self.file).settings.servers
            yield {name: await stack.enter_async_context(self.server(name)) for name in names}

    def agent(self, server: str, name: str = "alice", **options: Any) -> wanderbus.Agent:
        settings: dict[str, Any] = {
            "password": PASSWORDS[name],
            "server": f"127.0.0.1:{self.ports[server]}",
            "state_dir": self.directory / f"{name}-{server}",
        }
        return wanderbus.connect(f"sip:{name}@localhost", **(settings | options))


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain")


def test_an_event_published_anywhere_reaches_subscribers_everywhere_once_and_in_one_order(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            readers = []
            for server in ("s1", "s2", "s3"):
                alice = await stack.enter_async_context(domain.agent(server))
                readers.append(await stack.enter_async_context(alice.subscribe(SUBJECT, "n >= 0")))
            bobs = [await stack.enter_async_context(domain.agent(server, "bob")) for server in ("s1", "s2", "s3")]
            for start in range(0, 30, 3):
                await asyncio.gather(*(bob.publish(SUBJECT, {"n": start + at}) for at, bob in enumerate(bobs)))
            await bobs[0].publish(SUBJECT, {"n": -1})
            seen = [await numbers(reader, 30) for reader in readers]
            assert sorted(map(int, seen[0])) == list(range(30))
            assert seen[1] == seen[0]
            assert seen[2] == seen[0]
            for reader in readers:
                await nothing_more(reader)

    run(story())


def test_all_ids_are_those_of_the_leader(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers() as servers, domain.agent("s1", "bob") as bob:
            for leader in ("s1", "s2", "s3"):
                identity = await bob.publish(domain.subject_of(leader), {"n": 1})
                assert identity.origin == service(servers[leader]).broker.state.server

    run(story())


def test_a_subscription_counts_everywhere_when_the_block_is_entered(domain: Domain) -> None:
    async def story() -> None:
        subjects = [domain.subject_of(name) for name in ("s1", "s2", "s3")]
        async with domain.servers(), domain.agent("s2", "bob") as bob, domain.agent("s3") as alice:
            async with alice.subscribe("*", "n > 0") as everything:
                for at, subject in enumerate(subjects):
                    await bob.publish(subject, {"n": at})
                assert sorted(map(int, await numbers(everything, 2))) == [1, 2]
                await nothing_more(everything)

    run(story())


def test_a_subscription_to_a_parent_hears_the_child_wherever_it_is_published(tmp_path: Path) -> None:
    domain = Domain(tmp_path / "domain", settings='\n[parents]\nDeparture = "Flight"\n')

    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            readers = []
            for server in ("s1", "s2", "s3"):
                alice = await stack.enter_async_context(domain.agent(server))
                readers.append(await stack.enter_async_context(alice.subscribe("Flight", "n > 1")))
            bob = await stack.enter_async_context(domain.agent("s1", "bob"))
            for value in (1, 2, 3):
                await bob.publish(SUBJECT, {"n": value})
            assert [await numbers(reader, 2) for reader in readers] == [[2, 3]] * 3

    run(story())


def test_events_arrive_although_the_leader_was_down(domain: Domain) -> None:
    async def story() -> None:
        leader = domain.leader()
        publisher, subscriber = (name for name in ("s1", "s2", "s3") if name != leader)
        async with domain.server(publisher), domain.server(subscriber), AsyncExitStack() as stack:
            async with domain.server(leader):
                alice = await stack.enter_async_context(domain.agent(subscriber))
                bob = await stack.enter_async_context(domain.agent(publisher, "bob"))
                reader = await stack.enter_async_context(alice.subscribe(SUBJECT))
                await bob.publish(SUBJECT, {"n": 0})
            publishing = asyncio.create_task(bob.publish(SUBJECT, {"n": 1}))
            await asyncio.sleep(0.1)
            assert not publishing.done()
            async with domain.server(leader):
                await publishing
                await bob.publish(SUBJECT, {"n": 2})
                assert await numbers(reader, 3) == [0, 1, 2]
                await nothing_more(reader)

    run(story())


def test_events_wait_for_the_server_of_a_subscriber_while_it_is_down(domain: Domain) -> None:
    async def story() -> None:
        leader = domain.leader()
        publisher, subscriber = (name for name in ("s1", "s2", "s3") if name != leader)
        async with domain.server(leader), domain.server(publisher), domain.agent(publisher, "bob") as bob:
            async with domain.server(subscriber), domain.agent(subscriber) as alice:
                async with alice.subscribe(SUBJECT, keep=True) as reader:
                    kept = reader.subscription.id
                    await bob.publish(SUBJECT, {"n": 0})
                    assert await numbers(reader, 1) == [0]
            for value in (1, 2, 3):
                await bob.publish(SUBJECT, {"n": value})
            async with domain.server(subscriber), domain.agent(subscriber) as alice:
                async with alice.subscribe(SUBJECT, keep=True) as reader:
                    assert reader.subscription.id == kept
                    assert await numbers(reader, 3) == [1, 2, 3]
                    await nothing_more(reader)

    run(story())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"event_server": None}, "event_domain: also give event_server"),
        ({"event_server": "s9"}, "has no server 's9'"),
        ({"domain": "example.org"}, "domain: example.org is not that of"),
        ({"event_domain": None}, "apply only with event_domain"),
    ],
)
def test_settings_that_do_not_fit_the_domain_are_refused(domain: Domain, changed: dict[str, Any], reason: str) -> None:
    settings: dict[str, Any] = {
        "domain": "localhost",
        "data_dir": domain.directory / "data",
        "users": PASSWORDS,
        "event_domain": domain.file,
        "event_server": "s1",
    }
    with pytest.raises(ConfigurationError, match=reason):
        wanderbus.Server(**(settings | changed))


def test_the_key_of_another_server_is_refused(domain: Domain) -> None:
    with pytest.raises(ConfigurationError, match="the key is not that of s1"):
        wanderbus.Server(
            domain="localhost",
            data_dir=domain.directory / "data",
            users=PASSWORDS,
            event_domain=domain.file,
            event_server="s1",
            event_key=domain.directory / "keys" / "s2.key",
        )
