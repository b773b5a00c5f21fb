"""Lookup of SIP servers in the DNS, at a name server of the test's own on loopback (RFC 3263, SPEC D-13)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import dns.resolver
import pytest
import uvloop

from tests.name_server import NameServer
from wanderbus.errors import ConfigurationError
from wanderbus.federation.messages import FindGateways, GatewaysFound
from wanderbus.runtime.net.domain_resolver import DomainResolver
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.domain_routes import SERVERS_MAX
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, FindDomain

pytestmark = pytest.mark.integration

ZONE: Final = """
srv.example NAPTR 10 10 "s" "SIP+D2U" "" _sip._udp.srv.example.
srv.example NAPTR 20 10 "s" "SIPS+D2T" "" _sips._tcp.elsewhere.example.
_sips._tcp.elsewhere.example SRV 10 60 5061 one.example.
_sips._tcp.elsewhere.example SRV 20 5 5071 two.example.
_sips._tcp.elsewhere.example SRV 20 0 5071 gone.example.
_sips._tcp.plain.example SRV 1 1 5081 one.example.
_sips._tcp.none.example SRV 0 0 0 .
_wanderbus._udp.beta.example SRV 20 0 5902 b2.example.
_wanderbus._udp.beta.example SRV 10 0 5901 b1.example.
_wanderbus._udp.beta.example SRV 30 0 0 b3.example.
_wanderbus._udp.beta.example SRV 30 0 5903 gone.example.
_wanderbus._udp.beta.example SRV 30 0 5904 many.example.
_wanderbus._udp.gone.example SRV 10 0 5900 gone.example.
_wanderbus._udp.none.example SRV 0 0 0 .
b1.example A 192.0.2.11
b2.example A 192.0.2.12
b3.example A 192.0.2.13
many.example A 224.0.0.1
one.example A 192.0.2.1
one.example AAAA 2001:db8::1
two.example A 192.0.2.2
two.example A 192.0.2.3
bare.example A 192.0.2.4
"""


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    server = NameServer(ZONE, ttl_s={"one.example": 30})
    server.start()
    yield server
    server.close()


def looked_up(server: NameServer, domain: str, port: int | None = None, ip_version: int = 4) -> DomainLookedUp:
    async def story() -> DomainLookedUp:
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        resolver = DomainResolver(found.set_result, name_servers=[server.address], ip_version=ip_version)
        resolver.find(FindDomain(domain, port))
        answer: DomainLookedUp = await asyncio.wait_for(found, 10)
        resolver.close()
        await asyncio.sleep(0)
        return answer

    return asyncio.run(story())


def gateways_of(server: NameServer, domain: str) -> GatewaysFound:
    async def story() -> GatewaysFound:
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        resolver = DomainResolver(found.set_result, name_servers=[server.address])
        resolver.find(FindGateways(domain))
        answer: GatewaysFound = await asyncio.wait_for(found, 10)
        resolver.close()
        await asyncio.sleep(0)
        return answer

    return asyncio.run(story())


def server_of(domain: str, host: str, port: int, priority: int = 0, weight: int = 0) -> DomainServer:
    return DomainServer(Target("TLS", (host, port), None, domain), priority, weight)


def test_naptr_leads_to_srv_and_srv_to_addresses(name_server: NameServer) -> None:
    """The certificate must name the requested domain; a host without an address is skipped."""
    answer = looked_up(name_server, "srv.example")
    assert answer == DomainLookedUp(
        "srv.example",
        None,
        (
            server_of("srv.example", "192.0.2.1", 5061, 10, 60),
            server_of("srv.example", "192.0.2.2", 5071, 20, 5),
            server_of("srv.example", "192.0.2.3", 5071, 20, 5),
        ),
        30.0,
    )


def test_the_ttl_is_the_least_of_all_answers(name_server: NameServer) -> None:
    assert looked_up(name_server, "plain.example").ttl_s == 30.0


def test_without_naptr_the_usual_srv_is_asked_for(name_server: NameServer) -> None:
    answer = looked_up(name_server, "plain.example")
    assert answer.servers == (server_of("plain.example", "192.0.2.1", 5081, 1, 1),)
    assert name_server.asked == ["plain.example. NAPTR", "_sips._tcp.plain.example. SRV", "one.example. A"]


def test_without_srv_the_domain_itself_is_the_server(name_server: NameServer) -> None:
    assert looked_up(name_server, "bare.example").servers == (server_of("bare.example", "192.0.2.4", 5061),)


def test_with_a_port_addresses_alone_are_asked_for(name_server: NameServer) -> None:
    """RFC 3263 4.2."""
    assert looked_up(name_server, "bare.example", 5099).servers == (server_of("bare.example", "192.0.2.4", 5099),)
    assert name_server.asked == ["bare.example. A"]


def test_addresses_are_of_our_own_ip_version(name_server: NameServer) -> None:
    assert looked_up(name_server, "plain.example", ip_version=6).servers == (
        server_of("plain.example", "2001:db8::1", 5081, 1, 1),
    )


@pytest.mark.parametrize("domain", ["none.example", "unknown.example"])
def test_a_domain_without_a_server(name_server: NameServer, domain: str) -> None:
    answer = looked_up(name_server, domain)
    assert (answer.servers, answer.timed_out) == ((), False)
    assert answer.failure


def test_a_name_server_that_fails(name_server: NameServer) -> None:
    answer = looked_up(name_server, "broken.example")
    assert (answer.servers, bool(answer.failure)) == ((), True)


def test_silence_ends_in_time_and_holds_nothing_up(name_server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop turns while a name server is silent; the bound is cut short here."""
    monkeypatch.setattr("wanderbus.runtime.net.domain_resolver.LOOKUP_S_MAX", 0.3)

    async def story() -> tuple[DomainLookedUp, int]:
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        resolver = DomainResolver(found.set_result, name_servers=[name_server.address])
        resolver.find(FindDomain("silent.example", None))
        turns = 0
        while not found.done():
            await asyncio.sleep(0.01)
            turns += 1
        return found.result(), turns

    answer, turns = asyncio.run(story())
    assert (answer.servers, answer.timed_out) == ((), True)
    assert turns > 5


