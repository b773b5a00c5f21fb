"""Users of one domain who call the broker of another, by the choice of its operator, in one process (SPEC D-13)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import wanderbus
from tests.api.far_domains import TwoDomains
from tests.api.world import SUBJECT, nothing_more, numbers, run, service
from wanderbus.errors import WanderbusError
from wanderbus.peers.far_servers import VisitorsChoice
from wanderbus.runtime.files.federation_file import put_domain, read_federation
from wanderbus.server.proxy_server import ProxyServer

pytestmark = pytest.mark.integration

CAROL = "sip:carol@a.example"
BOB = "sip:bob@b.example"
WANTED = SUBJECT, "n >= 0"


def carol_at(domains: TwoDomains, domain: str = "b.example", **options: Any) -> Any:
    """Return an agent of carol's one device, which calls the broker of a domain."""
    return domains.agent("carol", "a.example", "secret", broker=f"sip:broker@{domain}", **options)


def dave_of(domains: TwoDomains) -> Any:
    """Return an agent of dave, who publishes in a.example."""
    return domains.agent("dave", "a.example", "sesame")


def bob_of(domains: TwoDomains) -> Any:
    """Return an agent of bob, who publishes in b.example."""
    return domains.agent("bob", "b.example", "hunter2")


async def linked(domains: TwoDomains) -> None:
    """Wait until the gateways of both domains have a link."""
    while not all(row["is_linked"] for each in domains.servers for row in service(each).machine.federation_rows()):
        await asyncio.sleep(0.01)


async def subscribed_at_home(domains: TwoDomains) -> None:
    """Let carol subscribe in a.example, and go away."""
    await linked(domains)
    async with carol_at(domains, "a.example") as carol, carol.subscribe(*WANTED, keep=True):
        pass


def choose(domains: TwoDomains, visitors: VisitorsChoice) -> None:
    """Change the service for visitors of a.example in the file of b.example."""
    file = domains.federations["b.example"]
    known = read_federation(file).settings.domains["a.example"]
    put_domain(file, "a.example", msgspec.structs.replace(known, visitors=visitors))


@pytest.mark.parametrize("b_servers", [1, 2])
def test_d13_the_session_of_a_visitor_moves_to_the_domain_that_is_called(tmp_path: Path, b_servers: int) -> None:
    domains = TwoDomains(tmp_path, visitors="move", b_servers=b_servers)

    async def story() -> None:
        async with domains.running(), dave_of(domains) as dave, bob_of(domains) as bob:
            await subscribed_at_home(domains)
            await dave.publish(SUBJECT, {"n": 1})
            async with carol_at(domains) as carol, carol.subscribe(*WANTED, keep=True) as reader:
                (owner,) = domains.owners(CAROL)
                assert owner > 0
                await dave.publish(SUBJECT, {"n": 2})
                await bob.publish(SUBJECT, {"n": 3})
                assert sorted(await numbers(reader, 3)) == [1, 2, 3]
                await nothing_more(reader)

    run(story())


def test_d13_the_server_of_the_own_domain_that_has_the_session_gives_it(tmp_path: Path) -> None:
    """The call passes the proxy of another server there than the one with the session."""
    domains = TwoDomains(tmp_path, visitors="move", b_servers=2)
    s1, s2 = [
        f"{domains.hosts[place]}:{domains.tls_ports[place]}" for place in domains.hosts if place[0] == "b.example"
    ]

    def bob(server: str, broker: str) -> Any:
        return domains.agent("bob", "b.example", "hunter2", server=server, broker=f"sip:broker@{broker}")

    async def story() -> None:
        async with domains.running(), dave_of(domains) as dave:
            await linked(domains)
            async with bob(s2, "b.example") as at_home, at_home.subscribe(*WANTED, keep=True):
                (owner,) = domains.owners(BOB)
            for server in (s1, s2):
                async with bob(server, "a.example") as away, away.subscribe(*WANTED, keep=True) as reader:
                    assert domains.owners(BOB) == [0], "it was at one of the others"
                    await dave.publish(SUBJECT, {"n": 1})
                    assert await numbers(reader, 1) == [1]
                await dave.operator.move(BOB, "default", f"b.example/s{owner}")

    run(story())


