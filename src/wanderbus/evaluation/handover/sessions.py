"""Sessions that move, whatever the routing: who serves them, what waits for them, and what was delivered (SPEC L)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from wanderbus.evaluation.handover.fabric import Fabric
from wanderbus.evaluation.handover.population import PublishedEvent
from wanderbus.event import EventId
from wanderbus.peers.handover.messages import Move, Part, encode, encode_offer, parts_of
from wanderbus.subscription import Subscription

Wanted = Mapping[str, tuple[str, str]]
"""Subject and expression of filters, by id."""

Cut = dict[int, int]
"""Number of the last event of each origin that the former owner has received."""


class Arrival(NamedTuple):
    """An event at a server: the server that numbered it, and its number there."""

    origin: int
    number: int
    published: PublishedEvent


class Handover(NamedTuple):
    """Times of a handover that a user waited for."""

    whole_s: float
    """From the walk into another cell until the session is served there."""
    pause_s: float
    """From the fence until then: what a user sees whom the former owner can still reach."""


class MobileSession:
    """Session of a user, who is in the cell ``cell``, at the server ``owner``."""

    def __init__(self, user: int, subscriptions: Sequence[Subscription], server: int) -> None:
        self.user = user
        self.subscriptions = subscriptions
        self.wanted = {each.id: (each.subject, each.expression) for each in subscriptions}
        self.owner = self.cell = server
        self.is_moving = False
        self.queue: list[Arrival] = []
        self.delivered: list[Arrival] = []
        self.cut: Cut = {}
        """Events below it are passed over: they may come to the present owner after the session."""
        self.left_s = 0.0
        self.fenced_s = 0.0

    @property
    def is_reachable(self) -> bool:
        """Return whether the owner can deliver events."""
        return self.cell == self.owner and not self.is_moving

    def wants(self, published: PublishedEvent) -> bool:
        """Return whether some subscription matches an event."""
        return any(published.matches(each.subject, each.expression) for each in self.subscriptions)

    def is_new(self, arrival: Arrival) -> bool:
        """Return whether the former owner has not received an event."""
        return arrival.number > self.cut.get(arrival.origin, 0)

    def offer(self) -> list[Part]:
        """Return the messages with the subscriptions."""
        return parts_of(self.move, "offer", encode_offer(tuple(self.subscriptions)))

    def export(self) -> list[Part]:
        """Return the messages with the subscriptions, the events that wait, and the cut."""
        events = [(EventId(f"s{each.origin}", 1, each.number), each.published.event) for each in self.queue]
        cuts = [EventId(f"s{origin}", 1, number) for origin, number in self.cut.items()]
        return parts_of(self.move, "export", msgspec.msgpack.encode((self.subscriptions, events, cuts)))

    @property
    def move(self) -> Move:
        """Return the name of its move."""
        return Move(self.subscriptions[0].owner, "default", 1)


class EventNetwork(ABC):
    """Servers that route events to sessions, and move sessions."""

    def __init__(self, fabric: Fabric, servers: int) -> None:
        self.handovers: list[Handover] = []
        self.moves = 0
        """Sessions that have moved; some of them twice until their users were served."""
        self._fabric = fabric
        self._servers = range(servers)
        self._serving: dict[int, dict[int, MobileSession]] = defaultdict(dict)
        self._awaited: dict[int, dict[int, tuple[MobileSession, list[Arrival]]]] = defaultdict(dict)
        """Sessions that each server awaits, and what has come for them."""
        self._received: dict[int, dict[int, int]] = defaultdict(dict)
        """Number of the last event of each origin that each server has received."""

    @abstractmethod
    def want(self, server: int, wanted: Wanted) -> None:
        """Let ``server`` want the events that these filters match."""

    @abstractmethod
    def unwant(self, server: int, ids: Iterable[str]) -> None:
        """Let ``server`` no longer want the events of these filters."""

    @abstractmethod
    def publish(self, server: int, published: PublishedEvent) -> None:
        """Let a publisher at ``server`` publish an event."""

    @abstractmethod
    def _move(self, session: MobileSession, target: int) -> None:
        """Begin to move a session."""

    def serve(self, session: MobileSession) -> None:
        """Begin with a session at its first server."""
        self._serving[session.owner][session.user] = session
        self.want(session.owner, session.wanted)

    def walk(self, session: MobileSession, server: int) -> None:
        """Let the user of a session come to the cell of ``server``."""
        if session.is_reachable:
            session.left_s = self._fabric.world.now
        session.cell = server
        if not session.is_moving:
            self._follow(session)

    def _follow(self, session: MobileSession) -> None:
        """Move a session to the cell of its user, or deliver what has waited if it is there."""
        if session.cell != session.owner:
            session.is_moving = True
            self._move(session, session.cell)
            return
        session.delivered += session.queue
        session.queue.clear()
        now = self._fabric.world.now
        self.handovers.append(Handover(now - session.left_s, now - session.fenced_s))

    def _arrive(self, server: int, arrival: Arrival) -> None:
        """Take an event at a server for its sessions, and for those that it awaits."""
        self._received[server][arrival.origin] = arrival.number
        for session in self._serving[server].values():
            if session.is_new(arrival) and session.wants(arrival.published):
                (session.delivered if session.is_reachable else session.queue).append(arrival)
        for session, buffer in self._awaited[server].values():
            if session.wants(arrival.published):
                buffer.append(arrival)

    def _await(self, session: MobileSession, target: int) -> None:
        """Let the target keep what comes for a session from now on."""
        self._awaited[target][session.user] = session, []
        self.want(target, session.wanted)

    def _fence(self, session: MobileSession, path: Sequence[int]) -> None:
        """Let the owner serve a session no longer, and send it along ``path`` to the target."""
        del self._serving[session.owner][session.user]
        session.fenced_s = self._fabric.world.now
        # The order of the links lets nothing below an earlier cut still be on its way to the owner.
        session.cut = dict(self._received[session.owner])
        self._send_parts(path, session.export(), lambda: self._take_over(session, path[-1]))

    def _take_over(self, session: MobileSession, target: int) -> None:
        """Let the target own a session; it passes over what lies before the cut."""
        _, buffer = self._awaited[target].pop(session.user)
        session.queue += filter(session.is_new, buffer)
        source, session.owner = session.owner, target
        self._serving[target][session.user] = session
        session.is_moving = False
        self.moves += 1
        self._taken(session, source)
        self._follow(session)

    @abstractmethod
    def _taken(self, session: MobileSession, source: int) -> None:
        """Let the former owner of a session know that the target owns it."""

    def _send_parts(self, path: Sequence[int], parts: Sequence[Part], arrive: Callable[[], None]) -> None:
        for each in parts:
            is_last = each is parts[-1]
            self._fabric.along(path, "handover", len(encode(each)), arrive if is_last else lambda: None)
