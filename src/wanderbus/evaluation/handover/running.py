"""One run: users walk while events are published, and messages and deliveries are counted (SPEC R-07, L-04).

The seed, the routing and the other parameters determine a run. All routings have the same servers, users, walks and
events.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

import msgspec

from wanderbus.channels.directory import first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.evaluation.handover.experiment import HandoverJob, Movement, Routing
from wanderbus.evaluation.handover.fabric import Fabric, plane_delay_s
from wanderbus.evaluation.handover.group_moves import GroupMove, GroupMoves
from wanderbus.evaluation.handover.movement import Place, server_places, walks
from wanderbus.evaluation.handover.population import Population, PublishedEvent
from wanderbus.evaluation.handover.rendezvous import RendezvousNetwork
from wanderbus.evaluation.handover.sessions import EventNetwork, Handover, MobileSession
from wanderbus.evaluation.handover.tree import TreeNetwork
from wanderbus.simulation.world import World

AROUND_S: Final = -0.2, 0.8
"""Events are published in this time around each move."""


class HandoverOutcome(msgspec.Struct, frozen=True):
    """One run. Messages and bytes are those between servers, from when all subscriptions count."""

    routing: Routing
    movement: Movement
    servers: int
    source_percent: int
    target_percent: int
    seed: int
    walks: int
    """Changes of the nearest server."""
    moves: int
    """Sessions that have moved; fewer than ``walks`` if a user went on before the session came."""
    handovers: tuple[Handover, ...]
    events: int
    deliveries: int
    lost: int
    repeated: int
    out_of_order: int
    updates: int
    """Messages that change the interest of a server elsewhere."""
    answers: int
    """Answers to them."""
    control: int
    """Other messages of the handovers."""
    control_bytes: int
    """Bytes of updates, answers and other messages of the handovers."""
    event_messages: int
    event_bytes: int
    group_moves: tuple[GroupMove, ...]
    group_messages: int
    """Messages of the moves of channel groups, those with copied interest among them."""
    group_bytes: int


class HandoverRun:
    """A network with its users, whose sessions are ``sessions``."""

    def __init__(self, job: HandoverJob) -> None:
        self._job = job
        self._world = World(job.seed)
        self._random = Random(f"handover/{job.seed}")
        self._population = Population(job)
        places = server_places(job.servers, self._random)
        first, self.walks = walks(job, places, self._random)
        self._fabric = Fabric(self._world, plane_delay_s(places))
        self._network = _network(job, self._fabric, places)
        self._group_moves = GroupMoves(self._network) if isinstance(self._network, RendezvousNetwork) else None
        own = enumerate(zip(self._population.users, first, strict=True))
        self.sessions = [MobileSession(user, wanted, server) for user, (wanted, server) in own]
        self._events: list[PublishedEvent] = []

    def run(self) -> HandoverOutcome:
        """Run it to the end, and return its outcome."""
        for server in range(self._job.servers):
            if residents := self._population.residents(server):
                self._network.want(server, residents)
        for session in self.sessions:
            self._network.serve(session)
        self._world.run(math.inf)
        self._fabric.forget_counts()
        start_s, world = self._world.now + 1.0, self._world
        for walk in self.walks:
            world.at(start_s + walk.at_s, partial(self._network.walk, self.sessions[walk.user], walk.server))
        times_s = [walk.at_s for walk in self.walks] or [0.0]
        for at_s in times_s:
            for _ in range(self._job.events_per_move):
                world.at(start_s + at_s + self._random.uniform(*AROUND_S), self._publish)
        for _ in range(self._job.group_moves):
            world.at(start_s + self._random.choice(times_s) + self._random.uniform(*AROUND_S), self._move_group)
        world.run(math.inf)
        return self.outcome()

    def _move_group(self) -> None:
        """Move the channel group of a random subscription to a random leader."""
        wanted = self._random.choice(self._random.choice(self._population.users))
        to = self._random.randrange(self._job.servers)
        if self._group_moves is not None:
            self._group_moves.move(wanted.subject, to)

    def _publish(self) -> None:
        published = self._population.event()
        self._events.append(published)
        self._network.publish(self._random.randrange(self._job.servers), published)

    def outcome(self) -> HandoverOutcome:
        """Return the outcome up to now."""
        job, messages, size = self._job, self._fabric.messages, self._fabric.bytes
        lost, repeated, out_of_order = self._check()
        return HandoverOutcome(
            routing=job.routing,
            movement=job.movement,
            servers=job.servers,
            source_percent=job.source_percent,
            target_percent=job.target_percent,
            seed=job.seed,
            walks=len(self.walks),
            moves=self._network.moves,
            handovers=tuple(self._network.handovers),
            events=len(self._events),
            deliveries=sum(len(each.delivered) for each in self.sessions),
            lost=lost,
            repeated=repeated,
            out_of_order=out_of_order,
            updates=messages["update"],
            answers=messages["answer"],
            control=messages["handover"],
            control_bytes=size["update"] + size["answer"] + size["handover"],
            event_messages=messages["event"],
            event_bytes=size["event"],
            group_moves=() if self._group_moves is None else tuple(self._group_moves.ended),
            group_messages=messages["group"] + messages["copy"],
            group_bytes=size["group"] + size["copy"],
        )

    def _check(self) -> tuple[int, int, int]:
        """Return how many events are missing, are repeated, and are out of the order of their origin or channel."""
        lost = repeated = out_of_order = 0
        for session in self.sessions:
            counts = Counter(each.published.number for each in session.delivered)
            wanted = {each.number for each in self._events if session.wants(each)}
            lost += len(wanted - counts.keys())
            repeated += sum(counts.values()) - len(counts) + len(counts.keys() - wanted)
            orders: dict[int | str, list[int]] = {}
            for each in session.delivered:
                orders.setdefault(each.origin, []).append(each.number)
                if each.published.acceptance:
                    orders.setdefault(each.published.event.subject, []).append(each.published.acceptance)
            out_of_order += sum(later < earlier for each in orders.values() for earlier, later in pairwise(each))
        return lost, repeated, out_of_order


def _network(job: HandoverJob, fabric: Fabric, places: Sequence[Place]) -> EventNetwork:
    if not job.routing.has_leaders:
        return TreeNetwork(fabric, places, has_interest=job.routing is Routing.TREE)
    names, key = [f"s{number}" for number in range(job.servers)], Random(job.seed).randbytes(32)
    covers = job.routing is Routing.RENDEZVOUS
    return RendezvousNetwork(fabric, job.servers, ChannelGroups(key), first_table(GROUPS, names, key), covers=covers)


def run_one(job: HandoverJob) -> list[HandoverOutcome]:
    """Return the outcome of one run, the same every time."""
    return [HandoverRun(job).run()]