def test_d13_a_visitor_is_sent_to_the_own_domain(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path, visitors="home")

    async def story() -> None:
        async with domains.running(), dave_of(domains) as dave:
            await subscribed_at_home(domains)
            async with carol_at(domains) as carol, carol.subscribe(*WANTED, keep=True) as reader:
                assert domains.owners(CAROL) == [0]
                await dave.publish(SUBJECT, {"n": 1})
                assert await numbers(reader, 1) == [1]
            assert domains.owners(CAROL) == [0]

    run(story())


def test_d13_a_visitor_whose_own_domain_has_no_broker_gets_an_error(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path, visitors="home")

    async def story() -> None:
        home = domains.settings("a.example", "gate")
        proxy = {key: home[key] for key in ("domain", "host", "port", "tls_port", "data_dir", "users", "domains")}
        async with (
            wanderbus.Server(**domains.settings("b.example", "gate")),
            ProxyServer(**proxy, tls_certificate=home["tls_certificate"]),
        ):
            with pytest.raises(WanderbusError, match=r"sent the call to sip:broker@a\.example, and .* no such broker"):
                async with carol_at(domains, connect_s_max=4.0):
                    pass

    run(story())


@pytest.mark.parametrize("why", ["no session", "not given", "own"])
def test_d13_a_visitor_whose_session_does_not_come_has_another_one(tmp_path: Path, why: str) -> None:
    domains = TwoDomains(tmp_path, visitors="own" if why == "own" else "move", gives=why != "not given")

    async def story() -> None:
        async with domains.running(), bob_of(domains) as bob:
            if why == "no session":
                await linked(domains)
            else:
                await subscribed_at_home(domains)
            async with carol_at(domains) as carol, carol.subscribe(*WANTED) as reader:
                assert domains.owners(CAROL) == ([1] if why == "no session" else [0, 1])
                await bob.publish(SUBJECT, {"n": 1})
                assert await numbers(reader, 1) == [1]

    run(story())


def test_d13_the_choice_changes_without_a_restart(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)

    async def story() -> None:
        async with domains.running() as servers:
            await subscribed_at_home(domains)
            async with carol_at(domains):
                assert domains.owners(CAROL) == [0, 1]
            choose(domains, "move")
            while service(servers[1]).machine.federation_rows()[0]["visitors"] != "move":
                await asyncio.sleep(0.01)
            await linked(domains)
            async with carol_at(domains):
                assert domains.owners(CAROL) == [1]

    run(story())


@pytest.mark.parametrize("b_servers", [1, 2])
def test_d13_l01_a_visitor_follows_the_session_home_and_a_later_call_brings_it_again(
    tmp_path: Path, b_servers: int
) -> None:
    domains = TwoDomains(tmp_path, visitors="move", b_servers=b_servers)

    async def story() -> None:
        async with domains.running(), dave_of(domains) as dave:
            await subscribed_at_home(domains)
            async with carol_at(domains) as carol, carol.subscribe(*WANTED, keep=True) as reader:
                assert domains.owners(CAROL) != [0]
                await carol.handover("a.example")
                await dave.publish(SUBJECT, {"n": 1})
                assert await numbers(reader, 1) == [1]
                assert domains.owners(CAROL) == [0]
                await dave.operator.move(CAROL, "default", "b.example")
                await dave.publish(SUBJECT, {"n": 2})
                assert await numbers(reader, 1) == [2]
                await carol.handover("a.example")
                assert domains.owners(CAROL) == [0]
            async with carol_at(domains):
                assert domains.owners(CAROL) != [0]

    run(story())
