"""Gateways that are found in the DNS, at a name server of the test's own (SPEC S-01; decision 0171)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.api.federated_domains import FederatedDomains
from tests.api.world import SUBJECT, numbers, run, service
from tests.name_server import NameServer
from wanderbus.config import DomainsSettings
from wanderbus.federation import gateway_lookups
from wanderbus.runtime.files.federation_file import put_domain, read_federation

pytestmark = pytest.mark.integration

ALPHA, BETA = "alpha.example", "beta.example"


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    server = NameServer("")
    server.start()
    yield server
    server.close()


class Found(FederatedDomains):
    """Two domains that find each other's gateways in the DNS."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [ALPHA, BETA])
        self.gates = {name: read_federation(file).gateways["gate"] for name, file in self.files.items()}
        for name, other in ((ALPHA, BETA), (BETA, ALPHA)):
            known = read_federation(self.files[name]).settings.domains[other]
            put_domain(self.files[name], other, msgspec.structs.replace(known, gateways="dns"))

    def zone(self, *more: str, without: str = "") -> str:
        """Return the records of both domains, the ones of the gateways in use behind ``more``."""
        lines = [*more]
        for name, (host, port) in self.gates.items():
            if name != without:
                lines += [f"_wanderbus._udp.{name} SRV 20 1 {port} gate.{name}.", f"gate.{name} A {host}"]
        return "\n".join(lines)


def options(server: NameServer) -> dict[str, Any]:
    host, port = server.address
    return {"domains": DomainsSettings(name_servers=(f"{host}:{port}",), lookup=False)}


def test_s01_domains_find_each_other_although_one_of_the_gateways_is_down(
    tmp_path: Path, name_server: NameServer
) -> None:
    domains = Found(tmp_path)
    _, port = domains.gates[BETA]
    dead = (f"_wanderbus._udp.{BETA} SRV 10 1 {port} dead.{BETA}.", f"dead.{BETA} A 127.0.0.1")
    name_server.change(domains.zone(*dead))

    async def story() -> None:
        async with domains.server(ALPHA, **options(name_server)) as alpha, domains.server(BETA, **options(name_server)):
            await linked(alpha)

    run(story())


def test_s01_gateways_are_looked_up_again_until_there_is_a_link(
    tmp_path: Path, name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_lookups, "PAUSE_S_MIN", 0.2)
    monkeypatch.setattr(gateway_lookups, "PAUSE_S_MAX", 0.2)
    domains = Found(tmp_path)
    name_server.change(domains.zone(without=BETA))

    async def story() -> None:
        async with domains.server(ALPHA, **options(name_server)) as alpha, domains.server(BETA, **options(name_server)):
            while "not found in the DNS" not in trouble(alpha):
                await asyncio.sleep(0.01)
            name_server.change(domains.zone())
            await linked(alpha)
            async with (
                domains.agent(ALPHA) as alice,
                domains.agent(BETA, "bob") as bob,
                bob.subscribe(SUBJECT, effective="everywhere") as reader,
            ):
                await alice.publish(SUBJECT, {"n": 1})
                assert await numbers(reader, 1) == [1]

    run(story())


def rows(server: Any) -> dict[str, Any]:
    (row,) = service(server).machine.federation_rows()
    return dict(row)


def trouble(server: Any) -> str:
    return str(rows(server)["trouble"])


async def linked(server: Any) -> None:
    while not rows(server)["is_linked"]:
        await asyncio.sleep(0.01)
