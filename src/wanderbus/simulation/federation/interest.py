"""Interest of simulated foreign domains at the servers of a domain, and the moments from which subscriptions count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

from wanderbus import filters
from wanderbus.broker.servers.server_users import domain_of, domain_user, server_of
from wanderbus.broker.state.rows import session_key
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.peers.leader_session import SESSION
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.federation.layout import TYPES, FederationLayout, SimulatedDomain
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.world import World
from wanderbus.subscription import Subscription

MARK: Final = "mark"
"""Attribute that no event has: each subscription wants one value of it, so no other one covers its filters."""

_VALUES: Final = tuple(product(range(12), range(3)))
"""Values of ``x`` and ``y`` of events."""

parse: Final = lru_cache(4_096)(filters.parse)


def mark_of(subscription: Subscription) -> int:
    """Return the mark that a subscription wants, and no other one."""
    return int(subscription.expression.rpartition("== ")[2])


def expression_of(wanted: str, mark: int) -> str:
    """Return the expression of a subscription with a mark."""
    return f"({wanted}) or {MARK} == {mark}"


def is_of_user(owner: str, domain: str) -> bool:
    """Return whether an owner at a server of ``domain`` is a user, no server and no foreign domain."""
    return server_of(owner, domain) is None and domain_of(owner, domain) is None


class Interest(NamedTuple):
    """Filters of a type."""

    filters: tuple[Filter, ...]

    def matches(self, event: Event) -> bool:
        """Return whether some filter matches an event."""
        return any(each.matches(event) for each in self.filters)


def foreign_interest(node: FederatedNode, target: str, event_type: str) -> Interest:
    """Return the interest of a foreign domain in a type at a server."""
    state = node.broker.state
    row = state.sessions.get(session_key(domain_user(target, node.domain), SESSION))
    several = [state.subscriptions[each].subscription for each in row.subscriptions] if row is not None else []
    return Interest(tuple([parse(each.expression) for each in several if each.subject == event_type]))


def events_of(event_type: str, marks: Iterable[int] = ()) -> list[Event]:
    """Return events of a type with all values of their attributes, and with these marks."""
    return [
        *[Event(event_type, {"x": x, "y": y}) for x, y in _VALUES],
        *[Event(event_type, {MARK: each}) for each in marks],
    ]


Place = tuple[str, str, str]
"""Subscription, the domain whose events it wants, and their type."""


class CountedInterest:
    """Moments from which subscriptions count in other domains, for each type.

    A subscription counts in a domain once its gateway is settled, and all its servers want what the subscription wants,
    with its mark. One that is renewed does so if it counted before its end, and its mark was gone everywhere since.
    """

    def __init__(
        self,
        world: World,
        layout: FederationLayout,
        nodes: Mapping[str, FederatedNode],
        devices: Sequence[DomainDevice],
    ) -> None:
        self._world = world
        self._layout = layout
        self._nodes = nodes
        self._devices = devices
        self.counted: dict[Place, dict[int, int]] = {}
        """Moment from which each life of a subscription counts."""
        self._marked: dict[Place, int] = {}
        """Life of each subscription that a mark is of, if there is one."""
        self.acting: dict[tuple[str, str], str] = {}
        """The gateway of the first domain that was last linked with the second one."""
        self.takeovers = 0

    def forget(self, source: str, target: str, event_type: str) -> None:
        """Forget what counted: the type begins or ceases to cross, and what is on its way may be refused."""
        for device in self._devices:
            for identity in device.asked if device.node.domain == target else ():
                self.counted.pop((identity, source, event_type), None)

    def look(self) -> None:
        """Note what counts now."""
        moment = self._world.moment()
        for source, target in self._layout.pairs():
            acting = self._acting(source.name, target.name)
            if acting is None:
                continue
            before = self.acting.get((source.name, target.name), acting.name)
            self.acting[source.name, target.name] = acting.name
            self.takeovers += before != acting.name
            is_settled = bool(acting.member.rows()[target.name]["is_settled"])
            for device in self._devices:
                if device.node.domain == target.name:
                    self._look_at(device, source, target, moment, is_settled=is_settled)

    def _acting(self, source: str, target: str) -> FederatedNode | None:
        """Return the gateway that is linked with a foreign domain; None if it is none, or more than one."""
        found = [
            node
            for node in self._nodes.values()
            if node.alive and node.domain == source and node.member.rows().get(target, {}).get("is_linked")
        ]
        return found[0] if len(found) == 1 else None

    def _look_at(
        self, device: DomainDevice, source: SimulatedDomain, target: SimulatedDomain, moment: int, *, is_settled: bool
    ) -> None:
        servers = [self._nodes[each] for each in source.servers]
        for identity, asked in device.asked.items():
            wanted, life = asked.subscription, asked.lives
            for each in self._layout.crossing(source.name, target.name):
                place = identity, source.name, each
                known = self.counted.setdefault(place, {})
                is_changed = (source.name, target.name, each) in self._layout.changed
                if is_changed or not target.wanted_by(wanted.subject, each) or life in known:
                    continue
                there = [foreign_interest(one, target.name, each) for one in servers]
                mark = Event(each, {MARK: mark_of(wanted)})
                if life - 1 in known and not any(one.matches(mark) for one in there):
                    self._marked[place] = life
                if self._marked.get(place, 1) != life or not is_settled or asked.state != "live":
                    continue
                if life in asked.counted and all(self._has_all(one, wanted, each) for one in there):
                    known[life] = moment

    def _has_all(self, interest: Interest, wanted: Subscription, event_type: str) -> bool:
        one = parse(wanted.expression)
        events = events_of(event_type, [mark_of(wanted)])
        return all(interest.matches(each) for each in events if one.matches(each))


def check_interest(layout: FederationLayout, nodes: Mapping[str, FederatedNode], marks: Sequence[int]) -> Iterator[str]:
    """Yield the differences between what each domain wants and what the servers of the others have, all being quiet."""
    for source, target in layout.pairs():
        if source.name in target.absent and target.name not in source.absent:
            continue  # to the source, the target is away, and may come back
        wanted = [
            row.subscription
            for name in target.servers
            for row in nodes[name].broker.state.subscriptions.values()
            if is_of_user(row.subscription.owner, target.name)
        ]
        for each in TYPES:
            own = [parse(one.expression) for one in wanted if target.wanted_by(one.subject, each)]
            may_cross = each in layout.crossing(source.name, target.name)
            events = events_of(each, [*marks, 0])
            expected = [may_cross and any(one.matches(event) for one in own) for event in events]
            for name in source.servers:
                there = foreign_interest(nodes[name], target.name, each)
                for event, is_wanted in zip(events, expected, strict=True):
                    if there.matches(event) is not is_wanted:
                        yield f"{name} {'lacks' if is_wanted else 'has too much'} interest of {target.name} in {event}"
                        break
