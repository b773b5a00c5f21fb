"""SIP servers of other domains: the policy, and the look-up in the DNS (RFC 3263 4, SPEC D-13)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wanderbus.machine import Input, Output
from wanderbus.sip.message.targets import Target


class DomainServer(msgspec.Struct, frozen=True):
    """One SIP server of a domain; a lower ``priority`` goes first, ``weight`` shares the load (RFC 2782)."""

    target: Target
    priority: int = 0
    weight: int = 0


class OtherDomains(msgspec.Struct, frozen=True):
    """Policy of the proxy for other domains.

    ``routes`` are the static ones; with ``lookup`` all other domains are looked up. ``trusted`` are the domains whose
    asserted identities are accepted, and for which identities are asserted (RFC 3325).
    """

    routes: Mapping[str, tuple[DomainServer, ...]] = {}
    lookup: bool = True
    trusted: frozenset[str] = frozenset()


class FindDomain(Output, frozen=True):
    """Look up the SIP servers of ``domain`` over TLS, at ``port`` if one is named (RFC 3263 4)."""

    domain: str
    port: int | None


class DomainLookedUp(Input, frozen=True):
    """The resolver's answer to :class:`FindDomain`: ``servers``, valid for ``ttl_s`` seconds.

    Without servers ``failure`` is the reason; ``timed_out`` distinguishes a silent name server from a domain without a
    server.
    """

    domain: str
    port: int | None
    servers: tuple[DomainServer, ...] = ()
    ttl_s: float = 0.0
    failure: str = ""
    timed_out: bool = False


class NotFound(msgspec.Struct, frozen=True):
    """No server of the domain is known: respond ``status`` and ``reason``."""

    status: int
    reason: str
