"""A device that lets its session go to another server of the domain, or that moves into its network (SPEC L-01)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.event_domain import Domain
from tests.api.test_access_servers import broker_of
from tests.api.test_session_owners import contact_of
from tests.api.world import SUBJECT, numbers, run, until
from tests.certificates import Certificates, make_certificates
from wanderbus.errors import Refused
from wanderbus.machine import Address
from wanderbus.peers.handover import following
from wanderbus.sip.message.headers import NameAddr
from wanderbus.sip.message.targets import target_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["ordered", "decentralised"])
def domain(tmp_path: Path, request: pytest.FixtureRequest) -> Domain:
    found = Domain(tmp_path / "domain", 2, keys=f'model = "{request.param}"')
    text = found.file.read_text()
    for place in (1, 2):
        text = text.replace(f"[servers.s{place}]\n", f'[servers.s{place}]\nnetworks = ["127.8.{place}.0/24"]\n')
    found.file.write_text(text)
    return found


def test_l01_an_agent_hands_its_session_over_and_reads_on(domain: Domain) -> None:
    async def story() -> None:
        async with (
            domain.server("s1"),
            domain.server("s2") as s2,
            domain.agent("s1") as alice,
            domain.agent("s1", "bob") as bob,
            alice.subscribe(SUBJECT) as reader,
        ):
            for number in range(5):
                await bob.publish(SUBJECT, {"n": number})
            await alice.handover("s2")
            assert broker_of(alice) == contact_of(s2)
            for number in range(5, 10):
                await bob.publish(SUBJECT, {"n": number})
            await alice.publish(SUBJECT, {"n": 10})
            assert await numbers(reader, 11) == [*range(11)]
            with pytest.raises(Refused, match="'s7' is no other server"):
                await alice.handover("s7")
            assert broker_of(alice) == contact_of(s2)

    run(story())


@pytest.mark.parametrize("transport", ["udp", "tcp", "tls"])
def test_l01_the_call_to_the_next_server_passes_its_proxy(
    tmp_path: Path, certificates: Certificates, transport: str
) -> None:
    """There it gets a relay if it needs one; the transport stays that of the agent."""
    domain = Domain(tmp_path / "domain", 2)
    tls = {
        "tls_certificate": certificates.certificate,
        "tls_key": certificates.key,
        "tls_port": 0,
        "stay_on_path": True,
    }

    async def story() -> None:
        async with domain.server("s1", **tls) as s1, domain.server("s2", **tls) as s2:
            if transport == "tls":
                domain.ports["s1"] = tls_address(s1)[1]
            async with (
                domain.agent("s1", transport=transport, ca_file=certificates.authority) as alice,
                domain.agent("s2", "bob") as bob,
                alice.subscribe(SUBJECT) as reader,
            ):
                await alice.handover("s2")
                await bob.publish(SUBJECT, {"n": 1})
                assert await numbers(reader, 1) == [1]
                machine: Any = alice._driver and alice._driver.machine
                route, *_ = machine._user_agent.sessions[machine._session].dialog.route_set
                hop = target_of(NameAddr.parse(route).uri)
                reached = tls_address(s2) if transport == "tls" else s2.address
                assert (hop.transport, hop.address) == (transport.upper(), reached)

    run(story())


def tls_address(server: wanderbus.Server) -> Address:
    """Return the address of a server's proxy for TLS."""
    assert server.tls_address is not None
    return server.tls_address


def test_l01_a_session_follows_its_device_into_the_network_of_another_server(
    domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SETTLED_S", 0.05)

    async def story() -> None:
        async with (
            domain.server("s1") as s1,
            domain.server("s2") as s2,
            domain.agent("s1", local_address="127.8.1.5") as alice,
            domain.agent("s1", "bob") as bob,
            alice.subscribe(SUBJECT) as reader,
        ):
            assert broker_of(alice) == contact_of(s1)
            for number, (place, server) in enumerate([(2, s2), (1, s1), (2, s2)]):
                await alice.rebind(f"127.8.{place}.6")
                await bob.publish(SUBJECT, {"n": number})
                await until(partial(_is_at, alice, server))
            assert await numbers(reader, 3) == [0, 1, 2]

    run(story())


def _is_at(agent: wanderbus.Agent, server: wanderbus.Server) -> bool:
    return broker_of(agent) == contact_of(server)
