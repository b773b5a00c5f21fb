"""Layout of simulated domains that share events: their servers, gateways, hierarchies, and the types that cross."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final

import msgspec

from wanderbus.channels.groups import ChannelGroups
from wanderbus.federation.parameters import FederationParameters, ForeignDomain
from wanderbus.federation.routing_messages import Method, Neighbour, RoutingSettings
from wanderbus.subscription import EVERY_SUBJECT

TYPES: Final = ("A", "B", "C", "D", "AA")
"""All subjects."""
_NAMES: Final = ("alpha", "beta", "gamma", "delta", "omega", "sigma")
_PARENTS: Final = {"AA": "A"}
_GROUPS: Final = 8
_KEY: Final = bytes(32)


class SimulatedDomain(msgspec.Struct):
    """A domain as its own file describes it; ``sends`` and ``receives`` have the types by foreign domain."""

    name: str
    servers: tuple[str, ...]
    gateways: tuple[str, ...]
    groups: ChannelGroups
    decentralised: frozenset[str]
    """Subjects whose channels are decentralised."""
    sends: dict[str, frozenset[str]] = {}
    receives: dict[str, frozenset[str]] = {}
    absent: set[str] = set()
    """Domains that are not in its file now."""

    def wanted_by(self, subject: str, event_type: str) -> bool:
        """Return whether a subscription to ``subject`` is one to the events of a type, too."""
        return subject in (EVERY_SUBJECT, *self.groups.hierarchy.lineage(event_type))


class FederationLayout:
    """Domains that share events, drawn at random.

    In every fifth world there are no hierarchies in some domains. With another method than multicast, every type goes
    from each domain to each other one.
    """

    def __init__(self, seed: int, draw: Random, method: Method = "multicast") -> None:
        self.method: Method = method
        self.sessions_move = False
        """True if sessions move between all domains."""
        self.are_causal = False
        """True if all domains ask for causal order with each other."""
        self.domains: dict[str, SimulatedDomain] = {}
        self.changed: set[tuple[str, str, str]] = set()
        """Types that have begun or ceased to cross from one domain to another, because their files have changed."""
        for name in _NAMES[: self._count(draw)]:
            servers = tuple([f"{name[0]}{number}" for number in range(1, draw.choice([1, 2, 2, 3]) + 1)])
            gateways = draw.sample(servers, min(len(servers), draw.choice([1, 2, 2])))
            parents = _PARENTS if seed % 5 or draw.random() < 0.5 else {}
            groups = ChannelGroups(_KEY, _GROUPS, parents=parents)
            chosen = draw.choice([(), (), ("A", "B"), TYPES])
            decentralised = frozenset([each for each in TYPES if groups.hierarchy.top(each) in chosen])
            if decentralised:
                del gateways[1:]  # servers refuse more
            self.domains[name] = SimulatedDomain(name, servers, tuple(gateways), groups, decentralised)
        for source, target in self.pairs():
            sides = {each: draw.choice(["both", "both", "both", "both", "sends", "receives", "none"]) for each in TYPES}
            if method != "multicast":
                sides = dict.fromkeys(TYPES, "both")
            sends = frozenset([each for each, side in sides.items() if side in ("both", "sends")])
            receives = frozenset([each for each, side in sides.items() if side in ("both", "receives")])
            source.sends = {**source.sends, target.name: sends}
            target.receives = {**target.receives, source.name: receives}

    def _count(self, draw: Random) -> int:
        """Return the number of domains."""
        return draw.choice([2, 2, 2, 3, 3, 4, 5])

    def is_linked(self, one: str, other: str) -> bool:
        """Return whether two domains have gateways that may have a link."""
        return True

    def distance(self, one: str, other: str) -> float:
        """Return the distance of two domains that may have a link."""
        return 1.0

    @property
    def has_one_hierarchy(self) -> bool:
        """Return whether a subscription has the same meaning in all domains."""
        return len({len(each.groups.hierarchy.parents) for each in self.domains.values()}) == 1

    def pairs(self) -> Iterator[tuple[SimulatedDomain, SimulatedDomain]]:
        """Yield each domain with each other one."""
        several = list(self.domains.values())
        return ((one, other) for one in several for other in several if one is not other)

    def crossing(self, source: str, target: str) -> frozenset[str]:
        """Return the types that the source sends and the target receives."""
        if source in self.domains[target].absent or target in self.domains[source].absent:
            return frozenset()
        return self.domains[source].sends[target] & self.domains[target].receives[source]

    def ever_crossing(self, source: str, target: str) -> frozenset[str]:
        """Return the types that cross now, and those that have done so."""
        changed = [type for one, other, type in self.changed if (one, other) == (source, target)]
        return self.crossing(source, target).union(changed)

    def parameters(self, domain: SimulatedDomain, server: str) -> FederationParameters:
        """Return what a server has to know of the federation."""
        others = [each for each in self.domains.values() if each is not domain and each.name not in domain.absent]
        neighbours: Mapping[str, Neighbour] = {
            each.name: Neighbour(
                domain.receives[each.name], domain.sends[each.name], self.distance(domain.name, each.name)
            )
            for each in others
        }
        return FederationParameters(
            own=domain.name,
            server=server,
            servers=domain.servers,
            gateways=domain.gateways,
            domains=tuple(
                [
                    ForeignDomain(
                        each.name,
                        each.gateways if self.is_linked(domain.name, each.name) else (),
                        domain.receives[each.name],
                        domain.sends[each.name],
                        gives_sessions=self.sessions_move,
                        takes_sessions=self.sessions_move,
                        is_causal=self.are_causal,
                    )
                    for each in others
                ]
            ),
            routing=RoutingSettings(domain.name, neighbours, self.method),
        )
