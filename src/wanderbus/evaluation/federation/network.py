"""Domains with their routing of filters in a simulated network, and what they want (SPEC M-02 to M-05)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.interest_set import InterestSet, Wanted
from wanderbus.channels.interest.messages import FromReceiver
from wanderbus.evaluation.federation.experiment import TYPES, FederationJob, Way
from wanderbus.evaluation.handover.fabric import Fabric, Purpose
from wanderbus.event import Event
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.wire import StreamCarried, decode
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    DomainUnlinked,
    Method,
    Neighbour,
    OwnInterestChanged,
    RoutingInput,
    RoutingOutput,
    RoutingSettings,
    SendToDomain,
)
from wanderbus.filters.merging import filter_of
from wanderbus.filters.normal import Conjunction
from wanderbus.machine import SetTimer, TimerFired

SENDER_OF: Final = 10
"""Every so many domains send each type."""

_METHODS: Final[Mapping[Way, Method]] = {
    Way.MULTICAST: "multicast",
    Way.RENDEZVOUS: "rendezvous",
    Way.TREE: "tree",
}


def name_of(number: int) -> str:
    """Return the name of a domain."""
    return f"domain{number}.example"


def number_of(name: str) -> int:
    """Return the number of the domain of this name."""
    return int(name[len("domain") : -len(".example")])


def senders_of(type: str, domains: int) -> list[int]:
    """Return the domains that send a type, at least two of them."""
    step = max(1, min(SENDER_OF, domains // 2))
    return list(range(TYPES.index(type) % step, domains, step))


class FederatedDomains:
    """The routing of each domain, messages on a fabric, and the interest of users."""

    def __init__(self, job: FederationJob, fabric: Fabric) -> None:
        self.own = [InterestSet() for _ in range(job.domains)]
        self.routing: list[FilterRouting] = []
        self._job = job
        self._fabric = fabric
        self._matches: dict[tuple[Conjunction, int], bool] = {}
        self._pairs: list[tuple[int, int]] = []
        """Domains with a link between them, in both directions."""
        self._cut: frozenset[tuple[int, int]] = frozenset()
        if job.way is Way.FLOODING:
            return
        linked = self._neighbours()
        self._pairs = [(number, other) for number, others in enumerate(linked) for other in others]
        for number in range(job.domains):
            self.routing.append(FilterRouting(self._settings(number, linked[number]), epoch=1))
        for number, other in self._pairs:
            self._give(number, DomainLinked(name_of(other)))

    def change(self, domain: int, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable]) -> None:
        """Change what the users of a domain want."""
        change = self.own[domain].update(added, removed)
        if change and self.routing:
            self._give(domain, OwnInterestChanged(change))

    def cut(self, half: Collection[int]) -> None:
        """Cut the links between one half of the domains and the other one; what is on its way is lost."""
        pairs = [(one, other) for one, other in self._pairs if (one in half) != (other in half)]
        self._cut = frozenset(pairs)
        for one, other in pairs:
            self._give(one, DomainUnlinked(name_of(other)))

    def heal(self) -> None:
        """Make the links again that were cut."""
        pairs, self._cut = self._cut, frozenset()
        for one, other in sorted(pairs):
            self._give(one, DomainLinked(name_of(other)))

    def is_wanted(self, interests: Iterable[Interest], event: Event, number: int) -> bool:
        """Return whether some of the interests match the event of this number."""
        return any(
            self._matched(each.conjunction, event, number) for each in interests if each.subject == event.subject
        )

    def hops_of(self, domain: int, event: Event, number: int) -> list[tuple[int, int, int]]:
        """Return the ways of an event as sender, receiver and number of the hop; two to one domain are a repetition."""
        if not self.routing:
            return [(domain, other, 1) for other in range(self._job.domains) if other != domain]
        found: list[tuple[int, int, int]] = []
        waiting: list[tuple[int, int | None, int]] = [(domain, None, 1)]
        for at, source, hop in waiting:
            for other in self._next(at, source, event, number):
                found.append((at, other, hop))
                if self._job.way is Way.TREE and hop < self._job.domains:
                    waiting.append((other, at, hop + 1))
        return found

    def table_sizes(self) -> list[int]:
        """Return the number of filters of other domains at each domain."""
        return [each.filters_held() for each in self.routing] or [0] * self._job.domains

    def _next(self, domain: int, source: int | None, event: Event, number: int) -> list[int]:
        routing = self.routing[domain]
        if self._job.way is Way.TREE:
            names: Iterable[str] = routing.forwards(event.subject, None if source is None else name_of(source))
        else:
            names = [name_of(each) for each in range(self._job.domains) if each != domain]
        return [number_of(each) for each in names if self.is_wanted(routing.wanted_by(each), event, number)]

    def _matched(self, conjunction: Conjunction, event: Event, number: int) -> bool:
        key = conjunction, number
        if (found := self._matches.get(key)) is None:
            found = self._matches[key] = filter_of(conjunction).matches(event)
        return found

    # Links ------------------------------------------------------------------------------------------------------

    def _neighbours(self) -> list[list[int]]:
        """Return the domains with links to each: those nearest to it for the tree, all otherwise."""
        count = self._job.domains
        if self._job.way is not Way.TREE:
            return [[other for other in range(count) if other != number] for number in range(count)]
        linked: list[set[int]] = [set() for _ in range(count)]
        for number in range(count):
            delay_s = partial(self._fabric.delay_s, number)
            others = sorted((each for each in range(count) if each != number), key=delay_s)
            # A link to the nearest domain of a smaller number makes the network whole.
            earlier = [each for each in others if each < number][:1]
            for other in (*others[: self._job.links], *earlier):
                linked[number].add(other)
                linked[other].add(number)
        return [sorted(each) for each in linked]

    def _settings(self, number: int, others: Sequence[int]) -> RoutingSettings:
        types = frozenset(TYPES)
        sends = frozenset(each for each in TYPES if number in senders_of(each, self._job.domains))
        if self._job.way is Way.TREE:
            sends = types  # a domain passes on what others send
        neighbours = {
            name_of(each): Neighbour(types, sends, round(1_000 * self._fabric.delay_s(number, each), 3))
            for each in others
        }
        return RoutingSettings(name_of(number), neighbours, _METHODS[self._job.way])

    # Messages ---------------------------------------------------------------------------------------------------

    def _arrive(self, source: int, target: int, payload: bytes) -> None:
        if (source, target) not in self._cut:
            self._give(target, DomainMessage(name_of(source), payload))

    def _give(self, domain: int, given: RoutingInput) -> None:
        self._take(domain, self.routing[domain].step([given], self._fabric.world.now))

    def _take(self, domain: int, outputs: Iterable[RoutingOutput]) -> None:
        world = self._fabric.world
        for output in outputs:
            match output:
                case SendToDomain(domain=name, payload=payload):
                    other = number_of(name)
                    arrive = partial(self._arrive, domain, other, payload)
                    self._fabric.send(domain, other, _purpose(payload), len(payload), arrive)
                case SetTimer(key=key, at=at):
                    world.at(at, partial(self._give, domain, TimerFired(key)))
                case _:
                    pass


def _purpose(payload: bytes) -> Purpose:
    message = decode(payload)
    is_answer = isinstance(message, StreamCarried) and isinstance(message.message, FromReceiver)
    return "answer" if is_answer else "update"
