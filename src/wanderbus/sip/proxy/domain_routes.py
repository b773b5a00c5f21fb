"""Servers of other domains: static routes, and resolver answers cached for their TTL (RFC 3263, RFC 2782).

The resolver is outside: :class:`FindDomain` asks it, :class:`DomainLookedUp` is its answer. The servers of a domain are
tried by priority, then by weight. The order depends on the Call-ID alone, so that all requests of a call go to one
server while that responds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Final

from wanderbus.machine import Address
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, DomainServer, NotFound, OtherDomains

LOOKUP_S_MAX: Final = 5.0
"""Largest time for which a request waits for the resolver."""

LOOKUPS_MAX: Final = 64
"""Largest number of lookups at once."""

WAITING_MAX: Final = 1_024
"""Largest number of requests that wait for the resolver."""

DOMAINS_CACHED_MAX: Final = 1_024
"""Largest number of domains whose servers are cached."""

TTL_S_MIN: Final = 10.0
"""Shortest time for which an answer is cached: longer than any request waits."""

TTL_S_MAX: Final = 3_600.0
"""Longest time for which an answer is cached."""

FAILURE_TTL_S: Final = 10.0
"""Time for which a failed lookup is not repeated."""

SERVERS_MAX: Final = 8
"""Largest number of servers of one domain that are tried."""

AVOIDED_S: Final = 30.0
"""Time for which a server that did not respond is tried after all others."""

AVOIDED_MAX: Final = 256
"""Largest number of servers recorded as not responding."""

Name = tuple[str, int | None]
"""A domain, in lower case, and the port of the URI."""


class _Cached:
    __slots__ = ("expires_at", "servers")

    def __init__(self, expires_at: float, servers: tuple[DomainServer, ...] | NotFound) -> None:
        self.expires_at = expires_at
        self.servers = servers


class DomainRoutes:
    """Servers of other domains, by name; if ``others`` is None, there is only our own domain."""

    def __init__(self, others: OtherDomains | None) -> None:
        self.enabled = others is not None
        self._others = others or OtherDomains(lookup=False)
        self._cache: dict[Name, _Cached] = {}
        self._found: dict[tuple[str, Address], Target] = {}
        """Servers of trusted domains in the cache, by their addresses."""
        self._avoided: dict[Target, float] = {}
        self._static = {
            (server.target.transport, server.target.address): server.target
            for servers in self._others.routes.values()
            for server in servers
        }

    def known_at(self, target: Target) -> Target:
        """Return the server of a route at ``target``, or one of a trusted domain that was found, or ``target`` itself.

        A Record-Route or a redirection may name a server by its address alone; the route defines the name in its
        certificate, as the domain that was looked up does.
        """
        place = target.transport, target.address
        return self._static.get(place) or self._found.get(place, target)

    def trusts(self, domain: str | None) -> bool:
        """Return whether identities may be asserted to and by ``domain``."""
        return domain in self._others.trusted

    def trusted(self, domains: Iterable[str]) -> frozenset[str]:
        """Return the trusted ones of ``domains``."""
        return self._others.trusted & frozenset(domains)

    def targets(self, name: Name, call_id: str, now: float) -> tuple[Target, ...] | NotFound | None:
        """Return the servers of ``name`` in the order to be tried for ``call_id``; None if a lookup is needed."""
        servers: tuple[DomainServer, ...] | NotFound | None = self._others.routes.get(name[0])
        if servers is None and not self._others.lookup:
            return NotFound(404, "No Route To This Domain")
        if servers is None and (cached := self._cache.get(name)) is not None and cached.expires_at > now:
            servers = cached.servers
        if servers is None or isinstance(servers, NotFound):
            return servers

        def place(server: DomainServer) -> tuple[bool, int, float]:
            seed = f"{call_id} {server.target.transport} {server.target.address}"
            return self._is_avoided(server.target, now), *rank(server.priority, server.weight, seed)

        ordered = sorted(servers, key=place)
        return tuple(server.target for server in ordered[:SERVERS_MAX])

    def learn(self, answer: DomainLookedUp, now: float) -> None:
        """Cache the resolver's answer."""
        name = answer.domain, answer.port
        kept: tuple[DomainServer, ...] | NotFound = answer.servers
        ttl_s = min(max(answer.ttl_s, TTL_S_MIN), TTL_S_MAX)
        if not answer.servers:
            ttl_s = FAILURE_TTL_S
            kept = NotFound(504, "Domain Lookup Timed Out") if answer.timed_out else NotFound(502, "Domain Not Found")
        self._forget(name)
        if len(self._cache) >= DOMAINS_CACHED_MAX:
            self._forget(next(iter(self._cache)))
        self._cache[name] = _Cached(now + ttl_s, kept)
        if self.trusts(answer.domain):  # the zone of another one could name the address of this one's server
            self._found |= {(each.target.transport, each.target.address): each.target for each in answer.servers}

    def _forget(self, name: Name) -> None:
        """Forget the answer about a domain."""
        cached = self._cache.pop(name, None)
        if cached is not None and not isinstance(cached.servers, NotFound):
            for each in cached.servers:
                self._found.pop((each.target.transport, each.target.address), None)

    def avoid(self, target: Target, now: float) -> None:
        """Record that ``target`` did not respond."""
        self._avoided.pop(target, None)
        if len(self._avoided) >= AVOIDED_MAX:
            del self._avoided[next(iter(self._avoided))]
        self._avoided[target] = now + AVOIDED_S

    def _is_avoided(self, target: Target, now: float) -> bool:
        return self._avoided.get(target, now) > now


def rank(priority: int, weight: int, seed: str) -> tuple[int, float]:
    """Return the sort key of a server: priority, then random by weight (RFC 2782), the same for one ``seed``."""
    drawn = (int.from_bytes(hashlib.sha256(seed.encode()).digest()[:6]) + 1) / (2**48 + 1)
    # The smallest of exponential draws, each with its weight as rate, selects a server in proportion to its weight.
    return priority, -math.log(drawn) / (weight or 1e-6)
