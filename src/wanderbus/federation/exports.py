"""Events of the own domain for one foreign domain: its session at each server here, and what travels on (SPEC M).

::

    servers here ──circuits──▶ sessions ──EventForwarded, EventsLost──▶ gateway of the foreign domain
                 ◀──filters, acknowledgements──        ◀──EventsTaken──
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from wanderbus.broker.messages import ArrivalsTaken, EventArrived, LeaderEventsLost, OrderedInterestChanged
from wanderbus.broker.rollback.messages import ArrivalsRewound
from wanderbus.channels.causal.domain_past import readable_past
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.merging import Merging
from wanderbus.event import Event
from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened
from wanderbus.federation.circuits import ExportCircuit, SentPlace, circuit_numbers
from wanderbus.federation.export_messages import ExportOutput, ToDomain, ToServer
from wanderbus.federation.parameters import ForeignDomain
from wanderbus.federation.wire import EventForwarded, EventPassed, EventsLost, EventsTaken
from wanderbus.filters.merging import filter_of
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.leader_status import LeaderStatus
from wanderbus.peers.messages import (
    CloseServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.protocol import encode_event

REOPEN_S: Final = 2.0
"""Pause until a circuit is opened again that this gateway or the server has closed."""


class _EveryServer:
    """A foreign domain wants the events of every server: each sends those that it has accepted itself."""

    awaits_interest: Final = False

    def __init__(self, servers: Iterable[str]) -> None:
        self._servers = frozenset(servers)
        self.merging_of: Final = lambda subject: Merging("none")  # they are merged where they come from
        self.lineage: Final = lambda subject: (subject,)

    def session_places(self, *, have_moved: bool) -> frozenset[str]:
        return self._servers

    def is_present(self, server: str) -> bool:
        return server in self._servers

    def other_leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        return self._servers


class Exports:
    """The sessions of one foreign domain at all servers of the own one.

    ``up`` and ``down`` report servers that can be reached, ``begin`` and ``end`` the link to the foreign domain.

    :param domain: the foreign domain
    :param types: types that are sent to it
    :param servers: all servers of the own domain
    :param new_circuit: returns the number of a circuit that was never used on a link
    :param epoch: identifies this life of the gateway; it rises with each
    :param has_order: true if the two domains have causal order; the past of events is for such domains alone
    """

    def __init__(
        self,
        domain: str,
        types: frozenset[str],
        servers: Sequence[str],
        new_circuit: Callable[[], int],
        epoch: int,
        *,
        has_order: bool = False,
    ) -> None:
        self.domain = domain
        self._types = types
        self._has_order = has_order
        self._new_circuit = new_circuit
        self._sessions = LeaderSessions(_EveryServer(servers), epoch=epoch, positions={})
        self._servers = tuple(servers)
        self._up: set[str] = set()
        self._is_begun = False
        self._circuits: dict[str, ExportCircuit] = {}
        self._names: dict[Interest, str] = {}
        self._filters: Counter[str | None] = Counter()
        """Number of filters of each type."""
        self._last_name = 0
        self._outputs: list[ExportOutput] = []
        self.sent = 0
        """Events that were sent to the foreign domain."""

    @property
    def is_settled(self) -> bool:
        """Return whether every server has exactly the filters of the foreign domain."""
        return all(each.is_settled for each in self._sessions.statuses())

    def statuses(self) -> list[LeaderStatus]:
        """Return the state of the session at each server."""
        return self._sessions.statuses()

    def interests(self) -> list[Interest]:
        """Return the filters of the foreign domain."""
        return list(self._names)

    def begin(self, now: float) -> list[ExportOutput]:
        """Serve the foreign domain, whose filters are known, on a new link."""
        self._is_begun = True
        for server in self._servers:
            self._open(server, now)
        return self._take()

    def end(self, reason: str, now: float) -> list[ExportOutput]:
        """Close all circuits: the link to the foreign domain is gone, and the servers keep what it has not taken."""
        self._is_begun = False
        for server in list(self._circuits):
            self._close(server, reason, now)
        return self._take()

    def up(self, server: str, now: float) -> list[ExportOutput]:
        """Use a server that can be reached now."""
        self._up.add(server)
        self._open(server, now)
        return self._take()

    def down(self, server: str, now: float) -> list[ExportOutput]:
        """Forget the circuit of a server that cannot be reached any more."""
        self._up.discard(server)
        if (circuit := self._circuits.pop(server, None)) is not None:
            self._step([ServerLinkClosed(circuit.number, server, "the server cannot be reached")], now)
        return self._take()

    def wanted(self, change: InterestChange, now: float) -> list[ExportOutput]:
        """Change the filters of the foreign domain."""
        added = {}
        for each in change.added:
            if each.subject in self._types and each not in self._names:
                self._last_name += 1
                self._names[each] = name = str(self._last_name)
                self._filters[each.subject] += 1
                added[name] = ((each.subject, filter_of(each.conjunction)),)
        removed = tuple([self._forget(each) for each in change.removed if each in self._names])
        if added or removed:
            self._step([OrderedInterestChanged(added, removed)], now)
        return self._take()

    def _forget(self, interest: Interest) -> str:
        self._filters[interest.subject] -= 1
        return self._names.pop(interest)

    def from_server(
        self, server: str, messages: Sequence[CircuitMessage | CircuitClosed], now: float
    ) -> list[ExportOutput]:
        """Take messages of a server, all with one number, on the circuit to it."""
        circuit = self._circuits.get(server)
        if circuit is None or circuit.number != messages[0].circuit:
            return []
        number, received = circuit.number, list[ServerMessageReceived]()
        for each in messages:
            if isinstance(each, CircuitMessage):
                received.append(ServerMessageReceived(number, server, each.payload))
        self._step(received, now)
        closed = messages[-1]  # a server sends nothing behind the end of a circuit
        if isinstance(closed, CircuitClosed) and self._circuits.get(server) is circuit:
            self._lost(server, closed.reason, now)
        return self._take()

    def taken(self, message: EventsTaken, now: float) -> list[ExportOutput]:
        """Acknowledge at a server what the foreign domain has taken of its events, as far as they were sent to it.

        An answer to what came on an earlier circuit may name more: what it names is durable there.
        """
        circuit = self._circuits.get(message.server)
        if circuit is None:
            return []
        waiting, last = circuit.unacknowledged, None
        while waiting and (waiting[0].number <= message.number or waiting[0].is_skipped):
            last = waiting.popleft()
        self._acknowledge(message.server, last, now)
        return self._take()

    def timer_fired(self, key: object, now: float) -> list[ExportOutput]:
        """Take a timer of this part."""
        match key:
            case ("reopen", str(server)):
                self._open(server, now)
            case ("sessions", inner):
                self._step([TimerFired(inner)], now)
        return self._take()

    def _take(self) -> list[ExportOutput]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def _open(self, server: str, now: float) -> None:
        if not self._is_begun or server not in self._up or server in self._circuits:
            return
        circuit = self._circuits[server] = ExportCircuit(self._new_circuit())
        self._outputs.append(ToServer(server, CircuitOpened(circuit.number, self.domain)))
        self._step([ServerLinkOpened(circuit.number, server, is_ours=True)], now)

    def _close(self, server: str, reason: str, now: float) -> None:
        circuit = self._circuits.pop(server)
        self._outputs.append(ToServer(server, CircuitClosed(circuit.number, reason)))
        self._step([ServerLinkClosed(circuit.number, server, reason)], now)

    def _lost(self, server: str, reason: str, now: float) -> None:
        """Open another circuit after a pause: this one is closed at the server."""
        circuit = self._circuits.pop(server)
        self._step([ServerLinkClosed(circuit.number, server, reason)], now)
        self._outputs.append(SetTimer(("reopen", server), now + REOPEN_S))

    def _acknowledge(self, server: str, sent: SentPlace | None, now: float) -> None:
        if sent is not None:
            self._step([ArrivalsTaken(server, sent.epoch, sent.number)], now)

    def _step(self, inputs: Sequence[Input | Output], now: float) -> None:
        """Step the sessions, and pass on what they emit."""
        for output in self._sessions.step(inputs, now):
            match output:
                case SendOnServerLink(link=number, payload=payload):
                    if server := self._server_of(number):
                        self._outputs.append(ToServer(server, CircuitMessage(number, payload)))
                case CloseServerLink(link=number, reason=reason):
                    if server := self._server_of(number):
                        self._outputs.append(ToServer(server, CircuitClosed(number, reason)))
                        self._lost(server, reason, now)
                case EventArrived():
                    self._forward(output, now)
                case LeaderEventsLost(leader=server, epoch=epoch, number=last, count=count, reason=reason):
                    if (circuit := self._circuits.get(server)) is not None:
                        circuit.unacknowledged.append(SentPlace(epoch, last, is_skipped=False))
                        self._outputs.append(ToDomain(EventsLost(server, epoch, last, count, reason)))
                case ArrivalsRewound(leader=server, epoch=epoch, number=number):
                    self._acknowledge(server, SentPlace(epoch, number, is_skipped=True), now)
                case SetTimer(key=key, at=at):
                    self._outputs.append(SetTimer(("sessions", key), at))
                case _:
                    pass  # a report about channels, which concern the own domain alone

    def _forward(self, arrived: EventArrived, now: float) -> None:
        """Send an event to the foreign domain, or pass over one of a type that it does not want, such as a child's."""
        server = arrived.leader
        if (circuit := self._circuits.get(server)) is None:
            return
        event = arrived.event
        is_wanted = self._filters[event.subject] > 0
        is_skipped = not is_wanted and not self._is_awaited(event)
        sent = SentPlace(arrived.epoch, arrived.number, is_skipped)
        if is_skipped and not circuit.unacknowledged:
            self._acknowledge(server, sent, now)
            return
        circuit.unacknowledged.append(sent)
        if is_wanted:
            self.sent += 1
            encoded = arrived.encoded
            if event.past and not self._has_order:
                encoded = encode_event(msgspec.structs.replace(event, past=msgspec.UNSET))
            forwarded = EventForwarded(server, arrived.epoch, arrived.number, arrived.id, msgspec.Raw(encoded))
            self._outputs.append(ToDomain(forwarded))
        elif not is_skipped:
            self._outputs.append(ToDomain(EventPassed(server, arrived.epoch, arrived.number, arrived.id)))

    def _is_awaited(self, event: Event) -> bool:
        """Return whether others may wait for an event in the foreign domain, which wanted it when it was accepted."""
        past = readable_past(event.past) if self._has_order and event.past else None
        return past is not None and self.domain in past.targets

    def _server_of(self, number: int) -> str | None:
        return next((server for server, each in self._circuits.items() if each.number == number), None)


def exports_of(
    domains: Collection[ForeignDomain], servers: Sequence[str], generation: int, epoch: int
) -> dict[str, Exports]:
    """Return the exports of each foreign domain; ``generation`` tells their circuits from those of other gateways."""
    numbers = circuit_numbers(generation, len(domains))
    return {
        each.name: Exports(each.name, each.sends, servers, new_circuit, epoch, has_order=each.is_causal)
        for each, new_circuit in zip(domains, numbers, strict=True)
    }
