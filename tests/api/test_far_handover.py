"""Session of a user that moves from the server of one domain to that of another, in one process (SPEC L-01, L-05)."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import wanderbus
from tests.api.world import SUBJECT, nothing_more, numbers, run, service
from tests.certificates import certify, make_certificates
from wanderbus.config import DomainsSettings
from wanderbus.errors import WanderbusError
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.federation_file import card_of, create_federation, put_domain, read_federation
from wanderbus.settings.federation import ForeignDomainSettings

pytestmark = pytest.mark.integration

NAMES = ("a.example", "b.example")
HOSTS = {"a.example": "127.0.0.1", "b.example": "127.0.0.2"}
USERS = {"a.example": {"carol": "secret", "dave": "sesame"}, "b.example": {"bob": "hunter2"}}


class TwoDomains:
    """Two domains of one server each, which share events, and between which sessions move unless ``trust`` is false."""

    def __init__(self, directory: Path, *, trust: bool = True) -> None:
        self.directory = directory
        self.files = make_certificates(directory)
        network = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}"
        self.federations = {name: directory / name / "federation.toml" for name in NAMES}
        self.tls_ports = {name: _port(HOSTS[name]) for name in NAMES}
        for place, (name, file) in enumerate(self.federations.items(), 1):
            file.parent.mkdir(parents=True)
            create_federation(file, name, {"gate": f"{network}.{place}:5900"})
        for name, other in (NAMES, NAMES[::-1]):
            card = card_of(read_federation(self.federations[other]))
            foreign = ForeignDomainSettings(
                public_key=card.public_key, gateways=card.gateways, receive=(SUBJECT,), send=(SUBJECT,)
            )
            put_domain(
                self.federations[name],
                other,
                msgspec.structs.replace(foreign, gives_sessions=trust, takes_sessions=trust),
            )

    def settings(self, name: str) -> dict[str, Any]:
        (other,) = set(NAMES) - {name}
        return {
            "domain": name,
            "host": HOSTS[name],
            "port": 0,
            "tls_port": self.tls_ports[name],
            "data_dir": self.directory / name / "data",
            "users": USERS[name],
            "tls_certificate": certify(self.directory, name, f"DNS:{name},IP:{HOSTS[name]}"),
            "user_domains": (other,),
            "domains": DomainsSettings(
                ca_file=self.files.authority,
                lookup=False,
                trusted=(other,),
                routes={other: (f"{HOSTS[other]}:{self.tls_ports[other]}",)},
            ),
            "federation": self.federations[name],
            "federation_gateway": "gate",
            "broker": BrokerConfig(roles={"sip:dave@a.example": "administrator"}),
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[wanderbus.Server]]:
        async with (
            wanderbus.Server(**self.settings(NAMES[0])) as one,
            wanderbus.Server(**self.settings(NAMES[1])) as two,
        ):
            self.servers = [one, two]
            yield self.servers

    def agent(self, name: str, domain: str, password: str) -> Any:
        return wanderbus.connect(
            f"sip:{name}@{domain}",
            password=password,
            server=f"{HOSTS[domain]}:{self.tls_ports[domain]}",
            transport="tls",
            ca_file=self.files.authority,
            state_dir=self.directory / domain / f"state-{name}",
        )


def _port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def test_l01_a_client_moves_its_session_to_another_domain_while_events_flow(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running() as servers,
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT, "n >= 0") as reader,
            domains.agent("dave", "a.example", "sesame") as dave,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            while not all(row["filters"] for row in service(servers[1]).machine.federation_rows()):
                await asyncio.sleep(0.01)

            async def publish(agent: Any, first: int) -> None:
                for number in range(first, first + 100):
                    await agent.publish(SUBJECT, {"n": number})
                    await asyncio.sleep(0.005)

            publishing = [asyncio.create_task(publish(dave, 0)), asyncio.create_task(publish(bob, 1_000))]
            await asyncio.sleep(0.1)
            await carol.handover("b.example")
            assert (
                sum(each.user == "sip:carol@a.example" for each in service(servers[1]).broker.state.sessions.values())
                == 1
            )
            await asyncio.gather(*publishing)
            found: list[Any] = await numbers(reader, 200)
            assert [each for each in found if each < 1_000] == list(range(100))
            assert [each for each in found if each >= 1_000] == list(range(1_000, 1_100))
            await nothing_more(reader)
            await carol.handover("a.example/gate")
            await publish(bob, 2_000)
            assert await numbers(reader, 100) == list(range(2_000, 2_100))

    run(story())


def test_l01_an_operator_moves_a_session_to_another_domain(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running(),
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT) as reader,
            domains.agent("dave", "a.example", "sesame") as dave,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            await dave.operator.move("sip:carol@a.example", "default", "b.example/gate")
            await bob.publish(SUBJECT, {"n": 1})
            assert await numbers(reader, 1) == [1]

    run(story())


def test_l05_the_source_is_pruned_and_the_target_added(tmp_path: Path) -> None:
    """The one domain asks the other one for the events no longer, and the reverse begins."""
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with (
            domains.running() as servers,
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT, "n >= 0"),
        ):

            async def filters(*expected: int) -> None:
                while [row["filters"] for each in servers for row in service(each).machine.federation_rows()] != [
                    *expected
                ]:
                    await asyncio.sleep(0.01)

            await filters(0, 1)
            await carol.handover("b.example")
            await filters(1, 0)

    run(story())


def test_l01_a_domain_that_is_not_trusted_gets_no_session(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path, trust=False)

    async def story() -> None:
        async with domains.running(), domains.agent("carol", "a.example", "secret") as carol, carol.subscribe(SUBJECT):
            with pytest.raises(WanderbusError, match=r"a\.example gives no sessions to b\.example"):
                await carol.handover("b.example")

    run(story())
