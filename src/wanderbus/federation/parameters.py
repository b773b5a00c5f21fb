"""Parameters of a server for the federation of its domain (SPEC M-01)."""

from __future__ import annotations

import msgspec

from wanderbus.federation.routing_messages import RoutingSettings
from wanderbus.peers.far_servers import FarDomain, VisitorsChoice


class ForeignDomain(msgspec.Struct, frozen=True):
    """A domain that this one shares events with: its gateways, and the types that go each way."""

    name: str
    gateways: tuple[str, ...]
    """Names of its gateways; none if they are looked up in the DNS."""
    receives: frozenset[str] = frozenset()
    """Types that are received from it."""
    sends: frozenset[str] = frozenset()
    """Types that are sent to it."""
    events_per_s_max: float | None = None
    gives_sessions: bool = False
    """True if sessions from here may move there."""
    takes_sessions: bool = False
    """True if sessions from there may move here."""
    is_looked_up: bool = False
    """True if its gateways are looked up in the DNS."""
    visitors: VisitorsChoice = "own"
    """Service for its users who call here."""
    is_causal: bool = False
    """True if this domain asks for causal order with it."""


class FederationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Own domain, its servers and gateways, and all foreign domains."""

    own: str
    """The own domain."""
    server: str
    """This server."""
    servers: tuple[str, ...]
    """All servers of the own domain."""
    gateways: tuple[str, ...]
    """Those that are gateways, in the order in which they take turns."""
    access: tuple[str, ...] = ()
    """Those that serve devices; all unless given."""
    domains: tuple[ForeignDomain, ...]
    routing: RoutingSettings

    @property
    def causal(self) -> tuple[str, ...]:
        """Return the domains that this one asks for causal order with, sorted."""
        return tuple(sorted([each.name for each in self.domains if each.is_causal]))

    @property
    def received(self) -> frozenset[str]:
        """Return the types that come from any foreign domain."""
        return frozenset().union(*(each.receives for each in self.domains))

    @property
    def far_domains(self) -> dict[str, FarDomain]:
        """Return the foreign domains as those know them who hand sessions over."""
        return {
            each.name: FarDomain(each.receives, each.sends, each.gives_sessions, each.takes_sessions, each.visitors)
            for each in self.domains
        }
