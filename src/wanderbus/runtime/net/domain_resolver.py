"""DNS lookup of the SIP servers of a domain, for TLS only, without blocking the loop (RFC 3263 4).

NAPTR names the SRV record, SRV names the hosts and ports, A or AAAA give their addresses. A domain without NAPTR and
SRV records has its server at its own address, port 5061. The certificate of a server must name the domain that was
looked up, not a name found on the way (RFC 5922 4), so a forged answer leads only to servers that are refused.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import dns.asyncresolver
import dns.exception
import dns.resolver

from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address
from wanderbus.sip.message.targets import PORTS, Target
from wanderbus.sip.proxy.domain_routes import LOOKUP_S_MAX, SERVERS_MAX
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, FindDomain

_NAME_SERVER_S: Final = 1.5
"""Timeout for one name server, before the next is asked."""

_TLS_SERVICE: Final = "SIPS+D2T"
"""SIP over TLS, as NAPTR names it (RFC 3263 4.1)."""


class DomainResolver:
    """Answers :class:`FindDomain` with :class:`DomainLookedUp`, passed to ``feed``.

    :param name_servers: servers to ask; those of the system if empty
    :param ip_version: IP version of the own address; servers of the other version cannot be reached
    :raises ConfigurationError: no name servers are given, and the system names none
    """

    def __init__(
        self, feed: Callable[[DomainLookedUp], None], *, name_servers: Sequence[Address] = (), ip_version: int = 4
    ) -> None:
        self._feed = feed
        self._kind = "A" if ip_version == 4 else "AAAA"
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=not name_servers)
        except dns.resolver.NoResolverConfiguration:
            raise ConfigurationError(
                "domains.lookup: this system has no name servers; set domains.name_servers, or turn lookup off"
            ) from None
        if name_servers:
            self._resolver.nameservers = [host for host, _ in name_servers]
            self._resolver.nameserver_ports = dict(name_servers)
        self._resolver.timeout = _NAME_SERVER_S
        self._resolver.lifetime = LOOKUP_S_MAX
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, wanted: FindDomain) -> None:
        """Start a lookup of a domain."""
        task = asyncio.get_running_loop().create_task(self._find(wanted))
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
        records = sorted(srv, key=lambda record: record.priority)[:SERVERS_MAX]
        hosts = [record for record in records if record.target.to_text() != "."]
        found = await asyncio.gather(
            *(self._at(domain, each.target.to_text(), each.port, each.priority, each.weight) for each in hosts),
            return_exceptions=True,
        )
        known = [each for each in found if not isinstance(each, BaseException)]
        for each in found:
            if not known and isinstance(each, BaseException):
                raise each
        ttl_s = min([_ttl_s(srv), *([_ttl_s(naptr)] if naptr is not None else []), *(ttl_s for _, ttl_s in known)])
        return tuple(server for servers, _ in known for server in servers), ttl_s

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
