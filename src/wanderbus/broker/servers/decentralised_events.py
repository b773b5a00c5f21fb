"""Events of decentralised channels: sent to the servers that want them, and taken from them (SPEC K-04, K-06, K-08).

The header of an event is part of its record, at its publisher's server and wherever it is delivered. All messages to
other servers wait until the records before them are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.causes.domain_order import DomainOrder
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import (
    CausalMessageArrived,
    DecentralisedArrivalMatched,
    DirectLinkClosed,
    DirectLinkOpened,
    KernelWanted,
    LinkDropped,
    RoutesAnswered,
    RoutesArrived,
    SendOnLink,
)
from wanderbus.broker.publish.decisions import Rejected
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.lost_events import concerned
from wanderbus.broker.servers.route_index import RouteIndex
from wanderbus.broker.servers.sending import Sending
from wanderbus.broker.state.decentralised_state import encode_change, encode_header
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.start import has_lost
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.channels.causal import interface as causal
from wanderbus.channels.causal.header import CausalPast, Header
from wanderbus.channels.causal.payload import decode_payload, encode_payload
from wanderbus.channels.causal.server import CausalServer
from wanderbus.channels.causal.state import MARK
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX, DecentralisedChannels
from wanderbus.channels.interest.messages import FromSender, InterestChanged, InterestConfirmed, InterestPosition
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.records import Acceptance

GAP_REASON: Final = "server_lost"
"""Reason of a gap after events that the log of another server has lost."""

_message: Final[msgspec.msgpack.Decoder[causal.Message]] = msgspec.msgpack.Decoder(causal.Message)


class DecentralisedEvents:
    """The causal order at this server, with what its events mean for the broker."""

    def __init__(
        self,
        basics: Basics,
        subscriptions: Subscriptions,
        delivery: Delivery,
        channels: DecentralisedChannels,
        index: RouteIndex,
        publisher_filters: PublisherFilters,
        rollback: Rollback,
    ) -> None:
        self._conditions = basics.conditions
        self.channels = channels
        self.index = index
        self.has = channels.has
        """Returns whether events of a subject are sent directly."""
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._subscriptions = subscriptions
        self._delivery = delivery
        self._servers = basics.servers
        self._publisher_filters = publisher_filters
        self._rollback = rollback
        rollback.has_decentralised(self)
        self.domain_order = DomainOrder(basics)
        """Causal order with other domains."""
        self._machine: CausalServer | None = None
        self._links_to: dict[int, int] = {}
        """The present link to each server that has one, by the number of the server."""
        self._last_past = 0
        self._pasts: dict[int, Callable[[], None]] = {}
        """Actions that wait for the past of another server, by number."""
        self._decoded: tuple[bytes, Event] = b"", Event("", {})
        """Payload of the event that arrived last, and the event."""

    def start(self) -> None:
        """Begin, once the log has an incarnation."""
        self._machine = CausalServer(self._state.decentralised.causal)
        self._remove(self.channels.left)
        self.index.start()
        self._ask_for_kernel()

    def _remove(self, left: Iterable[str]) -> None:
        """Wait for nothing of servers that have left the domain: before, everybody has taken what they sent."""
        numbers = {self.channels.servers.index(each) for each in left}
        for number in sorted(numbers - self._state.decentralised.causal.knowledge.forgotten):
            self._step(causal.RemoveServer(number, is_forgotten=True))

    def untaken(self) -> Mapping[str, int]:
        """Return the number of own events that each other server has not delivered yet."""
        links = self._state.decentralised.causal.outgoing.links
        return {self.channels.servers[number]: len(link.waiting) for number, link in links.items() if link.waiting}

    def stale_routes(self) -> tuple[str, ...]:
        """Stop using the routes that may have changed since a copy of the log was made; return their keys."""
        stale = self._state.decentralised.stale_routes()
        for _, route in stale:
            self.index.forget(route)
        return tuple(key for key, _ in stale)

    def begin_again(self) -> None:
        """Go on in the incarnation that the state has begun, on new links."""
        if self._machine is not None:
            self._machine.begin_again()
        links = list(self._links_to.values())
        self._links_to.clear()  # what still comes there follows messages that are forgotten
        for link in links:
            self._journal.emit(LinkDropped(link, "the log of this server is an earlier copy"))

    def after_past(self, source: str, past: CausalPast, done: Callable[[], None]) -> None:
        """Call ``done`` once everything of the ``past`` of another server that is for this one is delivered here."""
        self._last_past += 1
        self._pasts[self._last_past] = partial(self._reached, past.domains, done)
        self._step(causal.ImportPast(self._last_past, past, self.channels.servers.index(source)))

    def _reached(self, domains: bytes, done: Callable[[], None]) -> None:
        """Take over the causes in other domains of a past that is delivered here, and go on."""
        if domains:
            changed = records.CausalChanged(at_us=self._state.wall_us, changes=(), domains=domains)
            self._journal.write(changed, urgent=True)
        done()

    def disk_freed(self) -> None:
        """Close all links, so that all is sent again that was not taken while the disk had no room.

        A message that still comes on such a link follows one that was not taken.
        """
        links, self._links_to = self._links_to, {}
        for number, link in links.items():
            self._journal.emit_now(LinkDropped(link, "the disk was full"))
            self._step(causal.CausalLinkClosed(number))

    # Publishing -------------------------------------------------------------------------------------------------

    def knows(self, subject: str) -> bool:
        """Return whether the interest of all servers in ``subject`` is known here, if that is sent directly."""
        return not self.has(subject) or self.index.missing(subject) is None

    def refusal(self, subject: str) -> Rejected | None:
        """Return why an event cannot be sent now, None if it can: its destinations must be known."""
        if (server := self.index.missing(subject)) is None:
            return None
        (leader,) = self.channels.leaders_of(subject)
        reason = f"{leader} has not told {self.channels.server} yet which events of {subject!r} {server} wants"
        return Rejected(f"{reason}; try again later", "routes_unknown")

    def send(self, event: Event, acceptance: Acceptance, gateway: str | None = None) -> Sending:
        """Return the sending of an accepted event; :meth:`perform` has to follow its record, with nothing between.

        The ``gateway`` gets it, too, also if nobody wants it there.
        """
        assert self._machine is not None
        payload = encode_payload(acceptance.id, self._state.wall_us, acceptance.event)
        wanted = self.index.destinations(event)
        servers = wanted if gateway is None else wanted | {self.channels.servers.index(gateway)}
        outputs = self._machine.step([causal.PublishTo(servers, payload)], self._links.now)
        self._ahead(outputs)
        sent = outputs.pop(0)
        assert isinstance(sent, causal.WriteRecord)
        assert isinstance(sent.record, causal.CausalSent)
        return Sending(encode_header(sent.record.header), outputs, is_wanted=bool(wanted))

    # Inputs -----------------------------------------------------------------------------------------------------

    def on_input(
        self, given: DirectLinkOpened | DirectLinkClosed | CausalMessageArrived | RoutesArrived | TimerFired
    ) -> None:
        """Take an input about other servers."""
        match given:
            case CausalMessageArrived():
                self._on_message(given)
            case RoutesArrived():
                self._on_routes(given)
            case DirectLinkOpened(link=link, server=server):
                number = self.channels.servers.index(server)
                self._links_to[number] = link
                self._step(causal.CausalLinkClosed(number), causal.CausalLinkOpened(number))
            case DirectLinkClosed(link=link, server=server):
                number = self.channels.servers.index(server)
                if self._links_to.get(number) == link:
                    del self._links_to[number]
                    self._step(causal.CausalLinkClosed(number))
            case TimerFired():
                self._step(given)

    def _on_message(self, given: CausalMessageArrived) -> None:
        number = self.channels.servers.index(given.server)
        if self._links_to.get(number) != given.link or self._conditions.is_disk_full:
            return
        try:
            message = _message.decode(given.payload)
            if isinstance(message, causal.Hello) and not self.channels.has_numbers(message.numbering):
                raise RemoteProtocolError("its domain file has other servers than ours; use the same file", None)
            if isinstance(message, causal.Hello) and message.seen is not None and not self._has(given, message.seen):
                return
            if isinstance(message, causal.Carried | causal.AskAnswered) and message.payload:
                # An event that was held is decoded again when it is delivered.
                self._decoded = message.payload, _event_of(message.payload)
            self._step(causal.MessageCame(number, message))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RemoteProtocolError) as error:
            self._journal.emit_now(LinkDropped(given.link, f"{given.server}: {error}"))

    def _has(self, given: CausalMessageArrived, seen: EventId) -> bool:
        """Return whether the log has an event that another server has delivered; a rollback may have been found."""
        return not has_lost(self._state, seen) or not self._rollback.found_by(given.server, seen.incarnation)

    def _on_routes(self, given: RoutesArrived) -> None:
        """Store a change of the interest of another server, and confirm it once it is durable and in use."""
        if self._conditions.is_disk_full:
            return
        state, leader, message = self._state, given.leader, given.message
        route = leader, message.stream
        before = state.decentralised.routes.position(route)
        if _has_forgotten(message, before):
            self._rollback.found_by(leader)
            before = state.decentralised.routes.position(route)
        if given.is_multicast and not _is_next(message, before):
            return
        try:
            taken = state.decentralised.take_route(leader, message, self._links.now)
        except RemoteProtocolError as error:
            if not given.is_multicast:
                self._journal.emit_now(LinkDropped(given.link, f"{leader}: {error}"))
            return
        if state.decentralised.routes.position(route) != before:
            self.index.change(route, taken)
            record = records.RoutesChanged(at_us=state.wall_us, leader=leader, message=given.encoded)
            self._journal.write(record, urgent=True)
            self._ask_for_kernel()
        if taken.answer is None:
            return
        answer = taken.answer
        if given.is_multicast and isinstance(answer, InterestConfirmed):
            answer = msgspec.structs.replace(answer, is_multicast=True)
        answered = RoutesAnswered(leader, given.link, answer)
        if isinstance(answer, InterestConfirmed):
            self._publisher_filters.when_all_used(lambda: self._journal.emit(answered))
        else:
            self._journal.emit(answered)

    def _ask_for_kernel(self) -> None:
        if self._subscriptions.matcher.kernel == "scan" and (kernel := self.index.wanted_kernel()):
            self._journal.emit(KernelWanted(kernel))

    # Outputs ----------------------------------------------------------------------------------------------------

    def _step(self, *inputs: Input) -> None:
        if self._machine is not None:
            outputs = self._machine.step(inputs, self._links.now)
            self._ahead(outputs)
            self.perform(outputs)

    def _ahead(self, outputs: Sequence[Output]) -> None:
        """Count the records that the machine has applied and the log does not have yet."""
        self._state.decentralised.ahead += sum(isinstance(each, causal.WriteRecord) for each in outputs)

    def perform(self, outputs: Sequence[Output]) -> None:
        """Write the records of the causal order, deliver, and send."""
        changes: list[causal.AnyCausalRecord] = []
        rewound_by: int | None = None
        for output in outputs:
            match output:
                case causal.WriteRecord(record=causal.CausalDelivered(payload=payload)) if payload != MARK:
                    self._write(changes)
                case causal.WriteRecord(record=record):
                    changes.append(record)
                case causal.Deliver(header=header, payload=payload):
                    self._deliver(header, payload)
                case causal.GapFound():
                    self._lose(output, changes)
                case causal.SendToPeer(server=server, message=message):
                    self._write(changes)
                    if link := self._links_to.get(server):
                        if isinstance(message, causal.Hello):
                            message = self._completed(server, message)
                        data = CAUSAL_PREFIX + msgspec.msgpack.encode(message)
                        self._journal.emit(SendOnLink(link, data), len(data))
                case SetTimer(key=key, at=at):
                    self._journal.emit_now(SetTimer(("causal", key), at))
                case causal.PastReached(token=token):
                    self._write(changes)
                    self._pasts.pop(token)()
                case causal.LogRewound(server=server):
                    rewound_by = server
        self._write(changes)
        if rewound_by is not None:
            self._rollback.found_by(self.channels.servers[rewound_by])

    def _completed(self, server: int, hello: causal.Hello) -> causal.Hello:
        row = self._state.decentralised.seen.get(self.channels.servers[server])
        seen = None if row is None else row.id
        own = self._state.servers[self._state.server]
        return msgspec.structs.replace(
            hello,
            numbering=self.channels.numbering,
            seen=seen,
            is_rolled_back=own.rolled_back > 0,
            is_marked=own.is_marked,
        )

    def _write(self, changes: list[causal.AnyCausalRecord]) -> None:
        """Write ``changes``, and clear the list. Cursors and marks may be lost: the other servers repeat them."""
        if changes:
            urgent = not all(isinstance(each, causal.CausalAcknowledged | causal.MarkHeard) for each in changes)
            encoded = tuple(map(encode_change, changes))
            self._journal.write(records.CausalChanged(at_us=self._state.wall_us, changes=encoded), urgent=urgent)
            changes.clear()

    def _deliver(self, header: Header, payload: bytes) -> None:
        """Record an event, and deliver it to the sessions here, unless the matching engine has to match it."""
        arrival = self._arrival(header, payload)
        known = self._state.decentralised.seen.get(arrival.leader)
        if known is not None and arrival.id <= known.id:
            # Its server has published it again, after a rollback of its log.
            self._write([causal.CausalDelivered(header, payload)])
            return
        event = self._decoded[1] if self._decoded[0] is payload else _event_of(payload)
        report = partial(DecentralisedArrivalMatched, event.subject)
        self._delivery.arrived(
            event, arrival, self._conditions.received_us, self._servers.all, report, encode_header(header)
        )
        self.domain_order.delivered(arrival.id)

    def _arrival(self, header: Header, payload: bytes) -> records.Arrival:
        data, received_us = decode_payload(payload), self._conditions.received_us
        server, incarnation = header.origin
        own = self.channels.number
        before = next((number for each, number in header.befores if each == own), 0)
        return records.Arrival(
            self.channels.servers[server],
            incarnation,
            header.number,
            before,
            data.id,
            data.at_us,
            data.event,
            None if received_us == self._state.wall_us else received_us,
        )

    def _lose(self, gap: causal.GapFound, changes: list[causal.AnyCausalRecord]) -> None:
        """Record that events are lost, with a gap for each subscription that they may have matched."""
        server, incarnation = gap.origin
        lost = records.ArrivalsLost(
            at_us=self._state.wall_us,
            leader=self.channels.servers[server],
            epoch=incarnation,
            number=gap.after if gap.until is None else gap.until,
            count=1 if gap.until is None else gap.until - gap.after,
            reason=GAP_REASON,
            notified=self._concerned(),
            causal=tuple(map(encode_change, changes)),
        )
        changes.clear()
        self._journal.write(lost, urgent=True)
        for each in lost.notified:
            self._links.notify(self._state.sessions[session_key(each.user, each.session)], each.subscriptions)

    def _concerned(self) -> tuple[records.Notified, ...]:
        """Return a notification for the subscriptions of each session to decentralised channels."""
        return concerned(self._state, self._servers.all, lambda subjects: any(map(self.channels.concerns, subjects)))


def _event_of(payload: bytes) -> Event:
    return protocol.decode_event(bytes(decode_payload(payload).event))


def _has_forgotten(message: FromSender, position: tuple[int, int] | None) -> bool:
    """Return whether this server has confirmed a later version than that of its ``position``."""
    if not isinstance(message, InterestPosition) or position is None:
        return False
    return position[0] == message.incarnation and position[1] < message.confirmed


def _is_next(message: FromSender, position: tuple[int, int] | None) -> bool:
    """Return whether ``message`` is a change of interest that follows ``position``."""
    return isinstance(message, InterestChanged) and position == (message.incarnation, message.previous)
