"""Run of one federation: users move, the domains are cut in two, events are published (SPEC M-04, M-05, S-03)."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from random import Random
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.channels.interest.interest_set import Wanted
from wanderbus.evaluation.federation.experiment import TYPES, FederationJob, Topology, Way, delay_of
from wanderbus.evaluation.federation.network import FederatedDomains, senders_of
from wanderbus.evaluation.handover.fabric import Fabric
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.simulation.world import World

VALUES: Final = 1_000
"""Values of the attribute ``value`` that filters divide."""

POPULAR_SHARE: Final = 0.3
"""Share of filters that users of many domains have; all others are for one user, and nothing covers them."""

POPULAR: Final = 20
"""Popular filters of each type, each for an equal part of the values."""

FILTERS: Final = 3
"""Filters of a user."""

SETTLED_S: Final = 30.0
"""Time after which a federation is at rest, after its beginning and after each change."""


class EventFigures(msgspec.Struct, frozen=True):
    """Ways of the events of a run, all together."""

    count: int
    messages: int
    bytes: int
    ways_s: float
    """Delays of the messages."""
    deliveries: int
    """Arrivals of events at domains that want them."""
    deliveries_s: float
    delivery_s_max: float
    """Time from the domain of an event to these: of all together, and the longest."""
    hops_max: int
    useless: int
    """Messages to domains whose users do not want the event."""
    lost: int
    repeated: int


class FederationOutcome(msgspec.Struct, frozen=True):
    """One run; counts of messages have those of updates and answers apart."""

    way: Way
    topology: Topology
    domains: int
    seed: int
    start_messages: int
    start_bytes: int
    """Messages and bytes until all domains know what the others want."""
    moves: int
    move_updates: int
    move_answers: int
    move_bytes: int
    """Messages and bytes of the interest in all moves."""
    table_mean: float
    table_max: int
    """Filters of other domains at each domain."""
    heal_messages: int
    heal_bytes: int
    """Messages and bytes after the cut, until all domains know what the others want."""
    events: EventFigures


def run_one(job: FederationJob) -> list[FederationOutcome]:
    """Return the outcome of one run, its only part; the same every time."""
    return [_Run(job).outcome()]


class _Run:
    def __init__(self, job: FederationJob) -> None:
        self._job = job
        self._world = World(job.seed)
        # Places, users and events are the same with every way.
        self._random = Random(f"federation/{job.topology}/{job.domains}/{job.seed}")
        self._fabric = Fabric(self._world, delay_of(job, self._random))
        self._domains = FederatedDomains(job, self._fabric)
        self._users = [self._filters(user) for user in range(job.users * job.domains)]
        self._homes = [user % job.domains for user in range(len(self._users))]

    def outcome(self) -> FederationOutcome:
        job, messages, sizes = self._job, self._fabric.messages, self._fabric.bytes
        for user, home in enumerate(self._homes):
            self._domains.change(home, self._users[user], ())
        self._settle()
        started = messages.total(), sizes.total()
        self._fabric.forget_counts()
        for _ in range(job.moves if job.domains > 1 else 0):
            self._move(range(job.domains))
        moved = messages["update"], messages["answer"], sizes.total()
        tables = self._domains.table_sizes()
        self._cut_and_heal()
        healed = messages.total(), sizes.total()
        events = _Events(self._domains, self._fabric)
        for number in range(job.events):
            self._publish(events, number)
        return FederationOutcome(
            *(job.way, job.topology, job.domains, job.seed, *started, job.moves, *moved),
            *(statistics.mean(tables), max(tables)),
            *healed,
            events.figures(),
        )

    def _settle(self) -> None:
        self._world.run(self._world.now + SETTLED_S)

    def _filters(self, user: int) -> dict[Hashable, Wanted]:
        random = self._random
        found: dict[Hashable, Wanted] = {}
        for place in range(FILTERS):
            is_popular = random.random() < POPULAR_SHARE
            width = VALUES // POPULAR if is_popular else random.choice((10, 50, 200))
            low = random.randrange(POPULAR) * width if is_popular else random.randrange(VALUES)
            whose = "" if is_popular else f" and user == {user}"
            expression = f"value >= {low} and value < {min(VALUES, low + width)}{whose}"
            found[f"{user}/{place}"] = random.choice(TYPES), parse(expression)
        return found

    def _cut_and_heal(self) -> None:
        """Cut off the half of the domains that is farthest from the first one; users move within the halves."""
        by_delay = sorted(range(self._job.domains), key=partial(self._fabric.delay_s, 0))
        halves = by_delay[: len(by_delay) // 2], by_delay[len(by_delay) // 2 :]
        self._domains.cut(halves[1])
        for number in range(self._job.cut_moves):
            if len(half := halves[number % 2]) > 1:
                self._move(half)
        self._settle()
        self._fabric.forget_counts()
        self._domains.heal()
        self._settle()

    def _move(self, among: Sequence[int]) -> None:
        """Move a user: the next domain wants its events, and the former one no longer when that counts."""
        user = self._random.choice([each for each, home in enumerate(self._homes) if home in among])
        source = self._homes[user]
        target = self._random.choice([each for each in among if each != source])
        self._homes[user] = target
        self._domains.change(target, self._users[user], ())
        self._settle()
        self._domains.change(source, {}, self._users[user])
        self._settle()

    def _publish(self, events: _Events, number: int) -> None:
        type = self._random.choice(TYPES)
        sender = self._random.choice(senders_of(type, self._job.domains))
        attributes = {"value": self._random.randrange(VALUES), "user": self._random.randrange(len(self._users))}
        events.publish(sender, Event(type, attributes), number)


class _Events:
    """Ways of events through the domains, and counts of them."""

    def __init__(self, domains: FederatedDomains, fabric: Fabric) -> None:
        self._domains = domains
        self._fabric = fabric
        self._count = self._messages = self._bytes = self._hops_max = 0
        self._ways_s = 0.0
        self._deliveries_s: list[float] = []
        self._useless = self._lost = self._repeated = 0

    def publish(self, sender: int, event: Event, number: int) -> None:
        """Count the ways of an event of this number."""
        self._count += 1
        wanting = {
            each
            for each, own in enumerate(self._domains.own)
            if each != sender and self._domains.is_wanted(own.sent(), event, number)
        }
        size = len(protocol.encode(protocol.Publish(number, event)))
        reached: Counter[int] = Counter()
        reached_s = {sender: 0.0}
        for source, target, hop in self._domains.hops_of(sender, event, number):
            reached[target] += 1
            delay_s = self._fabric.delay_s(source, target)
            reached_s.setdefault(target, reached_s[source] + delay_s)
            self._messages += 1
            self._bytes += size
            self._ways_s += delay_s
            self._hops_max = max(self._hops_max, hop)
        self._deliveries_s += [reached_s[each] for each in wanting & reached.keys()]
        self._useless += sum(count for target, count in reached.items() if target not in wanting)
        self._lost += len(wanting - reached.keys())
        self._repeated += sum(count - 1 for count in reached.values())

    def figures(self) -> EventFigures:
        """Return the figures of all events."""
        return EventFigures(
            count=self._count,
            messages=self._messages,
            bytes=self._bytes,
            ways_s=self._ways_s,
            deliveries=len(self._deliveries_s),
            deliveries_s=sum(self._deliveries_s),
            delivery_s_max=max(self._deliveries_s, default=0.0),
            hops_max=self._hops_max,
            useless=self._useless,
            lost=self._lost,
            repeated=self._repeated,
        )
