"""Leaders of channel groups, chosen by hash: interest goes to the leader, and sessions move as ours do (decision 0142).

Access servers ask leaders by the machine of real servers (:mod:`wanderbus.peers.leader_interest`), and subjects have
the leaders of a real domain. The leader numbers the events of a channel. Before its fence the source asks
all others for their heads, and has what they sent before they answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from wanderbus import protocol
from wanderbus.broker.sessions.handover_messages import Head
from wanderbus.channels.directory import LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.evaluation.handover.fabric import Fabric, Purpose
from wanderbus.evaluation.handover.population import DOMAIN, PublishedEvent, filter_of
from wanderbus.evaluation.handover.sessions import Arrival, EventNetwork, MobileSession, Wanted
from wanderbus.event import EventId
from wanderbus.filters import Filter
from wanderbus.peers.handover.messages import HeadAnswered, HeadAsked, MoveReady, MoveTaken, encode
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.subscription import Subscription

COVERING: Final = Merging("none")
"""Covering alone: the tree has no merging either."""


class AsksLeader(Protocol):
    """Interest of a server at a leader: :class:`LeaderInterest`, or one without covering."""

    version: int

    @property
    def confirmed(self) -> int:
        """Return the version up to which the leader has confirmed all changes."""
        ...

    def add(self, subscriptions: Mapping[str, Sequence[tuple[str, Filter]]]) -> Sequence[protocol.AgentMessage]:
        """Add filters; return the messages to the leader."""
        ...

    def remove(self, subscription: str) -> Sequence[protocol.AgentMessage]:
        """Remove the filters of a subscription; return the messages to the leader."""
        ...

    def done(self, answer: protocol.Done) -> Sequence[protocol.AgentMessage]:
        """Take an answer of the leader; return the messages to it."""
        ...


class UncoveredInterest:
    """Interest at a leader without covering: a subscription there for each one here."""

    def __init__(self) -> None:
        self.version = 0
        self._present: dict[str, list[str]] = {}
        self._requested: dict[int, str] = {}

    @property
    def confirmed(self) -> int:
        """Return the version up to which the leader has confirmed all changes: requests are numbered by version."""
        return min(self._requested, default=self.version + 1) - 1

    def add(self, subscriptions: Mapping[str, Sequence[tuple[str, Filter]]]) -> list[protocol.AgentMessage]:
        """Return a request for each filter."""
        messages: list[protocol.AgentMessage] = []
        for id, entries in subscriptions.items():
            for subject, wanted in entries:
                self.version += 1
                self._requested[self.version] = id
                messages.append(
                    protocol.Subscribe(self.version, subject, wanted.text, None, (), this_device_only=False)
                )
        return messages

    def remove(self, subscription: str) -> list[protocol.AgentMessage]:
        """Return the requests to remove what stands for a subscription."""
        return [protocol.Unsubscribe(0, each) for each in self._present.pop(subscription, ())]

    def done(self, answer: protocol.Done) -> list[protocol.AgentMessage]:
        """Take an answer."""
        if (id := self._requested.pop(answer.request, None)) is not None:
            self._present.setdefault(id, []).append(answer.subscriptions[0].id)
        return []


class _Row(NamedTuple):
    """Subscription of a server at a leader."""

    server: int
    subject: str
    expression: str


class RendezvousNetwork(EventNetwork):
    """Access servers that are also leaders; ``covers`` is covering on or off."""

    def __init__(
        self, fabric: Fabric, servers: int, groups: ChannelGroups, table: LeaderTable, *, covers: bool
    ) -> None:
        super().__init__(fabric, servers)
        self.fabric = fabric
        self.servers = self._servers
        self.groups = groups
        self.tables = [table] * servers
        """Leaders of the channel groups as each server knows them."""
        self.also: list[dict[int, int]] = [{} for _ in self._servers]
        """Leader to come of each group that moves, for each server that has prepared the move."""
        self.held: dict[int, list[PublishedEvent]] = {}
        """Events that wait because their group moves, by group."""
        self._covers = covers
        self._wanted: dict[int, dict[str, tuple[str, str]]] = defaultdict(dict)
        self._accepted = 0
        self._interest: dict[tuple[int, int], AsksLeader] = {}
        """Interest of a server at a leader."""
        self._rows: dict[int, dict[str, _Row]] = defaultdict(dict)
        """Subscriptions of others at each leader."""
        self._last_row = 0
        self._numbers = [0] * servers
        """Number of the last event of each leader."""
        self._effective: dict[int, list[tuple[dict[int, int], Callable[[], None]]]] = defaultdict(list)
        """Versions at leaders, and what a server does once they are confirmed."""

    # Interest -------------------------------------------------------------------------------------------------------

    def want(self, server: int, wanted: Wanted) -> None:
        """Let ``server`` want events of the leaders of these subjects."""
        self._wanted[server].update(wanted)
        by_leader: dict[int, dict[str, tuple[str, str]]] = defaultdict(dict)
        for id, (subject, expression) in wanted.items():
            group = self.groups.group_of(subject)
            for leader in {self.leader(server, group), self.also[server].get(group, server)}:
                by_leader[leader][id] = subject, expression
        for leader, entries in by_leader.items():
            self.ask(server, leader, entries, "update")

    def unwant(self, server: int, ids: Iterable[str]) -> None:
        """Let ``server`` no longer want the events of these filters."""
        for id in ids:
            del self._wanted[server][id]
            for leader in self._servers:
                self.withdraw(server, leader, [id], "update")

    def wanted(self, server: int, group: int) -> dict[str, tuple[str, str]]:
        """Return what a server wants in a channel group, by id."""
        wanted = self._wanted[server].items()
        return {id: each for id, each in wanted if self.groups.group_of(each[0]) == group}

    def rows(self, leader: int, group: int) -> int:
        """Return the number of subscriptions of other servers that a leader has in a channel group."""
        return sum(self.groups.group_of(each.subject) == group for each in self._rows[leader].values())

    def leader(self, server: int, group: int) -> int:
        """Return the leader of a group as ``server`` knows it."""
        return int(self.tables[server].leaders[group].server[1:])

    def ask(self, server: int, leader: int, wanted: Wanted, purpose: Purpose) -> None:
        """Let a server want events of one leader."""
        if leader != server:
            entries = {id: [(subject, filter_of(expression))] for id, (subject, expression) in wanted.items()}
            self._send(server, leader, self._at(server, leader).add(entries), purpose)

    def withdraw(self, server: int, leader: int, ids: Iterable[str], purpose: Purpose) -> None:
        """Let a server no longer want events of one leader."""
        if (interest := self._interest.get((server, leader))) is not None:
            for id in ids:
                self._send(server, leader, interest.remove(id), purpose)

    def _at(self, server: int, leader: int) -> AsksLeader:
        if (found := self._interest.get((server, leader))) is None:
            found = self._interest[server, leader] = _ready_interest() if self._covers else UncoveredInterest()
        return found

    def _send(self, server: int, leader: int, messages: Iterable[protocol.AgentMessage], purpose: Purpose) -> None:
        for message in messages:
            then = partial(self._on_request, leader, server, message, purpose)
            self._fabric.send(server, leader, purpose, len(protocol.encode(message)), then)

    def _on_request(self, leader: int, server: int, message: protocol.AgentMessage, purpose: Purpose) -> None:
        rows = self._rows[leader]
        match message:
            case protocol.Subscribe(request=request, subject=subject, expression=expression):
                self._last_row += 1
                identity = f"s{leader}-1-{self._last_row}"
                rows[identity] = _Row(server, subject, expression)
                made = Subscription(identity, f"sip:s{server}@{DOMAIN}", "default", subject, expression)
                answer = protocol.Done(request, (made,))
            case protocol.Unsubscribe(request=request, subscription=identity):
                del rows[identity]
                answer = protocol.Done(request, ())
            case _:
                raise AssertionError(message)
        then = partial(self._on_answer, server, leader, answer, purpose)
        kind: Purpose = "answer" if purpose == "update" else "group"
        self._fabric.send(leader, server, kind, len(protocol.encode(answer)), then)

    def _on_answer(self, server: int, leader: int, answer: protocol.Done, purpose: Purpose) -> None:
        if answer.subscriptions:
            self._send(server, leader, self._at(server, leader).done(answer), purpose)
            self._report_effective(server)

    def when_effective(self, server: int, then: Callable[[], None]) -> None:
        """Call ``then`` once all that ``server`` wants now is confirmed by the leaders."""
        versions = {leader: each.version for (asking, leader), each in self._interest.items() if asking == server}
        self._effective[server].append((versions, then))
        self._report_effective(server)

    def _report_effective(self, server: int) -> None:
        waiting, self._effective[server] = self._effective[server], []
        for versions, then in waiting:
            if all(self._interest[server, leader].confirmed >= version for leader, version in versions.items()):
                then()
            else:
                self._effective[server].append((versions, then))

    # Events ---------------------------------------------------------------------------------------------------------

    def publish(self, server: int, published: PublishedEvent) -> None:
        """Send an event to the leader of its channel, which numbers it."""
        group = self.groups.group_of(published.event.subject)
        leader = self.leader(server, group)
        if leader != server:
            self._fabric.send(server, leader, "event", published.size, partial(self.publish, leader, published))
        elif group in self.held:
            self.held[group].append(published)
        else:
            self._lead(leader, published)

    def _lead(self, leader: int, published: PublishedEvent) -> None:
        """Number an event, and send it to the servers that want it."""
        self._numbers[leader] += 1
        self._accepted += 1
        published.acceptance = self._accepted
        arrival = Arrival(leader, self._numbers[leader], published)
        self._arrive(leader, arrival)
        rows = self._rows[leader].values()
        for server in dict.fromkeys(row.server for row in rows if published.matches(row.subject, row.expression)):
            self._fabric.send(leader, server, "event", published.size, partial(self._arrive, server, arrival))

    # Sessions -------------------------------------------------------------------------------------------------------

    def _move(self, session: MobileSession, target: int) -> None:
        path = session.owner, target
        self._send_parts(path, session.offer(), partial(self._prepare, session, target))

    def _prepare(self, session: MobileSession, target: int) -> None:
        """Let the target want the events of a session first."""
        self._await(session, target)
        ready = len(encode(MoveReady(session.move)))

        def then() -> None:
            self._fabric.send(target, session.owner, "handover", ready, partial(self._ask_heads, session, target))

        self.when_effective(target, then)

    def _ask_heads(self, session: MobileSession, target: int) -> None:
        """Let the source ask all others how far they have got, and fence the session behind their answers."""
        source, asked = session.owner, len(encode(HeadAsked(1)))
        missing = {server for server in self._servers if server != source}

        def answer(server: int) -> None:
            number = self._numbers[server]
            size = len(encode(HeadAnswered(1, Head(EventId(f"s{server}", 1, number), 1, number))))
            self._fabric.send(server, source, "handover", size, partial(answered, server))

        def answered(server: int) -> None:
            missing.discard(server)
            if not missing:
                self._fence(session, (source, target))

        for server in sorted(missing):
            self._fabric.send(source, server, "handover", asked, partial(answer, server))

    def _taken(self, session: MobileSession, source: int) -> None:
        taken = len(encode(MoveTaken(session.move)))
        then = partial(self.unwant, source, list(session.wanted))
        self._fabric.send(session.owner, source, "handover", taken, then)


def _ready_interest() -> LeaderInterest:
    """Return the interest at a leader that has nothing yet."""
    interest = LeaderInterest(lambda subject: COVERING)
    for query in interest.begin():
        assert isinstance(query, protocol.Query)
        interest.done(protocol.Done(query.request, ()))
    return interest
