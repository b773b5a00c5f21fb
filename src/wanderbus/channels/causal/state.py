"""State of the causal order at one server: a fold of its records, which rows can stand for (decision 0088)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from wanderbus.channels.causal.changing_dict import ChangingDict
from wanderbus.channels.causal.header import CausalPast, Header, members
from wanderbus.channels.causal.interface import (
    AnyCausalRecord,
    CausalAcknowledged,
    CausalDelivered,
    CausalLimits,
    CausalSent,
    EntriesLearnt,
    EventsDropped,
    MarkHeard,
    OriginEnded,
    Passed,
    ServerRemoved,
)
from wanderbus.channels.causal.knowledge import Knowledge
from wanderbus.channels.causal.outgoing import Outgoing

if TYPE_CHECKING:
    from wanderbus.channels.causal.header import Dot, Origin

MARK: Final = b""
"""Payload in place of the events that a server has lost with its log."""


class CausalState:
    """State that survives a restart; without records it is empty.

    The limits must be the same for all records of a log, because they bound what is kept.
    """

    def __init__(self, limits: CausalLimits | None = None) -> None:
        self.limits = limits or CausalLimits()
        self.origin: Origin = (-1, 0)
        """Number and incarnation of this server, which :meth:`begin` sets."""
        self.delivered: dict[Origin, int] = {}
        """Cursor into the events of each origin: all up to it are delivered or passed over."""
        self.knowledge = Knowledge(-1)
        self.outgoing = Outgoing(self.limits)
        self.kept: ChangingDict[Dot, tuple[Header, bytes, int]] = ChangingDict()
        """Events of other servers that further servers may ask for, each with its place in the order of arrival."""
        self.accepted = 0
        """Number of events of other servers that were delivered."""
        self.incarnations: dict[int, int] = {}
        """Highest incarnation of each other server that is known."""
        self.ended: set[Origin] = set()

    def begin(self, origin: Origin) -> None:
        """Set the number and the incarnation of this server, before any record."""
        self.origin = origin
        self.knowledge.server = origin[0]

    def begin_again(self, origin: Origin, marked: Iterable[int] = ()) -> None:
        """Go on under another incarnation; publish what others still need again, in the same order.

        The other servers end the incarnation before, and nothing waits for its events any more. The ``marked`` ones
        get a mark, an event without a payload, behind what is published again: the events that are lost were there.
        """
        former, self.origin = self.origin, origin
        waiting = [(sent.payload, servers) for sent, servers in self.outgoing.retained.values()]
        self.outgoing.begin_again()
        self.knowledge.begin_again(former)
        for payload, servers in waiting:
            self.publish(members(servers), payload)
        if marked := set(marked) - self.knowledge.removed:
            self.publish(marked, MARK)

    def publish(self, servers: Iterable[int], payload: bytes) -> CausalSent:
        """Publish an event to ``servers``; return its record."""
        befores = self.outgoing.befores(servers)
        settled, lagging = self.outgoing.settled()
        number = self.outgoing.last + 1
        entries = self.knowledge.publish(self.origin, number, befores)
        sent = CausalSent(Header(self.origin, number, tuple(befores.items()), entries, settled, lagging), payload)
        self.outgoing.add(sent)
        return sent

    def apply(self, record: AnyCausalRecord) -> None:
        """Change the state as a record of the log says."""
        match record:
            case CausalSent(header=header):
                self.knowledge.publish(header.origin, header.number, dict(header.befores))
                self.outgoing.add(record)
            case CausalDelivered(header=header, payload=payload):
                self.delivered[header.origin] = header.number
                self.accepted += 1
                self.note_incarnation(header.origin)
                self.knowledge.learn(header, self.outgoing.last)
                self._keep(header, payload)
            case CausalAcknowledged():
                self.acknowledge(record)
            case MarkHeard(origin=origin, number=number, lagging=lagging):
                self.knowledge.settle(origin, number, lagging)
            case EventsDropped(server=server, number=number):
                self.outgoing.drop(server, number)
            case Passed(origin=origin, number=number):
                self.delivered[origin] = number
                self.note_incarnation(origin)
            case OriginEnded(origin=origin):
                self.ended.add(origin)
                self.note_incarnation((origin[0], origin[1] + 1))
            case EntriesLearnt(entries=entries):
                self.knowledge.learn_entries(entries, self.outgoing.last)
            case ServerRemoved(server=server, is_forgotten=is_forgotten):
                self.outgoing.remove(server)
                self.knowledge.remove(server)
                if is_forgotten:
                    self._forget(server)

    def acknowledge(self, record: CausalAcknowledged) -> bool:
        """Note how far another server has delivered the events of this one; return whether that is new."""
        if not self.outgoing.acknowledge(record.server, record.number):
            return False
        self.knowledge.reach(record.server, self.origin, record.number)
        self.outgoing.link(record.server).acknowledged_by = record.incarnation
        return True

    def past(self) -> CausalPast:
        """Return the causal past of everything that happens at this server from now on."""
        seen = (*self.delivered.items(), (self.origin, self.outgoing.last))
        return CausalPast(tuple(sorted(seen)), self.knowledge.entries())

    def find_kept(self, dot: Dot) -> tuple[Header, bytes] | None:
        """Return an event of another server that is still kept."""
        found = self.kept.get(dot)
        return found and found[:2]

    def note_incarnation(self, origin: Origin) -> None:
        """Take over the incarnation of ``origin`` if it is higher than the known one."""
        server, incarnation = origin
        self.incarnations[server] = max(incarnation, self.incarnations.get(server, 0))

    def _keep(self, header: Header, payload: bytes) -> None:
        """Keep an event for the servers that may ask for it, until it is known that they have it."""
        own = 1 << self.origin[0]
        others = header.servers & ~own
        if others and not self.knowledge.is_settled(header.dot, others):
            self.kept[header.dot] = header, payload, self.accepted
        while self.kept:
            oldest, (first, _, _) = next(iter(self.kept.items()))
            is_done = self.knowledge.is_settled(oldest, first.servers & ~own)
            if not is_done and len(self.kept) <= self.limits.kept_events_max:
                break
            del self.kept[oldest]

    def _forget(self, server: int) -> None:
        self.knowledge.forget(server)
        for origin in [each for each in self.delivered if each[0] == server]:
            del self.delivered[origin]
        for dot in [each for each in self.kept if each[0][0] == server]:
            del self.kept[dot]


def restored(
    origin: Origin, records: Iterable[AnyCausalRecord] = (), limits: CausalLimits | None = None
) -> CausalState:
    """Return the state of a server with these records in its log."""
    state = CausalState(limits)
    state.begin(origin)
    for record in records:
        state.apply(record)
    return state
