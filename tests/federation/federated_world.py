"""Domains that route filters in virtual time, with delays, lost links and restarts, and the checks on their tables."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.interest_set import InterestSet, Wanted
from wanderbus.event import Event
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.wire import ROLES, StreamCarried, decode
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    DomainUnlinked,
    Method,
    Neighbour,
    OwnInterestChanged,
    RoutingFailed,
    RoutingInput,
    RoutingOutput,
    RoutingSettings,
    SendToDomain,
    UseMethod,
    WantedByDomain,
    WantedKnown,
)
from wanderbus.filters import parse
from wanderbus.filters.merging import filter_of
from wanderbus.machine import SetTimer, TimerFired

Link = frozenset[str]

POINTS = range(12)
"""Values of the attribute ``x`` that filters of the tests divide."""


def trusting(names: Iterable[str], types: Iterable[str], *, method: Method = "multicast") -> dict[str, RoutingSettings]:
    """Return the settings of domains that send all types to all others."""
    several, shared = list(names), frozenset(types)
    return {
        name: RoutingSettings(name, {other: Neighbour(shared, shared) for other in several if other != name}, method)
        for name in several
    }


def partly_trusting(names: str, types: Sequence[str], seed: int) -> dict[str, RoutingSettings]:
    """Return the settings of domains that send some types to some others."""
    chance = random.Random(seed)

    def some() -> frozenset[str]:
        return frozenset(each for each in types if chance.random() < 0.6)

    return {
        name: RoutingSettings(name, {other: Neighbour(some(), some()) for other in names if other != name})
        for name in names
    }


class World:
    """Domains by name; ``settings`` has the file of each."""

    def __init__(self, settings: Mapping[str, RoutingSettings], seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.settings = dict(settings)
        self.now = 0.0
        self.own = {name: InterestSet() for name in settings}
        """Interest of each domain; it outlives gateways."""
        self.lives = dict.fromkeys(settings, 0)
        self.routing: dict[str, FilterRouting] = {}
        self.wanted: dict[str, dict[str, set[Interest]]] = {}
        """Interest of others, as each gateway was told."""
        self.known: dict[str, dict[str, set[str]]] = {}
        self.failed: list[RoutingFailed] = []
        self.sent: list[tuple[str, SendToDomain]] = []
        self.methods: dict[str, dict[str, Method]] = {name: {} for name in settings}
        self._links: dict[Link, int] = {}
        self._link = 0
        self._free_at: dict[tuple[str, str, int], float] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._actions = 0
        for name in settings:
            self.start(name)

    # Faults -------------------------------------------------------------------------------------------------------

    def start(self, name: str, former: tuple[Method, ...] = ()) -> None:
        """Begin a life of the gateway of a domain, after one that may have had the ``former`` methods."""
        self.lives[name] += 1
        settings = msgspec.structs.replace(
            self.settings[name], methods={**self.settings[name].methods, **self.methods[name]}
        )
        self.routing[name] = FilterRouting(settings, epoch=self.lives[name], former=former)
        self.wanted[name] = {}
        self.known[name] = {}
        self.give(name, OwnInterestChanged(InterestChange(tuple(self.own[name].sent()))))

    def crash(self, name: str) -> None:
        """End the life of a gateway, and its links."""
        del self.routing[name]
        for link in [each for each in self._links if name in each]:
            self.unlink(*link)

    def link(self, one: str, other: str) -> None:
        """Open a link between two domains that are up and have none."""
        pair = frozenset((one, other))
        if pair in self._links or one not in self.routing or other not in self.routing:
            return
        self._link += 1
        self._links[pair] = self._link
        for name, peer in self.random.sample(((one, other), (other, one)), 2):
            self.give(name, DomainLinked(peer))

    def unlink(self, one: str, other: str) -> None:
        """Lose a link, with what is on the way."""
        if self._links.pop(frozenset((one, other)), None) is None:
            return
        for name, peer in ((one, other), (other, one)):
            if name in self.routing:
                self.give(name, DomainUnlinked(peer))

    def is_linked(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._links

    def link_all(self) -> None:
        """Open a link between each two domains that name each other."""
        names = list(self.settings)
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                if other in self.settings[one].neighbours and one in self.settings[other].neighbours:
                    self.link(one, other)

    # Inputs -------------------------------------------------------------------------------------------------------

    def want(self, name: str, id: str, type: str | None, text: str) -> None:
        """Let somebody in a domain want events."""
        change = self.own[name].update({id: (type, parse(text))})
        self._own_changed(name, change)

    def want_many(self, name: str, wanted: Mapping[Hashable, Wanted]) -> None:
        """Let somebody in a domain want events of many filters at once."""
        self._own_changed(name, self.own[name].update(wanted))

    def unwant(self, name: str, *ids: str) -> None:
        """Let somebody in a domain want nothing any more."""
        self._own_changed(name, self.own[name].update({}, ids))

    def use(self, name: str, type: str, method: Method) -> None:
        """Change the method of a type at a domain."""
        self.methods[name][type] = method
        if name in self.routing:
            self.give(name, UseMethod(type, method))

    def path_of(self, type: str, start: str, value: int) -> list[str]:
        """Return the domains that an event reaches along the tree of its type, each once for each way to it."""
        reached: list[str] = []
        waiting: list[tuple[str, str | None]] = [(start, None)]
        for name, source in waiting:
            assert len(waiting) <= len(self.settings), f"an event of {start} goes round: {waiting}"
            routing = self.routing.get(name)
            for hop in () if routing is None else routing.forwards(type, source):
                if value in points(self.wanted[name].get(hop, ()), type):
                    reached.append(hop)
                    waiting.append((hop, name))
        return reached

    def give(self, name: str, given: RoutingInput) -> None:
        """Give one input to a gateway."""
        self._take(name, self.routing[name].step([given], self.now))

    def _own_changed(self, name: str, change: InterestChange) -> None:
        if change and name in self.routing:
            self.give(name, OwnInterestChanged(change))

    # Time ---------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = end

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a second."""
        self._actions += 1
        heapq.heappush(self._due, (when, self._actions, action))

    def _take(self, name: str, outputs: Iterable[RoutingOutput]) -> None:
        for output in outputs:
            match output:
                case SendToDomain():
                    self._send(name, output)
                case SetTimer(key=key, at=at):
                    life = self.lives[name]
                    self.at(at, partial(self._fire, name, life, TimerFired(key)))
                case WantedByDomain(domain=domain, change=change):
                    wanted = self.wanted[name].setdefault(domain, set())
                    assert wanted.issuperset(change.removed), "what goes was there"
                    wanted.difference_update(change.removed)
                    assert wanted.isdisjoint(change.added), "what comes was not there"
                    wanted.update(change.added)
                case WantedKnown(domain=domain, types=types):
                    self.known[name].setdefault(domain, set()).update(types)
                case RoutingFailed(domain=domain):
                    self.failed.append(output)
                    self._links.pop(frozenset((name, domain)), None)
                    if domain in self.routing:
                        self.give(domain, DomainUnlinked(name))
                case _:
                    raise AssertionError(output)

    def _send(self, name: str, output: SendToDomain) -> None:
        peer = output.domain
        link = self._links.get(frozenset((name, peer)))
        assert link is not None, f"{name} has no link to {peer}; failed: {self.failed}"
        self.sent.append((name, output))
        self._check_trust(name, output)
        way = name, peer, link
        arrives = max(self._free_at.get(way, 0.0), self.now + self.random.uniform(0.001, 0.2))
        self._free_at[way] = arrives
        self.at(arrives, lambda: self._arrive(link, name, output))

    def _arrive(self, link: int, name: str, output: SendToDomain) -> None:
        if self._links.get(frozenset((name, output.domain))) == link:
            self.give(output.domain, DomainMessage(name, output.payload))

    def _fire(self, name: str, life: int, fired: TimerFired) -> None:
        if name in self.routing and self.lives[name] == life:
            self.give(name, fired)

    # Checks -------------------------------------------------------------------------------------------------------

    def _check_trust(self, name: str, output: SendToDomain) -> None:
        """Check that a message names no type that the receiver is not trusted with."""
        message = decode(output.payload)
        if not isinstance(message, StreamCarried):
            return
        inner = message.message
        filters = (*getattr(inner, "added", ()), *getattr(inner, "filters", ()))
        neighbour = self.settings[name].neighbours[output.domain]
        role = ROLES[message.role]
        may = neighbour.receives if role in ("multicast", "tree") else neighbour.shared
        leaked = {each.subject for each in filters} - may
        assert not leaked, f"{name} tells {output.domain} of {leaked}"
        if filters and role == "spread":
            origin = self.settings[inner.stream.origin]
            leaked = {each.subject for each in filters} - origin.neighbours[output.domain].receives
            assert not leaked, f"{name} tells {output.domain} that {origin.name} wants {leaked}"
            useless = {each.subject for each in filters} - self.settings[output.domain].neighbours[origin.name].sends
            assert not useless, f"{name} tells {output.domain}, which sends no {useless} to {origin.name}"

    def check_at_rest(self) -> None:
        """Check that each domain knows exactly what others want of what it sends them."""
        for name, settings in self.settings.items():
            for other, neighbour in settings.neighbours.items():
                back = self.settings[other].neighbours.get(name)
                types = neighbour.sends & (back.receives if back is not None else frozenset())
                wanted = self.wanted[name].get(other, set())
                assert set(self.routing[name].wanted_by(other)) == wanted
                assert {each.subject for each in wanted} <= types
                for type in types:
                    assert points(wanted, type) == points(self.own[other].sent(), type), (name, other, type)


