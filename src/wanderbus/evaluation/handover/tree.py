"""Brokers in a tree: interest hop by hop with covering, or flooding; sessions move along the path (EVALUATIONS E6, E7).

A session that moves goes the way of REBECA: the new broker wants its events, and asks along the path behind that. The
links keep the order, so the question divides all events: those before it have reached the former broker, and those
behind it reach the new one. The former broker answers with what it has queued.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Final

from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.channels.interest.interest_set import Wanted as WantedFilter
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import FromReceiver, Message, Stream, encode
from wanderbus.channels.interest.outgoing_stream import SendToServer
from wanderbus.evaluation.handover.fabric import Fabric, Purpose
from wanderbus.evaluation.handover.movement import Place
from wanderbus.evaluation.handover.population import PublishedEvent, filter_of
from wanderbus.evaluation.handover.sessions import Arrival, EventNetwork, MobileSession, Wanted
from wanderbus.machine import Output

_HERE: Final = -1
"""Stands for the broker itself among those that want something."""

_GROUP: Final = 0
"""Interest in a tree has no channel groups."""


def spanning_tree(places: Sequence[Place]) -> list[list[int]]:
    """Return the neighbours of each broker in the tree of least length (Prim's algorithm)."""
    neighbours: list[list[int]] = [[] for _ in places]
    nearest = dict.fromkeys(range(1, len(places)), 0)
    while nearest:
        new = min(nearest, key=lambda number: math.dist(places[number], places[nearest[number]]))
        old = nearest.pop(new)
        neighbours[new].append(old)
        neighbours[old].append(new)
        for number, inside in nearest.items():
            if math.dist(places[number], places[new]) < math.dist(places[number], places[inside]):
                nearest[number] = new
    return neighbours


class TreeNetwork(EventNetwork):
    """Brokers in a tree; without ``has_interest`` every event goes to all of them."""

    def __init__(self, fabric: Fabric, places: Sequence[Place], *, has_interest: bool) -> None:
        super().__init__(fabric, len(places))
        self._neighbours = spanning_tree(places)
        self._has_interest = has_interest
        self._published = [0] * len(places)
        self._sources = {
            (broker, other): InterestSource(Stream(_GROUP, f"b{broker}"), 1, "none")
            for broker, others in enumerate(self._neighbours)
            for other in others
        }
        self._tables = [IncomingStreams() for _ in places]
        for (broker, other), source in self._sources.items() if has_interest else ():
            self._send(broker, source.outgoing.link_up(f"b{other}", fabric.world.now))

    # Interest -------------------------------------------------------------------------------------------------------

    def want(self, server: int, wanted: Wanted) -> None:
        """Let ``server`` want events, and all brokers on the way to their publishers."""
        added: dict[str, WantedFilter] = {
            id: (subject, filter_of(expression)) for id, (subject, expression) in wanted.items()
        }
        self._update(server, _HERE, added, ())

    def unwant(self, server: int, ids: Iterable[str]) -> None:
        """Let ``server`` no longer want the events of these filters."""
        self._update(server, _HERE, {}, ids)

    def _update(self, broker: int, origin: int, added: dict[str, WantedFilter], removed: Iterable[str]) -> None:
        """Tell all neighbours but ``origin`` what the broker wants on behalf of that one."""
        if not self._has_interest:
            return
        now = self._fabric.world.now
        named: dict[Hashable, WantedFilter] = {(origin, id): filter for id, filter in added.items()}
        gone = [(origin, id) for id in removed]
        for other in self._neighbours[broker]:
            if other != origin:
                source = self._sources[broker, other]
                self._send(broker, source.update(named, gone, now)[1])

    def _send(self, broker: int, outputs: Iterable[Output]) -> None:
        for output in outputs:
            assert isinstance(output, SendToServer), output
            other, message = int(output.server[1:]), output.message
            purpose: Purpose = "answer" if isinstance(message, FromReceiver) else "update"
            size = len(encode(message))
            self._fabric.send(broker, other, purpose, size, partial(self._receive, other, broker, message))

    def _receive(self, broker: int, other: int, message: Message) -> None:
        """Take a message of a neighbour about interest."""
        now = self._fabric.world.now
        if isinstance(message, FromReceiver):
            self._send(broker, self._sources[broker, other].outgoing.receive(f"b{other}", message, now))
            return
        taken = self._tables[broker].receive(f"b{other}", message, now)
        if taken.answer is not None:
            self._send(broker, [SendToServer(f"b{other}", taken.answer)])
        added: dict[str, WantedFilter] = {str(each.number): (each.subject, each.form()) for each in taken.added}
        if added or taken.removed:
            self._update(broker, other, added, [str(each.number) for each in taken.removed])

    # Events ---------------------------------------------------------------------------------------------------------

    def publish(self, server: int, published: PublishedEvent) -> None:
        """Number an event at its first broker, and send it to all that want it."""
        self._published[server] += 1
        self._pass_on(server, _HERE, Arrival(server, self._published[server], published))

    def _pass_on(self, broker: int, origin: int, arrival: Arrival) -> None:
        self._arrive(broker, arrival)
        for other in self._neighbours[broker]:
            if other != origin and self._is_wanted(broker, other, arrival.published):
                size = arrival.published.size
                self._fabric.send(broker, other, "event", size, partial(self._pass_on, other, broker, arrival))

    def _is_wanted(self, broker: int, other: int, published: PublishedEvent) -> bool:
        if not self._has_interest:
            return True
        filters = self._tables[broker].filters((f"b{other}", Stream(_GROUP, f"b{other}")))
        return any(each.subject is not None and published.matches(each.subject, each.expression) for each in filters)

    # Sessions -------------------------------------------------------------------------------------------------------

    def _move(self, session: MobileSession, target: int) -> None:
        path = self._path(target, session.owner)
        self._await(session, target)
        self._send_parts(path, session.offer(), partial(self._hand_over, session, path[::-1]))

    def _hand_over(self, session: MobileSession, path: Sequence[int]) -> None:
        """Let the former broker send what it has, and want nothing for the session any more."""
        self._fence(session, path)
        self.unwant(session.owner, session.wanted)

    def _taken(self, session: MobileSession, source: int) -> None:
        """Do nothing: the former broker has ended its part before."""

    def _path(self, start: int, end: int) -> list[int]:
        """Return the brokers from ``start`` to ``end``."""
        before = {start: start}
        waiting = [start]
        for broker in waiting:
            for other in self._neighbours[broker]:
                if other not in before:
                    before[other] = broker
                    waiting.append(other)
        path = [end]
        while path[-1] != start:
            path.append(before[path[-1]])
        return path[::-1]
