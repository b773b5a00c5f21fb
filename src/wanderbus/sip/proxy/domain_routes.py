"""Servers of other domains: static routes, and answers of the resolver kept for their TTL (RFC 3263, RFC 2782).

Nothing is looked up here: :class:`FindDomain` asks, :class:`DomainLookedUp` answers. The servers of a domain are tried
by priority, then by weight. The order depends on the Call-ID alone, so that all requests of a call go to one server as
long as that answers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from wanderbus.machine import Input, Output
from wanderbus.sip.message.targets import Target

LOOKUP_S_MAX: Final = 5.0
"""How long a request waits for the resolver."""

LOOKUPS_MAX: Final = 64
"""Domains looked up at once."""

WAITING_MAX: Final = 1_024
"""Requests that wait for the resolver, in all."""

DOMAINS_CACHED_MAX: Final = 1_024
"""Domains whose servers are remembered."""

TTL_S_MIN: Final = 10.0
"""Least time for which an answer is kept: longer than any request waits."""

TTL_S_MAX: Final = 3_600.0
"""Longest time for which an answer is kept."""

FAILURE_TTL_S: Final = 10.0
"""How long a domain that was not found is not looked up again."""

SERVERS_MAX: Final = 8
"""Servers of one domain that are tried."""

AVOIDED_S: Final = 30.0
"""How long a server that did not answer is tried after all others."""

AVOIDED_MAX: Final = 256
"""Servers remembered for not answering."""

Name = tuple[str, int | None]
"""A domain, in lower case, and the port that a URI names beside it."""


class DomainServer(msgspec.Struct, frozen=True):
    """One SIP server of a domain; a lower ``priority`` goes first, ``weight`` shares the load (RFC 2782)."""

    target: Target
    priority: int = 0
    weight: int = 0


class OtherDomains(msgspec.Struct, frozen=True):
    """What the proxy may do about other domains.

    ``routes`` are the static ones; with ``lookup`` all other domains are looked up. ``trusted`` are the domains whose
    assertion of identity is believed, and toward which identities are asserted (RFC 3325).
    """

    routes: Mapping[str, tuple[DomainServer, ...]] = {}
    lookup: bool = True
    trusted: frozenset[str] = frozenset()


class FindDomain(Output, frozen=True):
    """Look up the SIP servers of ``domain`` over TLS, at ``port`` if one is named (RFC 3263 4)."""

    domain: str
    port: int | None


class DomainLookedUp(Input, frozen=True):
    """The resolver's answer to :class:`FindDomain`: ``servers``, good for ``ttl_s`` seconds.

    Without servers ``failure`` says why; ``timed_out`` tells a name server that is silent from a domain without one.
    """

    domain: str
    port: int | None
    servers: tuple[DomainServer, ...] = ()
    ttl_s: float = 0.0
    failure: str = ""
    timed_out: bool = False


class NotFound(msgspec.Struct, frozen=True):
    """No server of the domain is known: answer ``status`` and ``reason``."""

    status: int
    reason: str


class _Cached(msgspec.Struct, frozen=True):
    expires_at: float
    servers: tuple[DomainServer, ...] | NotFound


class DomainRoutes:
    """Servers of other domains, by name; None as ``others`` knows no domain but our own."""

    def __init__(self, others: OtherDomains | None) -> None:
        self.enabled = others is not None
        self._others = others or OtherDomains(lookup=False)
        self._cache: dict[Name, _Cached] = {}
        self._avoided: dict[Target, float] = {}
        self._static = {
            (server.target.transport, server.target.address): server.target
            for servers in self._others.routes.values()
            for server in servers
        }

    def known_at(self, target: Target) -> Target:
        """Return the server of a static route that is at ``target``, or ``target`` itself.

        A Record-Route may name a server by its address alone; the route says whose certificate it has to show.
        """
        return self._static.get((target.transport, target.address), target)

    def trusts(self, domain: str | None) -> bool:
        """Say whether identities may be asserted to and by ``domain``."""
        return domain in self._others.trusted

    def trusted(self, domains: Iterable[str]) -> frozenset[str]:
        """Return those of ``domains`` that are trusted."""
        return self._others.trusted & frozenset(domains)

    def targets(self, name: Name, call_id: str, now: float) -> tuple[Target, ...] | NotFound | None:
        """Return the servers of ``name`` in the order to be tried for ``call_id``; None to have them looked up."""
        servers: tuple[DomainServer, ...] | NotFound | None = self._others.routes.get(name[0])
        if servers is None and not self._others.lookup:
            return NotFound(404, "No Route To This Domain")
        if servers is None and (cached := self._cache.get(name)) is not None and cached.expires_at > now:
            servers = cached.servers
        if servers is None or isinstance(servers, NotFound):
            return servers
        ordered = sorted(servers, key=lambda server: (self._is_avoided(server.target, now), *_rank(server, call_id)))
        return tuple(server.target for server in ordered[:SERVERS_MAX])

    def learn(self, answer: DomainLookedUp, now: float) -> None:
        """Keep the resolver's answer."""
        name = answer.domain, answer.port
        kept: tuple[DomainServer, ...] | NotFound = answer.servers
        ttl_s = min(max(answer.ttl_s, TTL_S_MIN), TTL_S_MAX)
        if not answer.servers:
            ttl_s = FAILURE_TTL_S
            kept = NotFound(504, "Domain Lookup Timed Out") if answer.timed_out else NotFound(502, "Domain Not Found")
        self._cache.pop(name, None)
        if len(self._cache) >= DOMAINS_CACHED_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache[name] = _Cached(now + ttl_s, kept)

    def avoid(self, target: Target, now: float) -> None:
        """Remember that ``target`` did not answer."""
        self._avoided.pop(target, None)
        if len(self._avoided) >= AVOIDED_MAX:
            del self._avoided[next(iter(self._avoided))]
        self._avoided[target] = now + AVOIDED_S

    def _is_avoided(self, target: Target, now: float) -> bool:
        return self._avoided.get(target, now) > now


def _rank(server: DomainServer, call_id: str) -> tuple[int, float]:
    """Order servers by priority, and those of one priority at random by weight (RFC 2782), the same for one call."""
    said = f"{call_id} {server.target.transport} {server.target.address}"
    drawn = (int.from_bytes(hashlib.sha256(said.encode()).digest()[:6]) + 1) / (2**48 + 1)
    # The least of exponential draws with the rate of the weight falls on each in proportion to that.
    return server.priority, -math.log(drawn) / (server.weight or 1e-6)