def points(interests: Iterable[Interest], type: str) -> set[int]:
    """Return the points of a type that some interest matches."""
    filters = [filter_of(each.conjunction) for each in interests if each.subject in (type, None)]
    return {x for x in POINTS if any(each.matches(event_at(type, x)) for each in filters)}


def event_at(type: str, x: int) -> Event:
    """Return an event of a type at a point."""
    return Event(type, {"x": x})


def disturb(world: World, steps: int, methods: tuple[Method, ...] = ()) -> None:
    """Let people come and go, links fail, gateways crash and return; then repair everything and come to rest."""
    random, names = world.random, list(world.settings)
    types = sorted(
        {type for each in world.settings.values() for one in each.neighbours.values() for type in one.shared}
    )
    there: list[tuple[str, str]] = []
    for step in range(steps):
        name, other = random.sample(names, 2)
        match random.randrange(8 if methods else 7):
            case 0 | 1 | 2:
                low = random.choice(POINTS)
                text = random.choice((f"x == {low}", f"x < {low}", f"x > {low}"))
                world.want(name, str(step), random.choice((*types, None)), text)
                there.append((name, str(step)))
            case 3 if there:
                world.unwant(*there.pop(random.randrange(len(there))))
            case 4:
                world.unlink(name, other)
            case 5:
                if other in world.settings[name].neighbours and name in world.settings[other].neighbours:
                    world.link(name, other)
            case 6:
                if name in world.routing:
                    world.crash(name)
                else:
                    world.start(name, methods)
            case 7:
                world.use(name, random.choice(types), random.choice(methods))
            case _:
                pass
        world.run(random.choice((0.0, 0.05, 0.5, 3.0)))
    for name in names:
        if name not in world.routing:
            world.start(name, methods)
    world.link_all()
    world.run(200.0)
