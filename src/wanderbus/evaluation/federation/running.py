"""Run of one federation: it begins, users move between domains, and events are published (SPEC M-04, M-05, S-03)."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable
from random import Random
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.channels.interest.interest_set import Wanted
from wanderbus.evaluation.federation.experiment import TYPES, FederationJob, Topology, Way, places_of
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
    events: int
    event_messages: int
    event_bytes: int
    event_length_km: float
    """Length of the ways of all events together."""
    hops_max: int
    useless: int
    """Messages of events to domains whose users do not want them."""
    lost: int
    repeated: int


def run_job(job: FederationJob) -> FederationOutcome:
    """Return the outcome of one run."""
    return _Run(job).outcome()


class _Run:
    def __init__(self, job: FederationJob) -> None:
        self._job = job
        self._world = World(job.seed)
        # Places, users and events are the same with every way.
        self._random = Random(f"federation/{job.topology}/{job.domains}/{job.seed}")
        self._places = places_of(job, self._random)
        self._fabric = Fabric(self._world, self._places)
        self._domains = FederatedDomains(job, self._fabric, self._places)
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
            self._move()
        moved = messages["update"], messages["answer"], sizes.total()
        tables = self._domains.table_sizes()
        counts = self._publish()
        return FederationOutcome(
            *(job.way, job.topology, job.domains, job.seed, *started, job.moves, *moved),
            table_mean=statistics.mean(tables),
            table_max=max(tables),
            events=job.events,
            event_messages=counts["messages"],
            event_bytes=counts["bytes"],
            event_length_km=counts["metres"] / 1_000,
            hops_max=counts["hops"],
            useless=counts["useless"],
            lost=counts["lost"],
            repeated=counts["repeated"],
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

    def _move(self) -> None:
        """Move a user: the next domain wants its events, and the former one no longer when that counts."""
        user = self._random.randrange(len(self._users))
        source = self._homes[user]
        target = self._random.choice([each for each in range(self._job.domains) if each != source])
        self._homes[user] = target
        self._domains.change(target, self._users[user], ())
        self._settle()
        self._domains.change(source, {}, self._users[user])
        self._settle()

    def _publish(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for number in range(self._job.events):
            type = self._random.choice(TYPES)
            sender = self._random.choice(senders_of(type, self._job.domains))
            event = Event(type, self._attributes())
            wanting = {
                each
                for each, own in enumerate(self._domains.own)
                if each != sender and self._domains.is_wanted(own.sent(), event, number)
            }
            self._count(counts, sender, event, number, wanting)
        return counts

    def _attributes(self) -> dict[str, int]:
        return {"value": self._random.randrange(VALUES), "user": self._random.randrange(len(self._users))}

    def _count(self, counts: Counter[str], sender: int, event: Event, number: int, wanting: set[int]) -> None:
        size = len(protocol.encode(protocol.Publish(number, event)))
        reached: Counter[int] = Counter()
        for source, target, hop in self._domains.hops_of(sender, event, number):
            reached[target] += 1
            counts["messages"] += 1
            counts["bytes"] += size
            counts["metres"] += round(self._length_m(source, target))
            counts["hops"] = max(counts["hops"], hop)
        counts["useless"] += sum(count for target, count in reached.items() if target not in wanting)
        counts["lost"] += len(wanting - reached.keys())
        counts["repeated"] += sum(count - 1 for count in reached.values())

    def _length_m(self, one: int, other: int) -> float:
        (x, y), (to_x, to_y) = self._places[one], self._places[other]
        return float(((x - to_x) ** 2 + (y - to_y) ** 2) ** 0.5)