def test_lookups_end_with_the_resolver(name_server: NameServer) -> None:
    async def story() -> list[DomainLookedUp]:
        found: list[Any] = []
        resolver = DomainResolver(found.append, name_servers=[name_server.address])
        resolver.find(FindDomain("silent.example", None))
        await asyncio.sleep(0.05)
        resolver.close()
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    assert asyncio.run(story()) == []


def test_it_runs_on_the_loop_of_the_server_too(name_server: NameServer) -> None:
    async def story() -> DomainLookedUp:
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        resolver = DomainResolver(found.set_result, name_servers=[name_server.address])
        resolver.find(FindDomain("bare.example", None))
        return await asyncio.wait_for(found, 10)

    assert uvloop.run(story()).servers


def test_a_system_without_name_servers_is_an_error_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    def unconfigured(configure: bool) -> None:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr("dns.asyncresolver.Resolver", unconfigured)
    with pytest.raises(ConfigurationError, match=r"set domains\.name_servers"):
        DomainResolver(lambda answer: None)


def test_s01_gateways_are_found_by_srv_in_the_order_of_their_priorities(name_server: NameServer) -> None:
    """A record without a port, an address, or the address of a single host is left out."""
    expected = (("b1", ("192.0.2.11", 5901)), ("b2", ("192.0.2.12", 5902)))
    assert gateways_of(name_server, "beta.example") == GatewaysFound("beta.example", expected)


@pytest.mark.parametrize("domain", ["none.example", "unknown.example", "gone.example"])
def test_a_domain_without_gateways(name_server: NameServer, domain: str) -> None:
    failure = f"there is no SRV record with an address at _wanderbus._udp.{domain}"
    assert gateways_of(name_server, domain) == GatewaysFound(domain, (), failure)


def test_a_lookup_of_gateways_that_fails(name_server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderbus.runtime.net.domain_resolver.LOOKUP_S_MAX", 0.3)
    monkeypatch.setattr("wanderbus.runtime.net.domain_resolver.GATEWAY_SERVICE", "silent")
    assert gateways_of(name_server, "beta.example").failure == "no name server answered in time"
    monkeypatch.setattr("wanderbus.runtime.net.domain_resolver.GATEWAY_SERVICE", "broken")
    found = gateways_of(name_server, "beta.example")
    assert (found.gateways, bool(found.failure)) == ((), True)


def test_s01_weights_share_the_links_of_gateways_with_one_priority(name_server: NameServer) -> None:
    """A weight of 0 is the least; of a long answer the first records are used."""
    records = [
        f"_wanderbus._udp.many.example SRV 1 {place and 1000} {5900 + place} g{place}.example." for place in range(20)
    ]
    addresses = [f"g{place}.example A 192.0.2.{place + 1}" for place in range(20)]
    name_server.change("\n".join([*records, *addresses]))
    orders = [[name for name, _ in gateways_of(name_server, "many.example").gateways] for _ in range(8)]
    assert {len(each) for each in orders} == {SERVERS_MAX}
    assert len({tuple(each) for each in orders}) > 1
    assert sum("g0" in each for each in orders) <= 1
