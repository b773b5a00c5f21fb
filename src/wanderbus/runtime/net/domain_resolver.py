"""DNS lookup of the SIP servers of a domain, and of its gateways, without blocking the loop (RFC 3263 4, RFC 2782).

NAPTR names the SRV record, SRV names the hosts and ports, A or AAAA give their addresses. A domain without NAPTR and
SRV records has its server at its own address, port 5061. The certificate of a server must name the domain that was
looked up, not a name found on the way (RFC 5922 4), so a forged answer leads only to servers that are refused.

The gateways of a domain have SRV records at ``_wanderbus._udp.DOMAIN``. The first label of the host is the name of the
gateway. Each is authenticated by the key of its domain, so that a forged answer leads to none.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import dns.asyncresolver
import dns.exception
import dns.resolver

from wanderbus.errors import ConfigurationError
from wanderbus.federation.messages import FindGateways, GatewaysFound
from wanderbus.machine import Address, shown
from wanderbus.settings.federation import GATEWAY_SERVICE, check_gateway
from wanderbus.sip.message.targets import PORTS, Target
from wanderbus.sip.proxy.domain_routes import LOOKUP_S_MAX, SERVERS_MAX, rank
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, FindDomain

Found = TypeVar("Found")

_NAME_SERVER_S: Final = 1.5
"""Timeout for one name server, before the next is asked."""

_TLS_SERVICE: Final = "SIPS+D2T"
"""SIP over TLS, as NAPTR names it (RFC 3263 4.1)."""


class DomainResolver:
    """Answers :class:`FindDomain` with :class:`DomainLookedUp`, and :class:`FindGateways` with :class:`GatewaysFound`.

    :param feed: gets the answers

    :param name_servers: servers to ask; those of the system if empty
    :param ip_version: IP version of the own address; servers of the other version cannot be reached
    :param setting: the setting that needs a resolver
    :param otherwise: advice if there are no name servers
    :raises ConfigurationError: no name servers are given, and the system names none
    """

    def __init__(
        self,
        feed: Callable[[DomainLookedUp | GatewaysFound], None],
        *,
        name_servers: Sequence[Address] = (),
        ip_version: int = 4,
        setting: str = "domains.lookup",
        otherwise: str = "turn lookup off",
    ) -> None:
        self._feed = feed
        self._kind = "A" if ip_version == 4 else "AAAA"
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=not name_servers)
        except dns.resolver.NoResolverConfiguration:
            raise ConfigurationError(
                f"{setting}: this system has no name servers; set domains.name_servers, or {otherwise}"
            ) from None
        if name_servers:
            self._resolver.nameservers = [host for host, _ in name_servers]
            self._resolver.nameserver_ports = dict(name_servers)
        self._resolver.timeout = _NAME_SERVER_S
        self._resolver.lifetime = LOOKUP_S_MAX
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, wanted: FindDomain | FindGateways) -> None:
        """Start a lookup of a domain."""
        lookup = self._find(wanted) if isinstance(wanted, FindDomain) else self._find_gateways(wanted)
        task = asyncio.get_running_loop().create_task(lookup)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel all lookups."""
        for task in list(self._tasks):
            task.cancel()

    async def _find(self, wanted: FindDomain) -> None:
        name = wanted.domain, wanted.port
        try:
            async with asyncio.timeout(LOOKUP_S_MAX):
                servers, ttl_s = await self._servers(wanted)
        except (TimeoutError, dns.exception.Timeout):
            self._feed(DomainLookedUp(*name, failure="no name server answered in time", timed_out=True))
        except (dns.exception.DNSException, OSError, ValueError) as error:
            self._feed(DomainLookedUp(*name, failure=str(error)))
        else:
            failure = "" if servers else "it has no SIP server over TLS"
            self._feed(DomainLookedUp(*name, servers[:SERVERS_MAX], ttl_s, failure))

    async def _servers(self, wanted: FindDomain) -> tuple[tuple[DomainServer, ...], float]:
        domain = wanted.domain
        if wanted.port is not None:
            return await self._at(domain, domain, wanted.port, 0, 0)
        naptr = await self._ask(domain, "NAPTR")
        services = sorted(
            (record.order, record.preference, record.replacement.to_text())
            for record in naptr or ()
            if record.service.decode("ascii", "replace").upper() == _TLS_SERVICE and record.flags.upper() == b"S"
        )
        srv = await self._ask(services[0][2] if services else f"_sips._tcp.{domain}", "SRV")
        if srv is None:
            return await self._at(domain, domain, PORTS["TLS"], 0, 0)
        known = await _all_found(
            self._at(domain, each.target.to_text(), each.port, each.priority, each.weight) for each in _first(srv)
        )
        ttl_s = min([_ttl_s(srv), *([_ttl_s(naptr)] if naptr is not None else []), *(ttl_s for _, ttl_s in known)])
        return tuple(server for servers, _ in known for server in servers), ttl_s

    async def _find_gateways(self, wanted: FindGateways) -> None:
        gateways: tuple[tuple[str, Address], ...] = ()
        failure = f"there is no SRV record with an address at {GATEWAY_SERVICE}.{wanted.domain}"
        try:
            async with asyncio.timeout(LOOKUP_S_MAX):
                gateways = await self._gateways(wanted.domain)
        except (TimeoutError, dns.exception.Timeout):
            failure = "no name server answered in time"
        except (dns.exception.DNSException, OSError, ValueError) as error:
            failure = str(error)
        self._feed(GatewaysFound(wanted.domain, gateways, "" if gateways else failure))

    async def _gateways(self, domain: str) -> tuple[tuple[str, Address], ...]:
        srv = await self._ask(f"{GATEWAY_SERVICE}.{domain}", "SRV")
        found = [] if srv is None else await _all_found(self._gateway(each) for each in _first(srv))
        return tuple([each for each in found if each is not None])

    async def _gateway(self, record: Any) -> tuple[str, Address] | None:
        """Return name and address of the gateway of a SRV record; None if it cannot be used."""
        answer = await self._ask(record.target.to_text(), self._kind)
        name = record.target.to_text().partition(".")[0]
        if answer is None:
            return None
        host = min(each.address for each in answer)
        try:
            return name, check_gateway(GATEWAY_SERVICE, name, shown((host, record.port)))
        except ConfigurationError:
            return None

    async def _at(
        self, domain: str, host: str, port: int, priority: int, weight: int
    ) -> tuple[tuple[DomainServer, ...], float]:
        """Return the servers of ``domain`` at ``host``, and the time to live of the answer."""
        answer = await self._ask(host, self._kind)
        if answer is None:
            return (), math.inf
        hosts = sorted(record.address for record in answer)
        servers = (DomainServer(Target("TLS", (each, port), None, domain), priority, weight) for each in hosts)
        return tuple(servers), _ttl_s(answer)

    async def _ask(self, name: str, kind: str) -> Any:
        """Return the records of ``kind`` at ``name``, None if there are none; names are absolute."""
        try:
            return await self._resolver.resolve(f"{name.rstrip('.')}.", kind)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return None


def _ttl_s(answer: Any) -> float:
    return float(answer.rrset.ttl) if answer.rrset is not None else 0.0


def _first(srv: Any) -> list[Any]:
    """Return the first SRV records in the order to be tried (RFC 2782); an answer may have any number of them."""
    seed = secrets.token_hex(8)

    def place(record: Any) -> tuple[int, float]:
        return rank(record.priority, record.weight, f"{seed} {record.target} {record.port}")

    return [record for record in sorted(srv, key=place)[:SERVERS_MAX] if record.target.to_text() != "."]


async def _all_found(lookups: Iterable[Coroutine[Any, Any, Found]]) -> list[Found]:
    """Return the results of those lookups that succeed; raise an error if none does."""
    results = await asyncio.gather(*lookups, return_exceptions=True)
    known = [each for each in results if not isinstance(each, BaseException)]
    for each in results:
        if not known and isinstance(each, BaseException):
            raise each
    return known
